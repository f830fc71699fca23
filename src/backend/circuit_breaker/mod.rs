//! A circuit breaker around a store: after repeated failures it stops asking for a while.
//!
//! # Design
//!
//! ```text
//!            N failures in a row                      the pause is over
//!   closed ───────────────────────▶ open ──────────────────────────────▶ half open
//!     ▲                              ▲                                     │    │
//!     │                              └──── a probe fails: a longer pause ──┘    │
//!     └────────────────────── five probes have succeeded ───────────────────────┘
//! ```
//!
//! Half open, one call is let through. Each call that succeeds doubles how many may run at once (1,
//! 2, 4, 8, 16), so a store that has just come back is not met by all callers together.
//!
//! The file `circuit` has these rules, without a clock, a lock or a future. `pass` holds a call's
//! place in it, and gives the place back when the call is dropped.

mod circuit;
mod pass;
#[cfg(test)]
#[cfg(feature = "memory")]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use self::circuit::{Circuit, CircuitState, ProbePauses};
use self::pass::SharedCircuit;
use super::Backend;
use super::adjustment::Adjustment;
use super::answer::{Answer, Applied};
use super::charge::{BucketId, Charge};
use super::debtors::{DebtorQuery, DebtorReport};
use crate::clock::{Clock, SystemClock};

/// Stops asking a store that fails, and asks again after a pause.
///
/// A store that hangs costs each request its whole deadline. Once [this many](Self::failures) calls
/// in a row have failed, the breaker is *open*: calls fail at once, without a trip, and their error
/// says [when to come back](super::BackendError::retry_after). So a 503 has that `Retry-After`. After a
/// [pause](Self::pause) one call is let through as a probe. If it fails, the next pause is twice as
/// long, up to [`max_pause`](Self::max_pause). If it succeeds, more calls are let through, and after
/// five successes all of them.
///
/// * Only an [outage](super::BackendError::is_outage) is a failure. A refusal is an answer, and so is an
///   error of a store that is full or misconfigured. A call that the store can never decide, or that
///   was late because this process is overloaded, counts as neither.
/// * Charges, looks, adjustments and resets count alike, and each can be the probe. While the breaker
///   is open, settlements fail as well: what they would have given back stays taken.
/// * A list of [debtors](crate::RateLimiter::debtors) counts as neither, and is no probe: it fails at
///   once unless the breaker is closed.
/// * A call whose future is dropped counts as neither. A dropped probe frees its place at once.
/// * The store needs a deadline, as all engines of this crate have. A call that never ends is no
///   failure. A probe without an answer for the longest pause counts as failed.
///
/// In a cluster of which one node is down, calls to the other nodes succeed, so few failures come in
/// a row and the breaker stays closed for most of the time. Calls to that node then cost their
/// deadline.
///
/// # Order
///
/// The breaker stands directly around the store. A [`DenyCache`](super::DenyCache) goes around the
/// breaker: inside of it, refusals from the cache would count as answers of the store.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use tollgate::backend::{CircuitBreaker, Memory};
/// use tollgate::{HOUR, Limit, Quota, RateLimited, RateLimiter};
///
/// const SEARCHES: Limit = Limit::new("searches", Quota::token_bucket(100, HOUR));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), RateLimited> {
/// # let store = Memory::new();
/// let breaker = CircuitBreaker::new(store).failures(3).pause(Duration::from_millis(50));
/// let breaker = Arc::new(breaker); // kept, to look at its state
/// let limiter = RateLimiter::new(Arc::clone(&breaker));
///
/// limiter.limit(&SEARCHES).key("alice").await?;
/// assert!(breaker.is_closed());
/// # Ok(())
/// # }
/// ```
#[doc(alias("bulkhead", "fuse", "trip"))]
#[derive(Debug)]
pub struct CircuitBreaker<B> {
    inner: B,
    failures: u32,
    pauses: ProbePauses,
    circuit: Arc<SharedCircuit>,
}

