//! The trait of observers.

use std::sync::Arc;

use super::decision::Decision;
use super::queue_change::QueueChange;
use super::store_health::StoreHealth;

/// Is told what a limiter does: for metrics, traces, or an audit of your own.
///
/// [`RateLimiter::observe`](crate::RateLimiter::observe) adds one to a handle. `tollgate::observe`
/// has an observer for traces (feature `tracing`), and the crate `tollgate-metrics` one for metrics.
///
/// All methods are optional. They are called by the task whose request it is, after the decision
/// and once no lock of the limiter or its store is held. So an observer that is slow makes its own
/// request slow and no other. It must not block. It may call the limiter that it observes: what it
/// asks is decided, and not told to the observers of that handle again.
///
/// **It is never told a key.** Keys are personal data, and a label for each would need memory
/// without bound.
///
/// **A panic of an observer ends in the limiter.** The decision stands, other observers are told,
/// and the next event is told again. The log has it once, at level error. With `panic = "abort"`,
/// it ends the process, as every panic does.
///
/// | not told | because |
/// |---|---|
/// | peeks, resets, penalties, blocks, settlements | they decide nothing; their failures are told |
/// | anything of a limiter that is [switched off](crate::RateLimiter::enabled) | it decides nothing |
/// | rules that do not apply to a request (`only_if`, `only_methods`, `sample`) | the request is not theirs |
/// | evictions of the memory store | they happen under a lock: read [`Memory::evicted`](crate::backend::Memory::evicted) |
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tollgate::limiter::{Decision, Outcome};
/// use tollgate::{HOUR, Limit, Observer, Quota, RateLimiter};
///
/// const LOGIN: Limit = Limit::new("login", Quota::token_bucket(1, HOUR));
///
/// #[derive(Default)]
/// struct Counts {
///     refused: AtomicU64,
/// }
///
/// impl Observer for Counts {
///     fn on_decision(&self, decision: &Decision<'_>) {
///         if decision.outcome() == Outcome::Refused {
///             self.refused.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let counts = Arc::new(Counts::default());
/// let limiter = RateLimiter::in_memory().observe(Arc::clone(&counts));
/// for _ in 0..3 {
///     drop(limiter.limit(&LOGIN).key("alice").await);
/// }
/// assert_eq!(counts.refused.load(Ordering::Relaxed), 2);
/// # }
/// ```
#[doc(alias("Instrumentation", "hook", "listener", "on_limit_reached", "metrics"))]
pub trait Observer: Send + Sync + 'static {
    /// A limit has decided about a request. A request over several limits has a decision for each,
    /// in the order in which they were named.
    fn on_decision(&self, decision: &Decision<'_>) {
        let _ = decision;
    }

    /// A request has joined a queue or left it: that of a layer, or a reservation of a handler.
    ///
    /// A request that leaves because its future is dropped is told from the destructor.
    fn on_queue(&self, change: &QueueChange<'_>) {
        let _ = change;
    }

    /// The store has answered, failed or recovered.
    fn on_store(&self, health: &StoreHealth<'_>) {
        let _ = health;
    }
}

/// Tells what is inside, so that the program can keep a handle.
impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn on_decision(&self, decision: &Decision<'_>) {
        (**self).on_decision(decision);
    }

    fn on_queue(&self, change: &QueueChange<'_>) {
        (**self).on_queue(change);
    }

    fn on_store(&self, health: &StoreHealth<'_>) {
        (**self).on_store(health);
    }
}
