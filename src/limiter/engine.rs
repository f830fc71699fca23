//! The engine: every decision of the crate goes through it, and only it knows the stores.

#[cfg(feature = "memory")]
use std::any::Any;
use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::Limit;
use super::demand::{Demand, Mode, check_sums, draw_all_shards};
use super::grant::Grant;
use super::queue::QueueRegistry;
use super::random::Random;
use super::rate_limited::RateLimited;
use super::shared_resets::SharedResets;
use super::snapshot::Level;
use crate::algebra::Verdict;
use crate::backend::{Adjustment, Answer, Applied, Backend, BackendError, Charge, Reading};
#[cfg(feature = "memory")]
use crate::backend::{LineTicket, LineWaiter, Memory};
use crate::clock::Timestamp;

/// Decides, for each request, whether its work may run now.
///
/// A limiter is a handle: clones share its buckets. It needs no list of limits. Every
/// [`Limit`] names itself at the call, and two that share a name share their buckets.
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
/// // A limit that all callers share, built where it is needed. A refusal leaves by `?`.
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
#[derive(Debug)]
struct LimiterState {
    store: Store,
    queues: Arc<QueueRegistry>,
    random: Random,
    /// The resets that were made through this limiter; the memory store counts its own.
    resets: Arc<SharedResets>,
}

/// Where the buckets of a limiter are.
#[derive(Debug)]
enum Store {
    /// This process: called without an indirection, so that a decision is one piece of code.
    #[cfg(feature = "memory")]
    Memory(Arc<Memory>),
    Other(Arc<dyn Backend>),
}

impl RateLimiter {
    /// A limiter that keeps its buckets in `backend`.
    #[must_use]
    pub fn new(backend: impl Backend) -> Self {
        let store = Store::new(backend);
        let queues = Arc::new(QueueRegistry::new(store.share()));
        let (random, resets) = Default::default();
        Self { shared: Arc::new(LimiterState { store, queues, random, resets }) }
    }

    /// A limiter that keeps its buckets in this process, at most
    /// [`Memory::MAX_KEYS`](crate::backend::Memory::MAX_KEYS) of them.
    ///
    /// Two of them share nothing, so one that is made for each request limits nothing. Make one
    /// when the program starts, and hand out clones.
    #[doc(alias = "direct")]
    #[doc(alias = "keyed")]
    #[cfg(feature = "memory")]
    #[must_use]
    pub fn in_memory() -> Self {
        Self::new(Memory::new())
    }

