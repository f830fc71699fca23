//! The lines of the log about a store that fails; none without the feature `tracing`.

#![cfg_attr(not(feature = "tracing"), allow(unused_variables))]

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Limit;
use crate::backend::{BackendError, OnFailure};

/// The failures of the store of a limiter, for its calls and its layers together.
///
/// A store that fails affects every request. Each [kind](FailureKind) of failure is logged once as
/// an error, and then at debug level. Those that [last](FailureKind::lasts) end together, when the
/// store [has recovered](Self::record_charge), and are logged again after that.
///
/// What belongs to them is under one lock. So of many calls at once, one begins an outage and one
/// ends it, and each is counted before that end or after it.
#[derive(Debug, Default)]
pub(super) struct FailureLog {
    /// Whether a failure lasts. It changes under the lock of `state`, when that begins and ends.
    lasts: AtomicBool,
    state: Mutex<FailureState>,
    /// How many requests passed uncounted.
    uncounted: AtomicU64,
}

#[derive(Debug, Default)]
struct FailureState {
    /// The kinds that have had their line.
    logged: Vec<FailureKind>,
    /// When a failure that lasts was seen last; none if the store works.
    last: Option<Instant>,
    meanwhile: Meanwhile,
}

/// How many requests were admitted and refused without the store while a failure lasted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Meanwhile {
    pub(super) admitted: u64,
    pub(super) refused: u64,
}

/// What became of a call that the store did not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undecided {
    /// A request that was admitted or refused for the failure.
    Request(OnFailure),
    /// A fallback has admitted a request.
    AdmittedByFallback,
    /// A fallback has refused a request.
    RefusedByFallback,
    /// A shadow. It admits and refuses no request.
    Shadow,
    /// A shadow about which a fallback has decided.
    ShadowOfFallback,
    /// It decides about no request: a look, a settlement or a change by an operator.
    Call,
}

impl FailureLog {
    /// The store did not decide. Returns whether a failure that lasts begins with this.
    pub(super) fn record(&self, limit: &Limit, error: &BackendError, call: Undecided) -> bool {
        let kind = FailureKind::of(error);
        let lasts = kind.is_some_and(FailureKind::lasts);
        if kind == Some(FailureKind::Outage) && call.on_failure() == Some(OnFailure::Admit) {
            self.uncounted.fetch_add(1, Ordering::Relaxed);
        }
        let first = {
            let mut state = self.state();
            if lasts {
                state.last = Some(Instant::now());
                self.lasts.store(true, Ordering::Relaxed);
            }
            state.count(call);
            kind.filter(|kind| state.note(*kind))
        };
        #[cfg(feature = "tracing")]
        {
            let error: &(dyn std::error::Error + 'static) = error;
            match first {
                Some(kind) => tracing::error!(limit = limit.name(), error, "{}", kind.line()),
                None => tracing::debug!(limit = limit.name(), ?call, error, "no decision"),
            }
        }
        first.is_some() && lasts
    }

    /// How many requests passed uncounted so far.
    pub(super) fn uncounted(&self) -> u64 {
        self.uncounted.load(Ordering::Relaxed)
    }

    /// Whether a failure lasts. While the store works, this load is the only cost of a decision.
    #[inline]
    pub(super) fn lasts(&self) -> bool {
        self.lasts.load(Ordering::Relaxed)
    }

    /// Records that the store has charged a limit. If it has recovered by that, returns what became
    /// of requests meanwhile.
    ///
    /// It has if nothing has failed for a minute. In a cluster, one node may be down for an hour
    /// while the others answer: without the minute, each request would be logged.
    pub(super) fn record_charge(&self, limit: &Limit) -> Option<Meanwhile> {
        let meanwhile = {
            let mut state = self.state();
            if state.last?.elapsed() < QUIET {
                return None;
            }
            self.lasts.store(false, Ordering::Relaxed);
            state.recover()
        };
        #[cfg(feature = "tracing")]
        {
            let Meanwhile { admitted, refused } = meanwhile;
            tracing::info!(limit = limit.name(), admitted, refused, "backend recovered");
        }
        Some(meanwhile)
    }

    /// A poisoned lock is harmless: nothing panics while it is held.
    fn state(&self) -> MutexGuard<'_, FailureState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FailureState {
    /// Counts what became of a call, while a failure lasts.
    fn count(&mut self, call: Undecided) {
        if self.last.is_none() {
            return;
        }
        let count = match call {
            Undecided::Request(OnFailure::Admit) | Undecided::AdmittedByFallback => {
                &mut self.meanwhile.admitted
            }
            Undecided::Request(OnFailure::Refuse) | Undecided::RefusedByFallback => {
                &mut self.meanwhile.refused
            }
            Undecided::Shadow | Undecided::ShadowOfFallback | Undecided::Call => return,
        };
        *count = count.saturating_add(1);
    }

    /// Notes a failure. Returns whether it is to be logged as an error.
    fn note(&mut self, kind: FailureKind) -> bool {
        let is_first = !self.logged.contains(&kind);
        if is_first {
            self.logged.push(kind);
        }
        is_first
    }

    fn recover(&mut self) -> Meanwhile {
        self.last = None;
        self.logged.retain(|kind| !kind.lasts());
        mem::take(&mut self.meanwhile)
    }
}

impl Undecided {
    /// What the limiter has done for the failure; `None` if a fallback has decided.
    pub(super) const fn on_failure(self) -> Option<OnFailure> {
        match self {
            Self::Request(on_failure) => Some(on_failure),
            Self::Shadow => Some(OnFailure::Admit),
            Self::Call => Some(OnFailure::Refuse),
            Self::AdmittedByFallback | Self::RefusedByFallback | Self::ShadowOfFallback => None,
        }
    }
}

/// The kinds of failures that have a line each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureKind {
    Outage,
    Full,
    Misconfigured,
    Overload,
    Locked,
    Undecidable,
}

