//! The memory store: buckets in this process, in shards, up to a bound.
//!
//! # Design
//!
//! | file | what it has |
//! |---|---|
//! | `shards`, `shard` | the locks, and what happens under one of them |
//! | `fingerprint`, `table`, `quota_table` | a bucket's name as a hash, its slot, and its quota |
//! | `eviction`, `rank` | which bucket goes when a shard is full |
//! | `several`, `several_charges`, `lock_set` | calls on several buckets |
//! | `debtors`, `names` | how many buckets are in debt or blocked; which, if the store keeps keys |
//! | `line`, `lines`, `waiter`, `waiting` | requests that wait for a bucket |
//! | `dump`, `shard_copy`, `shard_load` | all buckets as bytes, for the next process |
//!
//! A bucket takes 32 bytes, whatever the length of its key. Its name is [hashed](fingerprint) with
//! keys that are random for each store, so a client cannot choose names that collide. 96 bits of
//! the hash stand for the name: 32 of them pick the shard, and the others the slot.
//!
//! A shard is an open-addressing [table] behind a lock. A bucket is found, decided and
//! written under one lock, so it cannot be dropped between the read and the write. A call on
//! several buckets holds [all their locks](lock_set), which are always taken in the same order.
//! There are enough shards for each to stay small, so a pause (a table that grows, an eviction that
//! scans) is as short with ten million keys as with ten thousand.
//!
//! Each new bucket sweeps the next few slots of its shard, and drops the buckets that are full
//! again. If the shard is at its bound nevertheless, it [evicts](eviction) a bucket of the quota
//! that holds the most: the one that has used the smallest share of its capacity. A bucket with
//! waiters is not evicted.
//!
//! Requests that wait stand in the [line](mod@line) of their bucket, beside the table. A bucket without
//! waiters pays nothing for it.

mod clock_source;
mod contract;
mod debtors;
mod dump;
mod eviction;
mod fingerprint;
mod known_names;
mod line;
mod lines;
mod lock_set;
mod names;
mod quota_table;
mod rank;
mod several;
mod several_charges;
mod shard;
mod shard_charges;
mod shard_copy;
mod shard_lines;
mod shard_load;
mod shard_resets;
mod shard_view;
mod shards;
mod table;
mod waiter;
mod waiting;

use std::fmt;
use std::mem;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use self::clock_source::ClockSource;
use self::fingerprint::{Fingerprint, Hasher};
use self::known_names::Names;
pub(crate) use self::several_charges::{Taken, TakenPair};
use self::shard::Shard;
use self::shard_charges::LookupMiss;
use self::shards::Shards;
use self::waiter::Wakeups;
pub(crate) use self::waiter::{LinePlace, LineTicket, LineTimer, LineWaiter, WaiterStatus};
use super::answer::{Applied, FEW, MOST, Reading, Remarks};
use super::charge::Charge;
use crate::clock::{Clock, SystemClock, Timestamp};

/// A store in this process: the default of
/// [`RateLimiter::in_memory`](crate::RateLimiter::in_memory).
///
/// Decisions take well under a microsecond, and need no runtime and no background task. Other
/// processes do not share the buckets; for that, see `Redis`.
///
/// Buckets are lost when the process ends, unless it [saves](Self::save_to) them to a file that the
/// next one [loads](Self::load_or_empty).
///
/// # Examples
///
/// ```
/// use tollgate::RateLimiter;
/// use tollgate::backend::Memory;
///
/// let limiter = RateLimiter::new(Memory::new().max_keys(50_000));
/// # drop(limiter);
/// ```
///
/// # Memory
///
/// The store holds at most [`max_keys`](Self::max_keys) buckets, a million by default. Beyond that
/// it evicts buckets of the quota that holds the most, the smallest shares of their capacity first.
/// A bucket that is full again is dropped when new ones come, which changes no answer.
///
/// A bucket takes 32 bytes, whatever the length of its key, in tables that are at most four fifths
/// full: 40 to 60 bytes while they grow. The store also remembers which buckets were
/// [reset](crate::RateLimiter::reset) last, in 16 bytes each: as many as it holds buckets, and at
/// least 65,536.
#[doc(alias = "HashMap")]
#[doc(alias = "DashMap")]
#[doc(alias = "keyed")]
#[doc(alias = "in_process")]
#[doc(alias = "local")]
pub struct Memory {
    shards: Shards,
    hasher: Hasher,
    clock: ClockSource,
    max_keys: usize,
    /// The time of the dump that was loaded. The clock was never behind it.
    floor: Timestamp,
    /// Held while the store is saved to a file.
    saving: Mutex<()>,
    /// The names of its buckets, if it keeps keys.
    names: Option<Box<Names>>,
}

impl Memory {
    /// The bound unless [`max_keys`](Self::max_keys) sets another: a million buckets, which take
    /// some 45 MB.
    pub const MAX_KEYS: usize = 1_000_000;

