//! The settings of a layer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::HOST;

use super::quota::OwnQuota;
use crate::{Reader, Told};
use tollgate::key::Head;

type KeyFn = dyn Fn(&Head<'_>) -> Option<String> + Send + Sync;

#[derive(Clone)]
pub(super) struct PacingSettings {
    pub(super) max_wait: Duration,
    pub(super) headroom: u64,
    pub(super) max_hosts: usize,
    pub(super) key: Arc<KeyFn>,
    /// The client's own, for each host.
    pub(super) quotas: Vec<OwnQuota>,
    pub(super) reader: Reader,
    pub(super) told: Told,
}

impl Default for PacingSettings {
    fn default() -> Self {
        Self {
            max_wait: Duration::from_secs(3_600),
            headroom: 0,
            max_hosts: 1_000,
            key: Arc::new(|head| Some(origin(head))),
            quotas: Vec::new(),
            reader: Reader::new(),
            told: Told::default(),
        }
    }
}

/// The scheme and the authority of a request: `https://api.example.org`.
fn origin(head: &Head<'_>) -> String {
    let scheme = head.uri().scheme_str().unwrap_or_default();
    let host = || head.headers().get(HOST).and_then(|host| host.to_str().ok());
    let authority = head.uri().authority().map(|authority| authority.as_str());
    format!("{scheme}://{}", authority.or_else(host).unwrap_or_default().to_ascii_lowercase())
}

impl fmt::Debug for PacingSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacingSettings")
            .field("max_wait", &self.max_wait)
            .field("headroom", &self.headroom)
            .field("max_hosts", &self.max_hosts)
            .field("quotas", &self.quotas)
            .field("reader", &self.reader)
            .finish_non_exhaustive()
    }
}
