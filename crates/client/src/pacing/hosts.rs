//! The hosts that a layer remembers, of a bounded number.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use super::host::Host;
use super::settings::PacingSettings;
use crate::host_name;
use tollgate::key::Head;

/// The hosts, by the hashes of their keys: a long key takes no more memory than a short one.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    hasher: RandomState,
    recent: Mutex<RecentHosts>,
}

#[derive(Debug, Default)]
struct RecentHosts {
    hosts: HashMap<u64, RecentHost>,
    uses: u64,
}

#[derive(Debug)]
struct RecentHost {
    host: Arc<Host>,
    /// The number of its last use.
    used: u64,
}

impl Hosts {
    /// The host of this key. If there are `max_hosts` others, the one that was not used for longest
    /// is forgotten.
    pub(super) fn get(
        self: &Arc<Self>,
        key: &str,
        head: &Head<'_>,
        settings: &PacingSettings,
    ) -> Arc<Host> {
        let hash = self.hasher.hash_one(key);
        // A panic leaves at most a host that was never used.
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.uses = recent.uses.saturating_add(1);
        let used = recent.uses;
        if let Some(known) = recent.hosts.get_mut(&hash) {
            known.used = used;
            return Arc::clone(&known.host);
        }
        while recent.hosts.len() >= settings.max_hosts.max(1) {
            let oldest = recent.hosts.iter().min_by_key(|(_, known)| known.used);
            let Some(oldest) = oldest.map(|(hash, _)| *hash) else { break };
            recent.hosts.remove(&oldest);
        }
        let name = host_name(head.uri(), head.headers());
        // Without a name, it is not known whether two keys are kinds of requests to one host.
        let mut known = recent.hosts.values().map(|known| &known.host);
        let kind = known.find(|known| known.name() == name && !name.is_empty());
        let kinds = kind.map(|known| known.pause_of_all());
        let host = Arc::new(Host::new(name, kinds.unwrap_or_default(), settings.quotas.clone()));
        recent.hosts.insert(hash, RecentHost { host: Arc::clone(&host), used });
        host
    }
}
