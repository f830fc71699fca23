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
    shared: Arc<LimiterState>,
}

/// What the clones of a limiter share.
#[derive(Clone, Debug)]
struct LimiterState {
    backend: Arc<dyn Backend>,
    /// The same, if it is in this process. Called without dynamic dispatch, so that a decision can be
    /// inlined.
    #[cfg(feature = "memory")]
    memory: Option<Arc<Memory>>,
    queues: Arc<QueueRegistry>,
    random: Random,
    /// The resets that were made through this limiter. The memory store records its own.
    resets: Arc<SharedResets>,
    failures: Arc<FailureLog>,
    uses: Arc<LimitUses>,
    /// The numbers that limits have in place of their own.
    replacements: Arc<Replacements>,
    defaults: Defaults,
    /// The limiter that admits everything in place of this one, once it was needed.
    off: OnceLock<RateLimiter>,
}

/// What its calls and layers do unless they say otherwise. Handles may differ in that.
#[derive(Clone, Debug, Default)]
pub(super) struct Defaults {
    pub(super) on_failure: OnFailure,
    pub(super) speech: Speech,
    /// Whether the limiter admits everything and counts nothing.
    pub(super) is_off: bool,
    pub(super) observers: Option<Arc<Observers>>,
}

impl RateLimiter {
    /// Makes a limiter that keeps its buckets in `backend`.
    #[must_use]
    pub fn new(backend: impl Backend) -> Self {
        Self::with_parts(backend, Arc::default(), Arc::default(), Defaults::default())
    }

    fn with_parts(
        backend: impl Backend,
        uses: Arc<LimitUses>,
        replacements: Arc<Replacements>,
        defaults: Defaults,
    ) -> Self {
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
        let (random, resets, failures, off): (_, Arc<SharedResets>, _, _) = Default::default();
        let queues = Arc::new(QueueRegistry::new(Arc::clone(&backend), Arc::clone(&resets)));
        let shared = LimiterState {
            backend,
            #[cfg(feature = "memory")]
            memory,
            queues,
            random,
            resets,
            failures,
            uses,
            replacements,
            defaults,
            off,
        };
        Self { shared: Arc::new(shared) }
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
        if self.is_off() {
            return self.clone();
        }
        let LimiterState { uses, replacements, defaults, .. } = &*self.shared;
        let uses = Arc::new(uses.elsewhere());
        Self::with_parts(backend, uses, Arc::clone(replacements), defaults.clone())
    }

    /// A handle with other defaults. It shares everything else.
    pub(super) fn with_defaults(&self, change: impl FnOnce(&mut Defaults)) -> Self {
        let off = OnceLock::new();
        let mut state = LimiterState { off, ..LimiterState::clone(&self.shared) };
        change(&mut state.defaults);
        Self { shared: Arc::new(state) }
    }

    /// The limiter that admits everything in place of this one, with the same defaults.
    pub(super) fn switched_off(&self) -> Self {
        if self.is_off() {
            return self.clone();
        }
        let off = || {
            let Defaults { on_failure, speech, .. } = &self.shared.defaults;
            let (on_failure, speech) = (*on_failure, speech.silenced());
            let defaults = Defaults { on_failure, speech, is_off: true, observers: None };
            let replacements = Arc::clone(&self.shared.replacements);
            Self::with_parts(Off::default(), Arc::default(), replacements, defaults)
        };
        self.shared.off.get_or_init(off).clone()
    }

    /// Whether it admits everything and counts nothing.
    #[inline]
    pub(crate) fn is_off(&self) -> bool {
        self.shared.defaults.is_off
    }

    pub(super) fn defaults(&self) -> &Defaults {
        &self.shared.defaults
    }

    pub(super) fn failures(&self) -> &FailureLog {
        &self.shared.failures
    }

    /// What its layers and calls make of its limits; the same of all its handles.
    pub(crate) fn uses(&self) -> &Arc<LimitUses> {
        &self.shared.uses
    }

    /// The numbers in force, for all handles of the limiter.
    #[inline(always)]
    pub(crate) fn replacements(&self) -> &Replacements {
        &self.shared.replacements
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
        self.shared.random.reseed(seed);
        self
    }

    pub(crate) fn backend(&self) -> &Arc<dyn Backend> {
        &self.shared.backend
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
        self.shared.memory.as_ref()
    }

    /// The memory store in whose lines waiters stand: that of the limiter, or of a wrapper.
    #[cfg(feature = "memory")]
    pub(crate) fn lines(&self) -> Option<&Memory> {
        match self.memory() {
            Some(memory) => Some(memory),
            None => self.backend().lines(),
        }
    }

    /// Whether waiters stand in lines of the store, which gives them returned tokens by itself.
    pub(crate) fn has_lines(&self) -> bool {
        #[cfg(feature = "memory")]
        return self.lines().is_some();
        #[cfg(not(feature = "memory"))]
        false
    }

    pub(crate) fn random(&self) -> &Random {
        &self.shared.random
    }

    pub(super) fn resets(&self) -> &Arc<SharedResets> {
        &self.shared.resets
    }

    pub(crate) fn queues(&self) -> &Arc<QueueRegistry> {
        &self.shared.queues
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
            return self.backend().adjust(adjustments);
        }
        for adjustment in adjustments.iter_mut() {
            *adjustment = self.resets().owed(*adjustment);
        }
        // Waiters stand in line for the store. What was paid elsewhere is not for them.
        if adjustments.iter().any(|one| one.origin() != Origin::Store) {
            return self.backend().adjust(adjustments);
        }
        self.queues().give_back(adjustments)
    }

    /// Makes these buckets as if they had never been used, and begins to count their refusals again.
    pub(super) fn forget(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        let is_counted =
            |id: &&BucketId<'_>| id.shard_index() == 0 && self.uses().are_counted(id.limit());
        let counted =
            ids.iter().filter(is_counted).map(|id| (derived_name(id.limit(), REFUSALS), id.key()));
        let counted: Vec<_> = counted.collect();
        let counts = counted.iter().map(|(name, key)| BucketId::new(name, key));
        let ids: &SmallVec<[BucketId<'_>; 4]> = &ids.iter().copied().chain(counts).collect();
        if self.has_lines() {
            // The memory store records resets itself.
            return self.backend().reset(ids);
        }
        self.resets().record_around(ids, || self.backend().reset(ids))
    }

    /// Makes the log tell if a bucket cannot owe all that these adjustments take from it.
    pub(super) fn watch_debts(
        &self,
        adjustments: &[Adjustment<'_>],
        answer: Answer<Applied>,
    ) -> Answer<Applied> {
        match answer {
            Answer::Ready(answer) => Answer::Ready(answer.inspect(|applied| {
                self.uses().note_debts(adjustments.iter().copied(), applied);
            })),
            Answer::Pending(_) if adjustments.iter().any(Adjustment::takes) => {
                let uses = Arc::clone(self.uses());
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
