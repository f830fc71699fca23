//! The wrapper: its settings, and what it does with each call.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;

use super::super::lease_error::{LeaseError, check};
use super::lease_clock::LeaseClock;
use super::lease_driver::{FEW, LeaseDriver, LeasedLimit};
use super::table::LeaseTable;
use tollgate::Limit;
use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BucketId, Charge, DebtorQuery, DebtorReport,
};
use tollgate::clock::Clock;
use tollgate_kit::crowd::Crowd;

/// A store in front of another, which takes the tokens of some limits in lots.
///
/// A lot is a number of tokens that the other store has charged for this node. The node serves
/// requests from it at the speed of memory, asks for the next one before it runs dry, and gives
/// back what it does not need. Only the limits that are named by [`lease`](Self::lease) work like
/// this. All others pass straight through.
///
/// Over all nodes together, a leased limit admits no more than the same limit without leasing:
/// `capacity + gain` in every window of time. The number of nodes, crashes, lost messages and
/// delays do not matter. All nodes have to lease the limit.
///
/// # What it costs
///
/// * **Bursts.** The store keeps about half of the capacity of a token bucket. The rest is held
///   back for lots that are under way. A cost above that half is an error.
/// * **Exact answers.** `remaining` is what this node holds, and `retry_after` the next instant at
///   which it may have tokens. Another node may answer differently.
/// * **Unused tokens.** What a lot holds when it becomes void is lost: nothing to speak of in
///   steady demand, and about a tenth of the quota where demand jumps between nodes all the time.
/// * **Waiting.** A leased limit cannot reserve, so it has no queues.
///
/// The guide on leasing has the figures.
///
/// Put it inside of a [`Fallback`](tollgate::backend::Fallback), never around one: a lot has to be charged by
/// the store, so no local store can stand in for it.
///
/// # Examples
///
/// ```
/// use tollgate::backend::Memory;
/// use tollgate_leasing::Leasing;
/// use tollgate::{Limit, Quota, RateLimiter, SECOND};
///
/// const HOT: Limit =
///     Limit::new("hot", Quota::token_bucket(1_000_000, SECOND).max_reserved(0));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::RateLimited> {
/// let store = Memory::new(); // in production, `Redis::connect(..).await?`
/// let limiter = RateLimiter::new(Leasing::new(store).lease(&HOT));
/// for _ in 0..1_000 {
///     limiter.limit(&HOT).await?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct Leasing<B> {
    inner: Arc<B>,
    limits: Vec<LeasedLimit>,
    max_keys: usize,
    deadline: Option<Duration>,
    clock: Option<Arc<dyn Clock>>,
    /// The runtime in which this was made.
    runtime: Option<Handle>,
    /// Made by the first call.
    driver: OnceLock<Arc<LeaseDriver<B>>>,
}

impl<B: Backend> Leasing<B> {
    /// How many buckets a node leases at most, unless [`max_keys`](Self::max_keys) says otherwise.
    pub const MAX_KEYS: usize = 16_384;

    /// Leases nothing yet: each limit is named by [`lease`](Self::lease).
    ///
    /// Trips are made by tasks of the tokio runtime of the caller, or else of that in which this is
    /// called. Without one, each request is charged at the store.
    #[must_use]
    pub fn new(store: B) -> Self {
        Self {
            inner: Arc::new(store),
            limits: Vec::new(),
            max_keys: Self::MAX_KEYS,
            deadline: None,
            clock: None,
            runtime: Handle::try_current().ok(),
            driver: OnceLock::new(),
        }
    }

    /// Leases a limit.
    ///
    /// Its numbers may change while the program runs: calls bring them along. What a node holds by
    /// other numbers is dropped.
    ///
    /// # Panics
    ///
    /// If it cannot be leased. [`try_lease`](Self::try_lease) returns the error instead.
    #[must_use]
    #[track_caller]
    pub fn lease(self, limit: &Limit) -> Self {
        match self.try_lease(limit) {
            Ok(leasing) => leasing,
            Err(error) => panic!("{error}"),
        }
    }

    /// Leases a limit whose numbers are known at run time only.
    ///
    /// # Errors
    ///
    /// If the limit
    ///
    /// * may reserve: `max_reserved` has to be 0,
    /// * has shards, which leasing replaces,
    /// * has a capacity of 0, or one so small that the store would hold less than a token,
    /// * fills in less than 40 ms, or has windows of less than 100 ms, so that a lot would not
    ///   outlive its trips,
    /// * or has lots of so short a life that the [deadline](Self::deadline) is above a quarter of
    ///   it.
    pub fn try_lease(mut self, limit: &Limit) -> Result<Self, LeaseError> {
        let name = limit.name();
        let terms = check(name, limit.quota())?;
        let longest = terms.longest_deadline();
        if let Some(deadline) = self.deadline.filter(|deadline| *deadline > longest) {
            return Err(LeaseError::deadline(name, deadline, longest));
        }
        self.limits.retain(|other| *other.name != *name);
        self.limits.push(LeasedLimit::new(name, terms));
        self.driver = OnceLock::new();
        Ok(self)
    }