    /// Draws all jitter, the shards that pay and the requests of a sample from this seed from here
    /// on, so that a test gets the same in each run.
    ///
    /// The clones of a limiter draw from one sequence.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        self.shared.random.reseed(seed);
        self
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        self.shared.store.backend()
    }

    /// The store, if it is the one of this process.
    #[cfg(feature = "memory")]
    #[inline]
    pub(crate) fn memory(&self) -> Option<&Arc<Memory>> {
        match &self.shared.store {
            Store::Memory(memory) => Some(memory),
            Store::Other(_) => None,
        }
    }

    /// Whether the waiters stand in lines of the store, and have what comes back.
    pub(crate) fn has_lines(&self) -> bool {
        #[cfg(feature = "memory")]
        return self.memory().is_some();
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

    /// Asks the store: all demands or none of them. An [`Outcome`] is made of what it answers.
    ///
    /// # Errors
    ///
    /// If a cost is more than `longest`, the most patient mode that the caller would try, could
    /// ever be granted. The store is not asked then.
    #[inline(always)]
    pub(crate) fn submit<L: Borrow<Limit>>(
        &self,
        demands: &mut [Demand<L>],
        mode: Mode,
        longest: Mode,
    ) -> Result<Answer<Applied>, RateLimited> {
        // The memory store counts the resets itself.
        if !self.has_lines() {
            let mark = self.shared.resets.mark();
            demands.iter_mut().for_each(|demand| demand.asked_at = mark);
        }
        draw_all_shards(demands, self.random(), longest)?;
        self.apply(demands, mode, longest)
    }

    /// As [`submit`](Self::submit), of the store of this process: no list of charges is made for
    /// it.
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit).
    #[cfg(feature = "memory")]
    #[inline(always)]
    pub(super) fn submit_here<L: Borrow<Limit>>(
        &self,
        memory: &Memory,
        demands: &mut [Demand<L>],
    ) -> Result<Applied, RateLimited> {
        draw_all_shards(demands, self.random(), Mode::Take)?;
        memory.charge_all(demands.iter().map(|demand| demand.charge(Mode::Take, Mode::Take)))
    }

    /// As [`submit`](Self::submit), of the shards that the demands name already.
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit).
    pub(crate) fn charge<L: Borrow<Limit>>(
        &self,
        demands: &[Demand<L>],
        mode: Mode,
        longest: Mode,
    ) -> Result<Answer<Applied>, RateLimited> {
        check_sums(demands, longest)?;
        self.apply(demands, mode, longest)
    }

    /// Takes all demands, into debt if need be, or none of them. Where the answer is a reservation,
    /// the request stands in line, so that other requests of this process come after it.
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit).
    #[cfg(feature = "memory")]
    pub(crate) fn reserve<L: Borrow<Limit>>(
        &self,
        memory: &Memory,
        demands: &mut [Demand<L>],
        [mode, longest]: [Mode; 2],
        drained_by: Option<&Arc<QueueRegistry>>,
    ) -> Result<(Applied, Option<LineTicket>), RateLimited> {
        draw_all_shards(demands, self.random(), longest)?;
        let mut charges = SmallVec::<[Charge<'_>; 2]>::new();
        for demand in demands.iter() {
            charges.push(demand.charge(mode, longest)?);
        }
        let waiter = || LineWaiter::new(drained_by.and_then(QueueRegistry::id));
        Ok(memory.reserve(&charges, waiter))
    }

    /// Gives units back: in a store that other processes take from too, to the waiters of this one
    /// first.
    pub(crate) fn give_back(&self, adjustments: &mut [Adjustment<'_>]) -> Answer<Applied> {
        match &self.shared.store {
            #[cfg(feature = "memory")]
            Store::Memory(memory) => memory.adjust(adjustments),
            Store::Other(_) => {
                for adjustment in adjustments.iter_mut() {
                    *adjustment = self.shared.resets.owed(*adjustment);
                }
                self.queues().give_back(adjustments)
            }
        }
    }

    #[inline(always)]
    fn apply<L: Borrow<Limit>>(
        &self,
        demands: &[Demand<L>],
        mode: Mode,
        longest: Mode,
    ) -> Result<Answer<Applied>, RateLimited> {
        if let [demand] = demands {
            return Ok(self.backend().apply(&[demand.charge(mode, longest)?]));
        }
        let mut charges = SmallVec::<[Charge<'_>; 8]>::new();
        for demand in demands {
            let units = demand.units(longest)?;
            charges.push(demand.charge_of(units, mode));
        }
        Ok(self.backend().apply(&charges))
    }
}

impl Store {
    fn new(backend: impl Backend) -> Self {
        let backend = Arc::new(backend);
        #[cfg(feature = "memory")]
        {
            let any: Arc<dyn Any + Send + Sync> = backend.clone();
            // Limiters that share a store share its lines.
            if let Some(shared) = any.downcast_ref::<Arc<Memory>>() {
                return Self::Memory(Arc::clone(shared));
            }
            if let Ok(memory) = any.downcast() {
                return Self::Memory(memory);
            }
        }
        Self::Other(backend)
    }

    fn backend(&self) -> &dyn Backend {
        match self {
            #[cfg(feature = "memory")]
            Self::Memory(memory) => &**memory,
            Self::Other(backend) => &**backend,
        }
    }

    fn share(&self) -> Arc<dyn Backend> {
        match self {
            #[cfg(feature = "memory")]
            Self::Memory(memory) => Arc::<Memory>::clone(memory),
            Self::Other(backend) => Arc::clone(backend),
        }
    }
}

/// A complete answer to some demands: every bucket that they name has a reading.
///
/// The demands that it is read with are those that it was made with.
#[derive(Clone, Debug)]
pub(crate) struct Outcome(Applied);

impl Outcome {
    /// What a store has answered, if it is complete.
    ///
    /// # Errors
    ///
    /// If the store has left a bucket out, or answered for others.
    #[inline]
    pub(crate) fn new<L: Borrow<Limit>>(
        demands: &[Demand<L>],
        applied: Applied,
    ) -> Result<Self, BackendError> {
        if !is_complete(demands, &applied) {
            return Err(BackendError::incomplete());
        }
        Ok(Self(applied))
    }

    /// What one bucket has answered to one demand.
    #[inline]
    pub(crate) const fn one(now: Timestamp, reading: Reading) -> Self {
        Self(Applied::one(now, reading))
    }

    #[inline]
    pub(crate) fn verdict(&self) -> Verdict {
        self.0.verdict()
    }

    /// Until every bucket has what was asked of it.
    #[inline]
    pub(crate) fn wait(&self) -> Duration {
        self.0.wait()
    }

    pub(crate) const fn at(&self) -> Timestamp {
        self.0.now()
    }

    /// Each demand with the readings of its buckets: one, or two for a limit in shards.
    pub(crate) fn each<'x, L: Borrow<Limit>>(
        &'x self,
        demands: &'x [Demand<L>],
    ) -> impl Iterator<Item = (&'x Demand<L>, &'x [Reading])> + Clone {
        let mut rest = self.0.readings();
        demands.iter().map(move |demand| (demand, next_readings(demand, &mut rest)))
    }

    /// How the limit of the only demand stands.
    #[inline]
    pub(crate) fn level<L: Borrow<Limit>>(&self, demand: &Demand<L>) -> Level {
        Level::new(demand.limit(), self.0.readings(), demand.cost, self.at())
    }

    /// How the limit of each demand stands.
    pub(crate) fn levels<'x, L: Borrow<Limit>>(
        &'x self,
        demands: &'x [Demand<L>],
    ) -> impl Iterator<Item = (&'x Demand<L>, Level)> + Clone {
        self.each(demands).map(|(demand, readings)| {
            (demand, Level::new(demand.limit(), readings, demand.cost, self.at()))
        })
    }

    /// What each demand was granted.
    pub(crate) fn grants<'x, L: Borrow<Limit>>(
        &'x self,
        demands: impl Iterator<Item = Demand<L>> + 'x,
    ) -> impl Iterator<Item = Grant<L>> + 'x {
        let mut rest = self.0.readings();
        demands.map(move |demand| {
            let readings = next_readings(&demand, &mut rest);
            Grant::new(demand, readings, self.at())
        })
    }

    /// The refusal, of those limits that made it one.
    pub(crate) fn refusal<L: Borrow<Limit>>(
        &self,
        demands: &[Demand<L>],
        jitter: Duration,
    ) -> Option<RateLimited> {
        let verdict = self.verdict();
        let refused = self.levels(demands).filter(|(_, level)| level.verdict == verdict);
        let mut refused = refused.map(|(demand, level)| (demand.limit(), level));
        let (first, retry_after) = (refused.next()?, self.wait().saturating_add(jitter));
        Some(RateLimited::refused_by_several(first, refused, retry_after))
    }
}

/// Whether a store has answered for the buckets of these demands, and no others.
#[inline]
pub(super) fn is_complete<L: Borrow<Limit>>(demands: &[Demand<L>], applied: &Applied) -> bool {
    let buckets = demands.iter().map(Demand::bucket_count).sum::<usize>();
    buckets != 0 && applied.readings().len() == buckets
}

/// The readings of this demand, split off from those of all that follow.
pub(super) fn next_readings<'x, L: Borrow<Limit>>(
    demand: &Demand<L>,
    rest: &mut &'x [Reading],
) -> &'x [Reading] {
    let (readings, others) = rest.split_at_checked(demand.bucket_count()).unwrap_or((*rest, &[]));
    *rest = others;
    readings
}
