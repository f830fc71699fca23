//! Tells what could not be read, once for each host and field.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use http::header::HOST;
use http::{HeaderMap, Response, Uri};

use super::reading::{Reading, Unreadable};

/// Hears the name of the host, and the field.
type OnUnreadable = dyn Fn(&str, &Unreadable) + Send + Sync;

/// What a layer has told.
#[derive(Clone, Default)]
pub(crate) struct Told {
    on_unreadable: Option<Arc<OnUnreadable>>,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    hasher: RandomState,
    /// For each hash of a host, those of its fields.
    hosts: Mutex<HashMap<u64, Vec<u64>>>,
}

/// In the extensions of a response: another layer of this client has told what is unreadable.
#[derive(Clone, Copy)]
struct IsTold;

impl Told {
    pub(crate) fn set(&mut self, on_unreadable: Arc<OnUnreadable>) {
        self.on_unreadable = Some(on_unreadable);
    }

    /// Tells what of this response could not be read, unless it is told already.
    pub(crate) fn tell<R>(&self, response: &mut Response<R>, reading: &Reading, host: &str) {
        if reading.unreadable().is_empty() || response.extensions().get::<IsTold>().is_some() {
            return;
        }
        response.extensions_mut().insert(IsTold);
        for unreadable in reading.unreadable() {
            if self.is_new(host, unreadable) {
                warn(host, unreadable);
                if let Some(on_unreadable) = &self.on_unreadable {
                    on_unreadable(host, unreadable);
                }
            }
        }
    }

    fn is_new(&self, host: &str, unreadable: &Unreadable) -> bool {
        let hasher = &self.seen.hasher;
        let (host, field) = (hasher.hash_one(host), hasher.hash_one(unreadable.field()));
        // A panic leaves at most a hash that was not told.
        let mut hosts = self.seen.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.len() >= MAX_HOSTS && !hosts.contains_key(&host) {
            hosts.clear();
        }
        let fields = hosts.entry(host).or_default();
        let is_new = fields.len() < MAX_FIELDS && !fields.contains(&field);
        if is_new {
            fields.push(field);
        }
        is_new
    }
}

#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
fn warn(host: &str, unreadable: &Unreadable) {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        host,
        field = unreadable.field().as_str(),
        value = unreadable.value(),
        assumed = unreadable.assumed(),
        "a field about limits cannot be read (logged once for each host and field)"
    );
}

/// The host that a request goes to, without its port; shortened.
pub(crate) fn host_name(uri: &Uri, headers: &HeaderMap) -> String {
    let field = || headers.get(HOST).and_then(|host| host.to_str().ok());
    uri.host().or_else(field).unwrap_or_default().chars().take(MAX_HOST).collect()
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Told").finish_non_exhaustive()
    }
}

/// The hosts that are remembered. With one more, all are forgotten, and their fields are told again.
const MAX_HOSTS: usize = 1_000;
/// The fields of a host that are told: a server can invent one for each answer.
const MAX_FIELDS: usize = 32;
/// The longest name of DNS.
const MAX_HOST: usize = 253;
