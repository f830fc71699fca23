//! The lines of the log about a store that fails; none without the feature `tracing`.

#![cfg_attr(not(feature = "tracing"), allow(unused_variables))]

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use super::Limit;
use super::events::StoreHealth;
use super::lock::lock;
use super::random::nanos;
use crate::backend::{BackendError, OnFailure};

/// The failures of the store of a limiter, for its calls and its layers together.
///
/// A store that fails affects every request. Each [kind](line_of) of failure is logged once as
/// an error, and then at debug level. Those that [last](lasts) end together, when the
/// store [has recovered](Self::record_charge), and are logged again after that.
///
/// What belongs to them is under one lock. So of many calls at once, one begins an outage and one
/// ends it, and each is counted before that end or after it. Lines and events come after the lock,
/// so the end of an outage may be told after the next one has begun: its number tells them apart.
#[derive(Debug, Default)]
pub(super) struct FailureLog {
    /// When a failure that lasts was seen last, as [`now`](Self::now); zero if the store works. It
    /// changes under the lock of `state`.
    last: AtomicU64,
    state: Mutex<FailureState>,
    /// The first failure that lasts.
    epoch: OnceLock<Instant>,
    /// How many requests passed uncounted.
    uncounted: AtomicU64,
}

#[derive(Debug, Default)]
struct FailureState {
    /// The lines that were logged, each with whether its failure lasts.
    logged: Vec<(&'static str, bool)>,
    /// The number of the outage: the first is one.
    outage: u64,
    /// How many decisions were made without the store while a failure lasts.
    admitted: u64,
    refused: u64,
}

/// What became of a call that the store did not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undecided {
    /// A request that was admitted or refused for the failure.
    Request(OnFailure),
    /// A request that a fallback has admitted or refused.
    Fallback(OnFailure),
    /// A shadow. It admits and refuses no request.
    Shadow,
    /// It decides about no request: a look, a settlement or a change by an operator.
    Call,
}

impl FailureLog {
    /// Records that the store did not decide.
    pub(super) fn record<'a>(
        &self,
        limit: &'a Limit,
        error: &'a BackendError,
        call: Undecided,
    ) -> StoreHealth<'a> {
        let lasts = lasts(error);
        if error.is_outage() && call.on_failure() == Some(OnFailure::Admit) {
            self.uncounted.fetch_add(1, Ordering::Relaxed);
        }
        let (first, outage) = {
            let mut state = lock(&self.state);
            if lasts {
                if !self.lasts() {
                    state.outage = state.outage.saturating_add(1);
                }
                self.last.store(self.now(), Ordering::Relaxed);
            }
            if self.lasts() {
                state.count(call);
            }
            let first = line_of(error).filter(|line| !state.logged.contains(&(line, lasts)));
            state.logged.extend(first.map(|line| (line, lasts)));
            (first, lasts.then_some(state.outage))
        };
        #[cfg(feature = "tracing")]
        {
            let error: &(dyn std::error::Error + 'static) = error;
            match first {
                Some(line) => tracing::error!(limit = limit.name(), outage, error, "{line}"),
                None => tracing::debug!(limit = limit.name(), ?call, error, "could not decide"),
            }
        }
        let (on_failure, is_first) = (call.on_failure(), first.is_some() && lasts);
        StoreHealth::Failure { limit, error, on_failure, is_first, outage }
    }

    /// How many requests passed uncounted so far.
    pub(super) fn uncounted(&self) -> u64 {
        self.uncounted.load(Ordering::Relaxed)
    }

    /// Whether a failure lasts. While the store works, this load is the only cost of a decision.
    #[inline]
    pub(super) fn lasts(&self) -> bool {
        self.last.load(Ordering::Relaxed) != 0
    }

    /// Records that the store has charged a limit. If it has recovered by that, returns what became
    /// of requests meanwhile.
    ///
    /// It has if nothing has failed for a minute. In a cluster, one node may be down for an hour
    /// while the others answer: without the minute, each request would be logged. Within it, a
    /// charge takes no lock.
    pub(super) fn record_charge<'a>(&self, limit: &'a Limit) -> Option<StoreHealth<'a>> {
        if !self.is_over() {
            return None;
        }
        let (outage, admitted, refused) = {
            let mut state = lock(&self.state);
            // Another call may have ended it, or failed, since the look without the lock.
            if !self.is_over() {
                return None;
            }
            self.last.store(0, Ordering::Relaxed);
            state.logged.retain(|(_, lasts)| !lasts);
            (state.outage, mem::take(&mut state.admitted), mem::take(&mut state.refused))
        };
        #[cfg(feature = "tracing")]
        tracing::info!(outage, admitted, refused, "backend recovered");
        Some(StoreHealth::Recovery { limit, outage, admitted, refused })
    }

    /// Whether a failure lasts, and a minute has passed since it was seen last.
    fn is_over(&self) -> bool {
        let last = self.last.load(Ordering::Relaxed);
        last != 0 && self.now().saturating_sub(last) >= nanos(QUIET)
    }

    /// The nanoseconds since the first failure that lasts, and one more, so that none is zero.
    fn now(&self) -> u64 {
        nanos(self.epoch.get_or_init(Instant::now).elapsed()).saturating_add(1)
    }
}

impl FailureState {
    /// Counts what became of a call, while a failure lasts.
    fn count(&mut self, call: Undecided) {
        let count = match call {
            Undecided::Shadow | Undecided::Call => return,
            Undecided::Request(OnFailure::Admit) | Undecided::Fallback(OnFailure::Admit) => {
                &mut self.admitted
            }
            Undecided::Request(_) | Undecided::Fallback(_) => &mut self.refused,
        };
        *count = count.saturating_add(1);
    }
}