    /// Makes an empty store with a [`SystemClock`] and room for [`MAX_KEYS`](Self::MAX_KEYS)
    /// buckets.
    #[must_use]
    pub fn new() -> Self {
        Self {
            shards: Shards::new(Self::MAX_KEYS),
            hasher: Hasher::random(),
            clock: ClockSource::System(SystemClock::new()),
            max_keys: Self::MAX_KEYS,
            floor: Timestamp::from_micros(i64::MIN),
            saving: Mutex::new(()),
            names: None,
        }
    }

    /// Sets how many buckets the store holds at most; at least one.
    ///
    /// The bound is divided among the shards of the store, about 1,000 buckets each. Keys spread
    /// over shards by chance, so the fullest shard may begin to evict when the store as a whole
    /// holds a tenth less.
    ///
    /// A shard that is full makes room like this:
    ///
    /// * The quota that holds the most buckets of the shard loses one. So made-up keys of one limit
    ///   evict each other, and a limit with fewer keys loses none, whatever the periods of the two
    ///   are.
    /// * Of its buckets, the one goes that has used the smallest share of its capacity. Debt is a
    ///   share above 1. The client of that bucket starts over with a full one.
    /// * [Blocked](crate::RateLimiter::block) buckets go last, as long as they are at most half of
    ///   the shard. Above that, the quota with the most of them loses the one whose block ends
    ///   first.
    /// * A bucket with waiters stays. So the store exceeds its bound while requests wait for more
    ///   buckets than that.
    ///
    /// Buckets that the store holds already stay, as far as the bound allows.
    ///
    /// How hard is it to get free of a limit by flooding the store? A client that has used up its
    /// bucket needs other keys to fill its quota's part of the shard, and each of them must have
    /// used more of the same quota since. That part is the whole shard, or an equal share of it
    /// beside other quotas that are flooded.
    #[must_use]
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = max_keys.max(1);
        let held = mem::replace(&mut self.shards, Shards::new(self.max_keys));
        self.shards.continue_from(&held, self.now());
        self
    }

    /// Sets the clock, for instance a [`ManualClock`](crate::clock::ManualClock) in tests.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = ClockSource::Other(Arc::new(clock)).not_before(self.floor);
        self
    }

    /// Keeps the keys of its buckets, so that [`debtors`](crate::RateLimiter::debtors) lists which keys
    /// are in debt or blocked, and not only how many.
    ///
    /// A bucket then takes some 150 bytes more, and its key if that is longer than 38 bytes. Decisions
    /// about known buckets cost the same; each new bucket takes a lock that all of them share. The keys
    /// may be personal data. They are not part of what is [saved](Self::save_to): a bucket that was
    /// loaded is on the list once it is penalized, blocked, settled or reserved from.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::backend::Memory;
    /// use tollgate::{HOUR, Limit, Quota, RateLimiter};
    ///
    /// const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::RateLimited> {
    /// let limiter = RateLimiter::new(Memory::new().keep_keys());
    /// limiter.block(&LOGIN, HOUR).key("mallory").await?;
    /// let debtors = limiter.debtors(&LOGIN).await?.into_debtors().unwrap();
    /// assert_eq!(debtors[0].key_text(), "mallory");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn keep_keys(mut self) -> Self {
        self.names.get_or_insert_default();
        self
    }

    /// Sets the clock ahead by as much as it is behind the time of a dump.
    fn not_before(self, floor: Timestamp) -> Self {
        Self { clock: self.clock.not_before(floor), floor, ..self }
    }

    /// Lets sweeps keep buckets that are full again, for tests that compare each answer.
    #[doc(hidden)]
    #[must_use]
    pub fn keep_full(self) -> Self {
        self.shards.iter().for_each(|shard| shard.lock().keep_full = true);
        self
    }

    /// The number of buckets in the store, including those that are full again but not yet dropped.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Whether the store holds no bucket.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many buckets were evicted so far: dropped before they were full again, as their shard was
    /// at its [bound](Self::max_keys). Their clients have started over with full buckets.
    ///
    /// If it grows, clients make up keys, or the bound is too low. A bucket that is full again, but
    /// was not noticed yet, may be evicted as well.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tollgate::backend::Memory;
    /// use tollgate::{HOUR, Limit, Quota, RateLimiter};
    ///
    /// const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::RateLimited> {
    /// let memory = Arc::new(Memory::new().max_keys(2));
    /// let limiter = RateLimiter::new(Arc::clone(&memory));
    /// for user in ["alice", "bob", "carol"] {
    ///     limiter.limit(&LOGIN).key(user).await?;
    /// }
    /// assert_eq!((memory.len(), memory.evicted(), memory.forgotten()), (2, 1, 0));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.shards.iter().fold(0, |all, shard| all.wrapping_add(shard.lock().evicted))
    }

    /// How many buckets were dropped so far because they were full again, which changes no answer.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.shards.iter().fold(0, |all, shard| all.wrapping_add(shard.lock().forgotten))
    }

    /// Drops every bucket that is full again, shard by shard, and shrinks tables that are mostly
    /// empty then.
    ///
    /// The bound holds without it, so there is no need to call it regularly. It gives memory back
    /// after a flood of keys; otherwise the store keeps that memory for the next flood.
    pub fn purge(&self) {
        let now = self.now();
        for shard in self.shards.iter() {
            // One lock at a time. A waker may call this store again, so none is held when it runs.
            let wakeups = {
                let mut shard = shard.lock();
                shard.purge(now);
                shard.take_wakeups()
            };
            wakeups.into_iter().for_each(Wakeups::run);
        }
    }

    /// Decides one ordinary charge, and returns the time of the decision with its reading.
    ///
    /// # Errors
    ///
    /// If the bucket is new or was stored for another quota. The shard stays locked then, and
    /// [`UnknownBucket::charge`] decides.
    // Inlined with all that it calls, so that the charge and its result stay in registers.
    #[inline(always)]
    pub(crate) fn charge(
        &self,
        charge: &Charge<'_>,
    ) -> Result<(Timestamp, Reading), UnknownBucket<'_>> {
        let print = self.hasher.fingerprint(charge.id());
        let mut shard = self.shards.shard_of(print).lock();
        // Read under the lock, so that a later decision does not read an earlier time, as far as
        // the clock goes forward.
        let now = self.now();
        // No look at the line of the bucket: the value counts the waiters' costs as taken, so a
        // charge that may not wait is refused behind them by the numbers alone.
        let charged = match shard.charge_known(print, charge, now) {
            Ok(charged) => charged,
            // The guard goes along. Between this search and the charge, no other call can store the
            // bucket.
            Err(unknown) => {
                return Err(UnknownBucket { memory: self, shard, print, now, unknown });
            }
        };
        let mark = shard.mark;
        drop(shard);
        Ok((now, Reading::from_charged(charge, &charged).with_mark(mark)))
    }

    /// Decides one ordinary charge, on a known or an unknown bucket.
    #[inline(never)]
    fn charge_one(&self, charge: &Charge<'_>) -> Applied {
        match self.charge(charge) {
            Ok((now, reading)) => Applied::one(now, reading),
            Err(unknown) => {
                let (now, reading, remarks) = unknown.charge(charge);
                Applied::one(now, reading).with_remarks(remarks)
            }
        }
    }

    /// Takes all charges in one step, if they are few and all buckets are known and have the units.
    /// `None` if nothing was taken: then [`charge_several`](Self::charge_several) decides.
    #[inline(always)]
    pub(crate) fn charge_few<'c, const N: usize>(
        &self,
        charges: impl ExactSizeIterator<Item = Charge<'c>> + Clone,
    ) -> Option<Taken<N>> {
        several_charges::charge_few(&self.shards, &self.hasher, charges, || self.now())
    }

    /// As [`charge_few`](Self::charge_few), for a charge on two shards.
    #[inline(always)]
    pub(crate) fn charge_pair(&self, charge: &Charge<'_>) -> Option<TakenPair> {
        several_charges::charge_pair(&self.shards, &self.hasher, charge, || self.now())
    }

    /// Takes all charges in one step, or none of them.
    // Not inlined, so that a charge on one bucket has a small stack frame.
    #[inline(never)]
    pub(crate) fn charge_several(&self, charges: &[Charge<'_>]) -> Applied {
        let (shards, hasher, now) = (&self.shards, &self.hasher, || self.now());
        let few = match charges {
            [one] => self.charge_pair(one).map(|(now, mark, charged)| {
                Applied::two(now, Reading::from_charged_pair(one, &charged)).with_mark(mark)
            }),
            _ if charges.len() <= FEW => self.take_few::<FEW>(charges),
            _ => self.take_few::<MOST>(charges),
        };
        few.unwrap_or_else(|| {
            let applied = several_charges::charge_list(shards, hasher, charges, now);
            self.keep_names(charges.iter().flat_map(Charge::ids));
            applied
        })
    }

    fn take_few<const N: usize>(&self, charges: &[Charge<'_>]) -> Option<Applied> {
        let taken = self.charge_few::<N>(charges.iter().copied())?;
        Some(Applied::collect(taken.now, charges.len(), taken.readings(charges.iter().copied())))
    }

    #[inline]
    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// A bucket that is new or was stored for another quota, with its shard, which is still locked.
pub(crate) struct UnknownBucket<'m> {
    memory: &'m Memory,
    shard: MutexGuard<'m, Shard>,
    print: Fingerprint,
    now: Timestamp,
    unknown: LookupMiss,
}

impl UnknownBucket<'_> {
    /// Decides the charge for which the bucket was searched.
    #[cold]
    pub(crate) fn charge(self, charge: &Charge<'_>) -> (Timestamp, Reading, Remarks) {
        let Self { memory, mut shard, print, now, unknown } = self;
        let (charged, remarks) = shard.charge_unknown(print, unknown, charge, now);
        let (wakeups, mark) = (shard.take_wakeups(), shard.mark);
        drop(shard);
        wakeups.into_iter().for_each(Wakeups::run);
        memory.keep_names(charge.ids());
        (now, Reading::from_charged(charge, &charged).with_mark(mark), remarks)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("max_keys", &self.max_keys)
            .field("shards", &self.shards.count())
            .field("clock", &self.clock)
            .field("lines", &self.line_count())
            .finish_non_exhaustive()
    }
}
