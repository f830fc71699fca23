//! The engine: every decision of the crate goes through it, and only it knows the stores.

#[cfg(feature = "memory")]
use std::any::Any;
#[cfg(all(feature = "memory", feature = "tracing"))]
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use super::events::Observers;
use super::failure_log::FailureLog;
use super::limit::{REFUSALS, derived_name};
use super::limit_uses::LimitUses;
use super::off::Off;
use super::queue::QueueRegistry;
use super::random::Random;
use super::replacements::Replacements;
use super::shared_resets::SharedResets;
use super::snapshot::Speech;
#[cfg(feature = "memory")]
use crate::backend::Memory;
use crate::backend::{
    Adjustment, Answer, Applied, Backend, BucketId, OnFailure, Origin, OwnedAdjustment,
};

/// Decides, for each request, whether its work may run now.
///
/// A limiter is a handle: clones share its buckets. It needs no list of limits. Each call names its
/// [`Limit`](super::Limit), and limits of the same name share their buckets.
///
/// # Examples
///
/// ```
/// use tollgate::{HOUR, Limit, Quota, RateLimited, RateLimiter};
///
/// const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), RateLimited> {
/// let limiter = RateLimiter::in_memory();
/// if let Err(refused) = limiter.limit(&LOGIN).key("alice").await {
///     println!("come back in {:?}", refused.retry_after());
/// }
///
/// // A limit that all callers share, built where it is needed. `?` returns a refusal.
/// let sign_ups = Limit::new("sign-ups", Quota::fixed_window(1_000, HOUR));
/// let permit = limiter.limit(&sign_ups).await?;
/// assert_eq!(permit.remaining(), 999);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RateLimiter {
    pub(crate) state: Arc<LimiterState>,
}

/// What the clones of a limiter share.
#[derive(Clone, Debug)]
pub(crate) struct LimiterState {
    pub(crate) backend: Arc<dyn Backend>,
    /// The same, if it is in this process. Called without dynamic dispatch, so that a decision can be
    /// inlined.
    #[cfg(feature = "memory")]
    memory: Option<Arc<Memory>>,
    pub(crate) queues: Arc<QueueRegistry>,
    pub(crate) random: Random,
    /// The resets that were made through this limiter. The memory store records its own.
    pub(super) resets: Arc<SharedResets>,
    pub(super) failures: Arc<FailureLog>,
    /// What its layers and calls make of its limits; the same of all its handles.
    pub(crate) uses: Arc<LimitUses>,
    /// The numbers in force, for all handles of the limiter.
    pub(crate) replacements: Arc<Replacements>,
    /// What its calls and layers do unless they say otherwise, from here on. Handles may differ in that.
    pub(crate) on_failure: OnFailure,
    pub(crate) speech: Speech,
    /// Whether the limiter admits everything and counts nothing.
    pub(crate) is_off: bool,
    pub(crate) observers: Option<Arc<Observers>>,
    /// The limiter that admits everything in place of this one, once it was needed.
    off: OnceLock<RateLimiter>,
}

impl LimiterState {
    fn new(backend: impl Backend) -> Self {
        let backend = Arc::new(backend);
        #[cfg(feature = "memory")]
        let memory = {
            let any: Arc<dyn Any + Send + Sync> = backend.clone();
            // Limiters that share a memory store share its lines.
            let shared = any.downcast_ref().cloned();
            shared.or_else(|| {
                let memory = any.downcast().ok()?;
                #[cfg(feature = "tracing")]
                count_memory_store();
                Some(memory)
            })
        };
        let backend: Arc<dyn Backend> = backend;
        #[cfg(feature = "memory")]
        let backend = memory.clone().map_or(backend, |memory: Arc<Memory>| memory);
        let resets = Arc::<SharedResets>::default();
        let queues = Arc::new(QueueRegistry::new(Arc::clone(&backend), Arc::clone(&resets)));
        let (random, failures, uses, replacements, on_failure, speech) = Default::default();
        Self {
            backend,
            #[cfg(feature = "memory")]
            memory,
            queues,
            random,
            resets,
            failures,
            uses,
            replacements,
            on_failure,
            speech,
            is_off: false,
            observers: None,
            off: OnceLock::new(),
        }
    }
}