impl FailureKind {
    /// The kind of a failure. One in a transaction has none: each transaction has a limiter of its
    /// own, so each would be the first.
    const fn of(error: &BackendError) -> Option<Self> {
        Some(if error.is_outage() {
            Self::Outage
        } else if error.is_full() {
            Self::Full
        } else if error.is_misconfigured() {
            Self::Misconfigured
        } else if error.is_overload() {
            Self::Overload
        } else if error.is_in_transaction() {
            return None;
        } else if error.is_timeout() {
            Self::Locked
        } else {
            Self::Undecidable
        })
    }

    /// Whether it lasts until the store has recovered.
    ///
    /// Clients can cause the others, and would fill the log if these were logged more than once in
    /// the life of the limiter. They can cause a full store as well, which an operator has to know
    /// about each time.
    const fn lasts(self) -> bool {
        matches!(self, Self::Outage | Self::Full | Self::Misconfigured)
    }

    #[cfg(feature = "tracing")]
    const fn line(self) -> &'static str {
        match self {
            // Some limits may pass meanwhile, others be refused, and others fall back. So the line
            // says nothing of what becomes of requests, and the one at the end counts them.
            Self::Outage => {
                "the backend has an outage, and a fallback or `OnFailure` decides about requests \
                 (logged once until the backend recovers)"
            }
            Self::Full => {
                "the backend is full, and requests that it has no room for are not admitted \
                 (logged once until the backend recovers)"
            }
            Self::Misconfigured => {
                "the backend is misconfigured, and requests are not admitted (logged once until \
                 the backend recovers)"
            }
            Self::Overload => {
                "decisions miss their deadline before they are sent, and their requests are not \
                 admitted (logged once)"
            }
            Self::Locked => {
                "decisions wait for locks until their deadline, and their requests are not \
                 admitted (logged once)"
            }
            Self::Undecidable => {
                "the backend can never decide such requests, and they are not admitted \
                 (logged once)"
            }
        }
    }
}

/// A store that has not failed for this long has recovered. So an outage has at most two lines a
/// minute.
const QUIET: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::limiter::Limit;
    use crate::quota::Quota;

    static LIMIT: Limit = Limit::new("limit", Quota::token_bucket(1, QUIET));

    /// Calls fail and charges succeed at once in four threads, while minutes go by.
    #[test]
    fn each_outage_begins_once_and_ends_once_and_no_call_is_counted_twice_or_not_at_all() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let log = FailureLog::default();
        let errors = [
            BackendError::unavailable("store", "it is down"),
            BackendError::overloaded("store", QUIET),
        ];
        let run = |thread: usize| {
            let _entered = runtime.enter();
            let (mut begun, mut ended, mut sum) = (0, 0, Meanwhile::default());
            for round in 0..2_000 {
                let call = match round % 2 {
                    0 => Undecided::AdmittedByFallback,
                    _ => Undecided::Request(OnFailure::Refuse),
                };
                begun += u32::from(log.record(&LIMIT, &errors[0], call));
                begun += u32::from(log.record(&LIMIT, &errors[1], Undecided::Call));
                for _ in 0..3 {
                    if thread == 0 {
                        runtime.block_on(tokio::time::advance(QUIET));
                    }
                    if let Some(Meanwhile { admitted, refused }) = log.record_charge(&LIMIT) {
                        ended += 1;
                        sum.admitted += admitted;
                        sum.refused += refused;
                    }
                }
            }
            (begun, ended, sum)
        };
        let mut told = thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> = (0..4).map(|nth| scope.spawn(move || run(nth))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let _entered = runtime.enter();
        runtime.block_on(tokio::time::advance(QUIET));
        let last = log.record_charge(&LIMIT);
        told.push((0, u32::from(last.is_some()), last.unwrap_or_default()));
        assert!(!log.lasts() && log.record_charge(&LIMIT).is_none());
        let sum = |of: fn(&(u32, u32, Meanwhile)) -> u64| told.iter().map(of).sum::<u64>();
        let begun = sum(|told| told.0.into());
        assert!(begun > 1, "{told:?}");
        assert_eq!(sum(|told| told.1.into()), begun, "{told:?}");
        assert_eq!(sum(|told| told.2.admitted), 4_000);
        assert_eq!(sum(|told| told.2.refused), 4_000);
    }
}
