//! Who hears of a limiter: the trait of observers, those of a handle, and what they hear of a request
//! in a queue.

use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::decision::{Decision, DecisionSource};
use super::queue_change::{QueueChange, QueueStep};
use super::store_health::StoreHealth;
use crate::limiter::Limit;

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
/// | peeks, resets, penalties, blocks by a call, settlements | they decide nothing; their failures are told |
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

    /// A key was refused too often, and [`Rule::block_after`](crate::Rule::block_after) has blocked it for
    /// this time.
    fn on_block(&self, limit: &Limit, time: Duration) {
        let _ = (limit, time);
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

    fn on_block(&self, limit: &Limit, time: Duration) {
        (**self).on_block(limit, time);
    }
}

/// The observers of a handle; at least one.
#[derive(Clone)]
pub(crate) struct Observers {
    all: Vec<Arc<dyn Observer>>,
    /// Whether a panic of one of them was logged.
    has_panicked: Arc<AtomicBool>,
}

impl Observers {
    /// The same with one more.
    pub(crate) fn with(before: Option<&Arc<Self>>, observer: impl Observer) -> Arc<Self> {
        let mut all = before.map(|before| before.all.clone()).unwrap_or_default();
        all.push(Arc::new(observer));
        Arc::new(Self { all, has_panicked: Arc::default() })
    }

    /// Tells all of them, unless one of them asks: it would be told of itself without end.
    ///
    /// Must not be called while a lock is held: an observer is code of others.
    pub(in crate::limiter) fn tell(&self, event: impl Fn(&dyn Observer)) {
        let place = std::ptr::from_ref(self).addr();
        let begun = TOLD.try_with(|told| {
            let mut told = told.borrow_mut();
            let is_new = !told.contains(&place);
            if is_new {
                told.push(place);
            }
            is_new
        });
        // While the thread ends, it tells without a mark.
        if begun == Ok(false) {
            return;
        }
        let mut panics = Vec::new();
        for observer in &self.all {
            // Nothing of ours is borrowed mutably by the call, so nothing is left half done.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| event(&**observer))) {
                panics.push(panic);
            }
        }
        let _ = TOLD.try_with(|told| told.borrow_mut().pop());
        // Logged and dropped after that: both run code of others, which may panic again.
        if !panics.is_empty() && !self.has_panicked.swap(true, Ordering::Relaxed) {
            #[cfg(feature = "tracing")]
            tracing::error!("an observer panicked, which changes no decision (logged once)");
        }
        drop(panics);
    }
}

thread_local! {
    /// The observers that this thread tells at the moment, each as its address.
    static TOLD: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observers({})", self.all.len())
    }
}

/// The stay of a request in a queue. Tells the observers that it [has joined](Self::join) a queue, and how
/// its stay ends. If it is dropped, the request has left.
#[derive(Debug)]
pub(crate) struct QueueStay {
    observers: Arc<Observers>,
    limit: Arc<Limit>,
    source: DecisionSource,
    since: Instant,
    /// The wait that the request was told.
    promised: Duration,
    /// How it ends.
    last_step: QueueStep,
}

impl QueueStay {
    /// The stay of a request that has just got its place in the queue of a limit, with this wait.
    pub(crate) fn new(
        observers: &Arc<Observers>,
        limit: &Arc<Limit>,
        source: DecisionSource,
        promised: Duration,
    ) -> Self {
        let (observers, limit, since) = (Arc::clone(observers), Arc::clone(limit), Instant::now());
        let last_step = QueueStep::Left;
        Self { observers, limit, source, since, promised, last_step }
    }

    /// Tells that it has begun.
    pub(crate) fn join(&self) {
        self.tell(QueueStep::Joined, Duration::ZERO, None);
    }

    /// Tells how it has ended.
    pub(crate) fn end(mut self, step: QueueStep) {
        self.last_step = step;
    }

    fn tell(&self, step: QueueStep, waited: Duration, lateness: Option<Duration>) {
        let Self { limit, source, .. } = self;
        let change = QueueChange { limit, source: *source, step, waited, lateness };
        self.observers.tell(|observer| observer.on_queue(&change));
    }
}

impl Drop for QueueStay {
    fn drop(&mut self) {
        let waited = self.since.elapsed();
        let is_served = self.last_step == QueueStep::Served;
        let lateness = is_served.then(|| waited.saturating_sub(self.promised));
        self.tell(self.last_step, waited, lateness);
    }
}
