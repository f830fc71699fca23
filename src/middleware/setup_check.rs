//! Looks for signs of a wrong set-up in the first requests.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::key::{Beside, Head, Key, KeyExtractor, SetupWarning};
use crate::limiter::Limit;

/// How many requests are checked. If several clients are active, it is unlikely that the first
/// thousand requests all have one key by chance.
const REQUESTS: u32 = 1_000;

/// Logs each kind of [`SetupWarning`] once.
///
/// After the first thousand requests, a check is one load of a number that no longer changes. All
/// accesses are relaxed, since no decision depends on them: the worst outcome of a race is a line
/// that is not logged.
// In this order: later requests read the first number alone.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct SetupCheck {
    requests: AtomicU32,
    is_logged: AtomicBool,
    /// Whether some request did not raise the warning of the first.
    differs: AtomicBool,
    /// Whether the header fields of some request had other values than those of the first.
    fields_differ: AtomicBool,
    /// The first warning that is not certain: its key, if all requests have to raise it with one key,
    /// and the fields, if their values have to differ.
    first: OnceLock<(Option<Key>, Option<Beside>)>,
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
        let Self { requests, is_logged, differs, fields_differ, first } = self;
        // The counter cannot wrap: it exceeds the bound by at most the number of threads.
        let is_last = requests.fetch_add(1, Ordering::Relaxed).saturating_add(1) == REQUESTS;
        let Some(warning) = extractor.setup_warning(head) else {
            return differs.store(true, Ordering::Relaxed);
        };
        if warning.is_certain() {
            differs.store(true, Ordering::Relaxed);
            if !is_logged.swap(true, Ordering::Relaxed) {
                log_warning(limit, &warning);
            }
            return;
        }
        // The first request sets both, whichever thread gets here first. From then on, one request
        // with another key is enough to rule the warning out.
        let (key, beside) = (warning.common_key(), warning.beside());
        let (first_key, first_beside) = first.get_or_init(|| (key.cloned(), beside));
        if first_key.as_ref() != key {
            differs.store(true, Ordering::Relaxed);
        }
        if first_beside.zip(beside).is_none_or(|(first, one)| first.differs(one)) {
            fields_differ.store(true, Ordering::Relaxed);
        }
        let is_raised = !differs.load(Ordering::Relaxed) && fields_differ.load(Ordering::Relaxed);
        if is_last && is_raised {
            log_warning(limit, &warning);
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