impl RateLimiter {
    /// Makes a limiter that keeps its buckets in `backend`.
    #[must_use]
    pub fn new(backend: impl Backend) -> Self {
        Self::of(LimiterState::new(backend))
    }

    fn of(state: LimiterState) -> Self {
        Self { state: Arc::new(state) }
    }

    /// Makes a limiter with the defaults and the [replaced](Self::replace) numbers of this one that
    /// keeps its buckets in another store: a transaction of a database, say, or the store of a test.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "memory")] {
    /// use tollgate::backend::Memory;
    /// use tollgate::{OnFailure, RateLimiter};
    ///
    /// let limiter = RateLimiter::in_memory().on_failure(OnFailure::Admit);
    /// let small = limiter.with_backend(Memory::new().max_keys(1_000));
    /// # drop(small);
    /// # }
    /// ```
    #[must_use]
    pub fn with_backend(&self, backend: impl Backend) -> Self {
        if self.state.is_off {
            return self.clone();
        }
        let LimiterState { uses, replacements, on_failure, speech, observers, .. } =
            LimiterState::clone(&self.state);
        let (uses, new) = (Arc::new(uses.elsewhere()), LimiterState::new(backend));
        Self::of(LimiterState { uses, replacements, on_failure, speech, observers, ..new })
    }

    /// A handle with other defaults. It shares everything else.
    pub(crate) fn with_defaults(&self, change: impl FnOnce(&mut LimiterState)) -> Self {
        let off = OnceLock::new();
        let mut state = LimiterState { off, ..LimiterState::clone(&self.state) };
        change(&mut state);
        Self::of(state)
    }

    /// The limiter that admits everything in place of this one, with the same defaults.
    pub(super) fn switched_off(&self) -> Self {
        if self.state.is_off {
            return self.clone();
        }
        let off = || {
            let LimiterState { on_failure, speech, replacements, .. } = &*self.state;
            let (speech, replacements) = (speech.silenced(), Arc::clone(replacements));
            let (on_failure, new) = (*on_failure, LimiterState::new(Off::default()));
            Self::of(LimiterState { on_failure, speech, replacements, is_off: true, ..new })
        };
        self.state.off.get_or_init(off).clone()
    }

    /// Makes a limiter that keeps its buckets in this process.
    ///
    /// It keeps at most [`Memory::MAX_KEYS`](crate::backend::Memory::MAX_KEYS) of them. Two such
    /// limiters share nothing, so one that is made for each request limits nothing. Make one when
    /// the program starts, and clone it.
    #[doc(alias("direct", "keyed"))]
    #[cfg(feature = "memory")]
    #[must_use]
    pub fn in_memory() -> Self {
        Self::new(Memory::new())
    }