    /// Sets how many buckets a node leases at most; [`MAX_KEYS`](Self::MAX_KEYS) if not set.
    ///
    /// At this bound, buckets that are hardly used make room for others. As long as there is no
    /// room, each request of a further bucket is charged at the store.
    #[must_use]
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.max_keys = keys;
        self.driver = OnceLock::new();
        self
    }

    /// Sets how long a node waits for the answer to a question; 50 ms, or a quarter of the life of
    /// a lot if that is less, unless this is set.
    ///
    /// A request that needs the answer fails then. A lot that comes later is still used.
    ///
    /// # Panics
    ///
    /// If this is more than a quarter of the life of the lots of a limit that is leased already.
    #[must_use]
    #[track_caller]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        for limit in &self.limits {
            let longest = limit.terms.longest_deadline();
            if deadline > longest {
                panic!("{}", LeaseError::deadline(&limit.name, deadline, longest));
            }
        }
        self.deadline = Some(deadline);
        self.driver = OnceLock::new();
        self
    }

    /// Sets the clock by which lots become void; one that also runs in suspension if not set.
    ///
    /// Only its rate matters. It must not differ from that of the store by more than a thousandth.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self.driver = OnceLock::new();
        self
    }

    #[inline]
    fn driver(&self) -> &Arc<LeaseDriver<B>> {
        self.driver.get_or_init(|| {
            let clock = self.clock.clone();
            Arc::new(LeaseDriver {
                inner: Arc::clone(&self.inner),
                limits: self.limits.clone(),
                table: LeaseTable::new(self.max_keys),
                clock: clock.map_or_else(LeaseClock::system, LeaseClock::other),
                deadline: self.deadline,
                runtime: self.runtime.clone().map_or_else(OnceLock::new, OnceLock::from),
                is_ticking: AtomicBool::new(false),
                callers: Crowd::more_than(FEW),
            })
        })
    }
}

impl<B: Backend> Backend for Leasing<B> {
    #[inline]
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        let driver = self.driver();
        if let [charge] = charges {
            return match driver.leased_by(charge) {
                Some(leased) => driver.take(&leased, charge),
                None => self.inner.apply(charges),
            };
        }
        match charges.iter().any(|charge| driver.leased_by(charge).is_some()) {
            true => driver.take_list(charges),
            false => self.inner.apply(charges),
        }
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        let driver = self.driver();
        let is_leased = |one: &Adjustment<'_>| driver.leased(one.id(), one.bucket()).is_some();
        match adjustments.iter().any(is_leased) {
            true => driver.change(adjustments),
            false => self.inner.adjust(adjustments),
        }
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.driver().forget_buckets(ids)
    }

    fn charges_several(&self) -> bool {
        self.inner.charges_several()
    }

    /// Lists the buckets of the store. Of a leased limit, what nodes hold in lots does not count, and
    /// a penalty that lots have paid is not on the list.
    fn debtors(&self, query: &DebtorQuery) -> Answer<DebtorReport> {
        let driver = self.driver();
        self.inner.debtors(&query.map_buckets(|bucket| {
            driver.terms_of(query.limit(), bucket).map_or(*bucket, |terms| *terms.store())
        }))
    }
}

impl<B: fmt::Debug> fmt::Debug for Leasing<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits: Vec<_> = self.limits.iter().map(|limit| &*limit.name).collect();
        f.debug_struct("Leasing")
            .field("store", &self.inner)
            .field("limits", &limits)
            .field("max_keys", &self.max_keys)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
impl<B: Backend> Leasing<B> {
    /// How many buckets the node remembers.
    pub(crate) fn records(&self) -> usize {
        self.driver().table.parts().map(|part| part.len()).sum()
    }

    /// What the lots of a bucket hold.
    pub(crate) fn held(&self, key: &tollgate::backend::Key) -> i64 {
        let driver = self.driver();
        let now = driver.clock.now();
        driver.with_record(0, key, |record| record.node.held(now)).unwrap_or(0)
    }

    /// Looks after the lots once. Returns how many records were looked at.
    pub(crate) fn tick(&self) -> usize {
        self.driver().tick().0
    }

    /// Whether a task looks after the lots.
    pub(crate) fn is_ticking(&self) -> bool {
        self.driver().is_ticking.load(std::sync::atomic::Ordering::SeqCst)
    }
}