impl Undecided {
    /// What the limiter has done for the failure; `None` if a fallback has decided.
    pub(super) const fn on_failure(self) -> Option<OnFailure> {
        match self {
            Self::Request(on_failure) => Some(on_failure),
            Self::Call => Some(OnFailure::Refuse),
            Self::Fallback(_) | Self::Shadow => None,
        }
    }
}

/// Whether a failure lasts until the store has recovered.
///
/// Clients can cause the others, and would fill the log if these were logged more than once in the life
/// of the limiter. They can cause a full store as well, which an operator has to know about each time.
fn lasts(error: &BackendError) -> bool {
    error.is_outage() || error.is_full() || error.is_misconfigured()
}

/// The line of the log about a failure. One in a transaction has none: each transaction has a limiter of
/// its own, so each would be the first.
fn line_of(error: &BackendError) -> Option<&'static str> {
    Some(if error.is_outage() {
        // Some limits may pass meanwhile, others be refused, and others fall back. So the line says
        // nothing of what becomes of requests, and the one at the end counts them.
        "the backend is unavailable, and requests get 503 unless a fallback or `OnFailure` decides \
         (logged once until the backend recovers)"
    } else if error.is_full() {
        "the backend is full, and requests that it has no room for are not admitted (logged once \
         until the backend recovers)"
    } else if error.is_misconfigured() {
        "the backend is misconfigured, and requests are not admitted (logged once until the backend \
         recovers)"
    } else if error.is_overload() {
        "decisions miss their deadline before they are sent, and their requests are not admitted \
         (logged once)"
    } else if error.is_in_transaction() {
        return None;
    } else if error.is_timeout() {
        "decisions wait for locks until their deadline, and their requests are not admitted (logged \
         once)"
    } else {
        "the backend can never decide a request, and it is not admitted (logged once)"
    })
}

/// A store that has not failed for this long has recovered. So an outage has at most two lines a
/// minute.
const QUIET: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// The outages of which a thread was told the begin and the end, and what was counted meanwhile.
    type Told = (Vec<u64>, Vec<u64>, [u64; 2]);
    use crate::limiter::Limit;
    use crate::quota::Quota;

    static LIMIT: Limit = Limit::new("limit", Quota::token_bucket(1, QUIET));

    /// The number of the outage that this failure belongs to, and whether it is the first one.
    fn failure(told: &StoreHealth<'_>) -> (Option<u64>, bool) {
        match *told {
            StoreHealth::Failure { outage, is_first, .. } => (outage, is_first),
            _ => panic!("{told:?}"),
        }
    }

    /// The number of the outage that has ended, and how many were admitted and refused.
    fn recovery(told: &StoreHealth<'_>) -> (u64, [u64; 2]) {
        match *told {
            StoreHealth::Recovery { outage, admitted, refused, .. } => {
                (outage, [admitted, refused])
            }
            _ => panic!("{told:?}"),
        }
    }

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
            let (mut begun, mut ended, mut sum) = (Vec::new(), Vec::new(), [0, 0]);
            for round in 0..2_000 {
                let call = match round % 2 {
                    0 => Undecided::Fallback(OnFailure::Admit),
                    _ => Undecided::Request(OnFailure::Refuse),
                };
                let (outage, is_first) = failure(&log.record(&LIMIT, &errors[0], call));
                begun.extend(outage.filter(|_| is_first));
                let failed = log.record(&LIMIT, &errors[1], Undecided::Call);
                assert_eq!(failure(&failed), (None, false));
                for _ in 0..3 {
                    if thread == 0 {
                        runtime.block_on(tokio::time::advance(QUIET));
                    }
                    if let Some(told) = log.record_charge(&LIMIT) {
                        let (outage, [admitted, refused]) = recovery(&told);
                        ended.push(outage);
                        sum = [sum[0] + admitted, sum[1] + refused];
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
        if let Some(last) = log.record_charge(&LIMIT) {
            let (outage, sum) = recovery(&last);
            told.push((Vec::new(), vec![outage], sum));
        }
        assert!(!log.lasts() && log.record_charge(&LIMIT).is_none());
        let sorted = |of: fn(&Told) -> &Vec<u64>| {
            let mut all: Vec<u64> = told.iter().flat_map(of).copied().collect();
            all.sort_unstable();
            all
        };
        let begun = sorted(|told| &told.0);
        assert!(begun.len() > 1, "{told:?}");
        assert_eq!(begun, (1..).take(begun.len()).collect::<Vec<_>>());
        assert_eq!(begun, sorted(|told| &told.1));
        let sums = [0, 1].map(|nth| told.iter().map(|told| told.2[nth]).sum::<u64>());
        assert_eq!(sums, [4_000; 2]);
    }

    /// Each decision of a cluster with one node down took the lock of the limiter.
    #[tokio::test(start_paused = true)]
    async fn a_charge_in_the_quiet_minute_takes_no_lock() {
        let log = FailureLog::default();
        log.record(&LIMIT, &BackendError::unavailable("store", "it is down"), Undecided::Call);
        for _ in 0..59 {
            tokio::time::advance(Duration::from_secs(1)).await;
            let held = lock(&log.state);
            assert!(log.record_charge(&LIMIT).is_none());
            drop(held);
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(log.record_charge(&LIMIT).map(|told| recovery(&told).0), Some(1));
    }
}