    /// Seeds the random numbers of this limiter and its clones.
    ///
    /// With a fixed seed, a test gets the same numbers in each run. They decide the jitter, which
    /// shards pay, and which requests are in a sample. The clones draw from one sequence.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        self.state.random.reseed(seed);
        self
    }

    /// The memory store; `None` if the limiter has another one.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RateLimiter;
    ///
    /// let limiter = RateLimiter::in_memory();
    /// assert_eq!(limiter.memory().unwrap().evicted(), 0);
    /// ```
    #[cfg(feature = "memory")]
    #[inline]
    #[must_use]
    pub fn memory(&self) -> Option<&Arc<Memory>> {
        self.state.memory.as_ref()
    }

    /// The memory store in whose lines waiters stand: that of the limiter, or of a wrapper.
    #[cfg(feature = "memory")]
    pub(crate) fn lines(&self) -> Option<&Memory> {
        match self.memory() {
            Some(memory) => Some(memory),
            None => self.state.backend.lines(),
        }
    }

    /// Whether waiters stand in lines of the store, which gives them returned tokens by itself.
    pub(crate) fn has_lines(&self) -> bool {
        #[cfg(feature = "memory")]
        return self.lines().is_some();
        #[cfg(not(feature = "memory"))]
        false
    }

    /// Returns units, or takes more of them. With a store that other processes use as well, the
    /// waiters of this process get first what is returned.
    pub(crate) fn give_back(&self, adjustments: &mut [Adjustment<'_>]) -> Answer<Applied> {
        let answer = self.give_back_unwatched(adjustments);
        self.watch_debts(adjustments, answer)
    }

    fn give_back_unwatched(&self, adjustments: &mut [Adjustment<'_>]) -> Answer<Applied> {
        #[cfg(feature = "memory")]
        if let Some(memory) = self.memory() {
            return memory.adjust(adjustments);
        }
        if self.has_lines() {
            return self.state.backend.adjust(adjustments);
        }
        for adjustment in adjustments.iter_mut() {
            *adjustment = self.state.resets.owed(*adjustment);
        }
        // Waiters stand in line for the store. What was paid elsewhere is not for them.
        if adjustments.iter().any(|one| one.origin() != Origin::Store) {
            return self.state.backend.adjust(adjustments);
        }
        self.state.queues.give_back(adjustments)
    }

    /// Makes these buckets as if they had never been used, and begins to count their refusals again.
    pub(super) fn forget(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        let is_counted =
            |id: &&BucketId<'_>| id.shard_index() == 0 && self.state.uses.are_counted(id.limit());
        let counted =
            ids.iter().filter(is_counted).map(|id| (derived_name(id.limit(), REFUSALS), id.key()));
        let counted: Vec<_> = counted.collect();
        let counts = counted.iter().map(|(name, key)| BucketId::new(name, key));
        let ids: &SmallVec<[BucketId<'_>; 4]> = &ids.iter().copied().chain(counts).collect();
        if self.has_lines() {
            // The memory store records resets itself.
            return self.state.backend.reset(ids);
        }
        self.state.resets.record_around(ids, || self.state.backend.reset(ids))
    }

    /// Makes the log tell if a bucket cannot owe all that these adjustments take from it.
    pub(super) fn watch_debts(
        &self,
        adjustments: &[Adjustment<'_>],
        answer: Answer<Applied>,
    ) -> Answer<Applied> {
        match answer {
            Answer::Ready(answer) => Answer::Ready(answer.inspect(|applied| {
                self.state.uses.note_debts(adjustments.iter().copied(), applied);
            })),
            Answer::Pending(_) if adjustments.iter().any(Adjustment::takes) => {
                let uses = Arc::clone(&self.state.uses);
                let taken: SmallVec<[OwnedAdjustment; 1]> =
                    adjustments.iter().map(|one| one.into_owned()).collect();
                answer.map(move |applied| {
                    uses.note_debts(taken.iter().map(OwnedAdjustment::as_adjustment), &applied);
                    applied
                })
            }
            pending @ Answer::Pending(_) => pending,
        }
    }
}

/// Warns if a process makes many limiters in memory: one for each request limits nothing, and no other
/// sign of it reaches anybody.
#[cfg(all(feature = "memory", feature = "tracing"))]
fn count_memory_store() {
    static MADE: AtomicU32 = AtomicU32::new(0);
    // As many requests as the other checks of a set-up wait for.
    const MANY: u32 = 1_000;
    if MADE.fetch_add(1, Ordering::Relaxed) == MANY - 1 {
        let warning = "this process has made many limiters in memory, and each counts for itself: one \
                       that is made for each request limits nothing (make one when the program \
                       starts, and clone it; if each is meant to have limits of its own, as one for \
                       each connection or test, nothing is wrong)";
        tracing::warn!(made = MANY, warning, "possible misconfiguration (logged once)");
    }
}
