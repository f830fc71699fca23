//! Looks for signs of a misconfiguration in the first requests of a rule.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::key::{Head, Key, KeyExtractor, SetupWarning};
use crate::limiter::Limit;

/// How many requests are checked. If several clients are active, it is unlikely that the first
/// thousand requests all have one key by chance.
const REQUESTS: u32 = 1_000;

/// Logs each kind of [`SetupWarning`] once.
///
/// After the first thousand requests, a check is one load of a number that no longer changes. All
/// accesses are relaxed, since no decision depends on them: the worst outcome of a race is a line
/// that is not logged.
#[derive(Debug, Default)]
pub(super) struct SetupCheck {
    requests: AtomicU32,
    /// Apart, as later requests do not look there.
    state: Box<SetupCheckState>,
}

#[derive(Debug, Default)]
struct SetupCheckState {
    is_logged: AtomicBool,
    /// The key of the first warning that all requests have to raise, if it has one.
    common_key: OnceLock<Option<Key>>,
    /// Whether some request did not raise that warning.
    differs: AtomicBool,
}

impl SetupCheck {
    #[inline]
    pub(super) fn check(&self, limit: &Limit, extractor: &dyn KeyExtractor, head: &Head<'_>) {
        if cfg!(feature = "tracing") && self.requests.load(Ordering::Relaxed) < REQUESTS {
            self.check_request(limit, extractor, head);
        }
    }

    #[cold]
    #[inline(never)]
    fn check_request(&self, limit: &Limit, extractor: &dyn KeyExtractor, head: &Head<'_>) {
        let Self { requests, state } = self;
        let SetupCheckState { is_logged, common_key, differs } = &**state;
        // The counter cannot wrap: it exceeds the bound by at most the number of threads.
        let is_last = requests.fetch_add(1, Ordering::Relaxed).saturating_add(1) == REQUESTS;
        let warning = extractor.setup_warning(head);
        match &warning {
            Some(warning) if warning.is_certain() => {
                differs.store(true, Ordering::Relaxed);
                if !is_logged.swap(true, Ordering::Relaxed) {
                    log_warning(limit, warning);
                }
            }
            Some(warning) => {
                let key = warning.common_key();
                // The first request sets the key, whichever thread gets here first. From then on,
                // one request with another key is enough to rule the warning out.
                if common_key.get_or_init(|| key.cloned()).as_ref() != key {
                    differs.store(true, Ordering::Relaxed);
                } else if is_last && !differs.load(Ordering::Relaxed) {
                    log_warning(limit, warning);
                }
            }
            None => differs.store(true, Ordering::Relaxed),
        }
    }
}

#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
fn log_warning(limit: &Limit, warning: &SetupWarning) {
    #[cfg(feature = "tracing")]
    {
        let key = warning.common_key().map(tracing::field::display);
        tracing::warn!(limit = limit.name(), %warning, key, "possible misconfiguration (logged once)");
    }
}