impl<B: Backend> CircuitBreaker<B> {
    /// Puts a closed breaker around a store.
    #[must_use]
    pub fn new(store: B) -> Self {
        let pauses = ProbePauses { first: FIRST_PAUSE, longest: LONGEST_PAUSE };
        let circuit = Circuit::new(FAILURES, pauses);
        let circuit = SharedCircuit::new(circuit, Arc::new(SystemClock::new()));
        Self { inner: store, failures: FAILURES, pauses, circuit: Arc::new(circuit) }
    }

    /// Sets after how many failures in a row the breaker opens; 5 if not set. Zero counts as one.
    ///
    /// With more, more requests wait for their deadline before the breaker opens. With fewer, a
    /// short fault opens it that a few late answers would have bridged.
    #[doc(alias("failure_threshold", "max_failures"))]
    #[must_use]
    pub fn failures(mut self, failures: u32) -> Self {
        self.failures = failures.max(1);
        self.renewed()
    }

    /// Sets the first pause before a probe; 100 ms if not set. Each failed probe doubles it.
    #[doc(alias("reset_timeout", "open_timeout", "backoff"))]
    #[must_use]
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pauses.first = pause;
        self.renewed()
    }

    /// Sets the longest pause between two probes; 5 seconds if not set. A store that is back is used
    /// again after that time at the latest.
    #[must_use]
    pub fn max_pause(mut self, pause: Duration) -> Self {
        self.pauses.longest = pause;
        self.renewed()
    }

    /// Sets the clock that measures the pauses; [`SystemClock`] if not set. Tests set another.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        let circuit = Circuit::new(self.failures, self.pauses);
        self.circuit = Arc::new(SharedCircuit::new(circuit, Arc::new(clock)));
        self
    }

    /// Whether the next call will find the breaker closed: the store works, and all calls go to it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state() == CircuitState::Closed
    }

    /// Whether the next call will find the breaker open: the store has failed, and calls fail at once
    /// until the pause is over.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state() == CircuitState::Open
    }

    /// Whether the next call will find the breaker half open: the store is being tried. Some calls go to
    /// it, and the others fail at once.
    #[must_use]
    pub fn is_half_open(&self) -> bool {
        self.state() == CircuitState::HalfOpen
    }

    fn state(&self) -> CircuitState {
        self.circuit.state()
    }

    /// The store inside.
    #[must_use]
    pub const fn get_ref(&self) -> &B {
        &self.inner
    }

    /// The breaker with its present settings. It is closed: no call was made yet.
    fn renewed(mut self) -> Self {
        let circuit = Circuit::new(self.failures, self.pauses);
        self.circuit = Arc::new(SharedCircuit::new(circuit, self.circuit.clock()));
        self
    }

    fn pass<T: Send + 'static>(&self, ask: impl FnOnce(&B) -> Answer<T>) -> Answer<T> {
        let pass = match SharedCircuit::enter(&self.circuit) {
            Ok(pass) => pass,
            Err(open) => return Answer::Ready(Err(open)),
        };
        match ask(&self.inner) {
            Answer::Ready(answer) => {
                pass.end(answer.as_ref().err());
                Answer::Ready(answer)
            }
            Answer::Pending(future) => Answer::pending(async move {
                let answer = future.await;
                pass.end(answer.as_ref().err());
                answer
            }),
        }
    }
}

impl<B: Backend> Backend for CircuitBreaker<B> {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        self.pass(|inner| inner.apply(charges))
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        self.pass(|inner| inner.adjust(adjustments))
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.pass(|inner| inner.reset(ids))
    }

    fn charges_several(&self) -> bool {
        self.inner.charges_several()
    }

    fn answers_at_once(&self) -> bool {
        self.inner.answers_at_once()
    }

    /// Asks the store while the breaker is closed, and counts as neither success nor failure: a
    /// list takes longer than a decision, and may be late where decisions are not.
    fn debtors(&self, query: &DebtorQuery) -> Answer<DebtorReport> {
        match self.circuit.open_error() {
            Some(open) => Answer::Ready(Err(open)),
            None => self.inner.debtors(query),
        }
    }
}

/// With a deadline of 50 ms and 1,000 requests a second, some 50 are under way when a store begins
/// to hang: they wait for their deadline whatever this is.
const FAILURES: u32 = 5;

/// Long enough that a store which restarts at once is not probed a dozen times meanwhile.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// How late a store that is back may be noticed.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
