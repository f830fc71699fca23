//! A cache of refusals around a store: a bucket that is known to be short refuses without a trip.
//!
//! # Design
//!
//! A refusal tells what each bucket of the call holds, and when. From then on, a bucket only gains
//! by its quota, which this process can compute, unless tokens come back to it. So the cache keeps
//! these states for a short time. A later call on buckets that are all known is decided by the same
//! [algorithm](super::apply_all) as in the store. If the result is a refusal, that is the answer; if
//! not, the store is asked. So there is no rule of its own here: the smallest cost that still fits,
//! the terms of reservations, pairs of shards and lists all come out as in the store.
//!
//! **Changed numbers.** A bucket is known in the numbers in which the store counts it. Slower ones
//! are refused here as well, since their refusal changes nothing there. A request by faster ones
//! goes to the store, where it makes the bucket count in them.
//!
//! **Time.** The store has decided at some instant between the question and its answer. So the time
//! of the store now is one of two, or between them:
//!
//! ```text
//! here   ──── question sent ──────── answer read ──────── now ────▶
//! store       ────────── decided ──────────────────────────────────▶
//!
//! latest   = decided + (now - question sent), and a thousandth of that as clocks differ in rate
//! earliest = decided + (now - answer read)
//! ```
//!
//! The cache refuses only what is refused at the latest. The wait that it answers is that at the
//! earliest, so a client is not sent back too soon. It may be too long by the time of one trip.
//!
//! **Give-backs.** A settlement, a refund, an undone reservation or a reset through this cache drops
//! what is known of its buckets when it is sent, and again when it is answered. What is answered in
//! between is not kept, since it may be from before the give-back.

mod known;
mod table;
#[cfg(test)]
#[cfg(feature = "memory")]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use scopeguard::guard;
use smallvec::SmallVec;

use self::known::{KnownBuckets, is_still_refused};
use self::table::{DenyTable, SeenBucket, SlotHash};
use super::Backend;
use super::adjustment::Adjustment;
use super::answer::{Answer, Applied};
use super::charge::{BucketId, Charge};
use super::debtors::{DebtorQuery, DebtorReport};
use crate::algebra::{Bucket, Verdict};
use crate::clock::{Clock, SystemClock, Timestamp};

/// Refuses calls on buckets that are known to be short, without asking the store.
///
/// Under attack, most calls are refusals of the same few buckets. With this cache, the store sees
/// one of them per bucket and [`max_age`](Self::max_age), and the others are refused in memory, with
/// the same exact wait.
///
/// * It never refuses what the store would have admitted at that instant, as long as only this
///   process gives tokens back. A cost that still fits goes to the store, whatever was refused
///   before.
/// * A give-back or a reset by another process is seen late, by `max_age` at most: a second unless
///   set. The same holds for changed numbers of a limit, and for a store that was flushed. A
///   give-back or a reset through this cache is seen at once.
/// * A call on several limits is refused from memory only if all of its buckets are known, since its
///   answer has a state for each. What it shows of a limit that did not refuse may be as old as
///   `max_age`.
/// * A [peek](crate::RateLimiter::peek) always goes to the store: an operator who looks at a limit
///   wants to know how it stands.
/// * It takes 132 bytes for each of [`max_keys`](Self::max_keys), all at once when it is made. Under
///   a flood of made-up keys, it forgets the oldest refusals, which costs a trip and nothing else.
///
/// # When not
///
/// Without an attack it saves little, since most calls are admitted, and these all go to the store.
/// Around a [`Memory`](super::Memory) store it saves nothing.
///
/// # Order
///
/// It goes around a [`CircuitBreaker`](super::CircuitBreaker), so that its refusals do not count as
/// answers of the store.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use tollgate::backend::{DenyCache, Memory};
/// use tollgate::{HOUR, Limit, Quota, RateLimited, RateLimiter};
///
/// const LOGIN: Limit = Limit::new("login", Quota::token_bucket(1, HOUR));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), RateLimited> {
/// # let store = Memory::new();
/// let cache = Arc::new(DenyCache::new(store).max_age(Duration::from_millis(500)));
/// let limiter = RateLimiter::new(Arc::clone(&cache));
/// let permit = limiter.limit(&LOGIN).key("mallory").await?;
/// for _ in 0..1_000 {
///     // Only the first of these asks the store.
///     assert!(limiter.limit(&LOGIN).key("mallory").await.is_err());
/// }
/// assert_eq!(cache.refused(), 999);
/// permit.refund().await?;
/// limiter.limit(&LOGIN).key("mallory").await?;
/// # Ok(())
/// # }
/// ```
#[doc(alias("negative_cache", "block_cache", "inMemoryBlock", "insuranceLimiter"))]
#[derive(Debug)]
pub struct DenyCache<B> {
    inner: B,
    table: Arc<DenyTable>,
    clock: Arc<dyn Clock>,
    max_age: Duration,
    refused: AtomicU64,
}

impl<B: Backend> DenyCache<B> {
    /// How many buckets it remembers unless [`max_keys`](Self::max_keys) says otherwise.
    pub const MAX_KEYS: usize = 8_192;

    /// Puts an empty cache around a store.
    #[must_use]
    pub fn new(store: B) -> Self {
        let (table, clock) = (DenyTable::new(Self::MAX_KEYS), SystemClock::new());
        let (table, clock, refused) = (Arc::new(table), Arc::new(clock), AtomicU64::new(0));
        Self { inner: store, table, clock, max_age: MAX_AGE, refused }
    }

    /// Sets for how long a refusal is remembered; a second if not set.
    ///
    /// It is the longest time by which a give-back or a reset in another process is seen late, and
    /// how often the store is asked about a bucket that is short. With zero, nothing is remembered.
    #[must_use]
    pub const fn max_age(mut self, age: Duration) -> Self {
        self.max_age = age;
        self
    }

    /// Sets how many buckets it remembers, rounded up to a multiple of 8; 8,192 if not set.
    #[doc(alias = "capacity")]
    #[must_use]
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.table = Arc::new(DenyTable::new(keys));
        self
    }

    /// Sets the clock that measures how long ago a refusal was; [`SystemClock`] if not set. It need
    /// not show the time of the store.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// How many calls it has refused without a trip.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// The store inside.
    #[must_use]
    pub const fn get_ref(&self) -> &B {
        &self.inner
    }

    /// The refusal of these charges, if it is known.
    fn refuse(&self, charges: &[Charge<'_>], slots: &Slots, now: Timestamp) -> Option<Applied> {
        let named = charges.iter().flat_map(|charge| charge.ids().map(move |id| (id, charge)));
        let mut known = KnownBuckets::default();
        for ((id, charge), &slot) in named.zip(slots) {
            let sighting = self.table.get(slot, charge.bucket())?;
            // By the numbers of another quota, a store counts the windows of a calendar from the state
            // that it keeps, which may be older than what was seen.
            let seen = sighting.bucket.seen_by(charge.bucket());
            if sighting.bucket.calendar() != seen.calendar() {
                return None;
            }
            known.push(id, sighting, now, self.max_age)?;
        }
        is_still_refused(&mut known, charges)
    }

    /// Asks the store to give back, and forgets these buckets before and after.
    fn give_back<T: Send + 'static>(
        &self,
        slots: Slots,
        ask: impl FnOnce(&B) -> Answer<T>,
    ) -> Answer<T> {
        slots.iter().for_each(|&slot| self.table.begin_return(slot));
        let table = Arc::clone(&self.table);
        // Dropped when the store has answered, or when the call is dropped.
        let give_back = guard(slots, move |slots| {
            slots.iter().for_each(|&slot| table.end_return(slot));
        });
        match ask(&self.inner) {
            ready @ Answer::Ready(_) => ready,
            Answer::Pending(answer) => Answer::pending(async move {
                let answer = answer.await;
                drop(give_back);
                answer
            }),
        }
    }

    fn slots<'a>(&self, ids: impl Iterator<Item = BucketId<'a>>) -> Slots {
        ids.map(|id| self.table.hash(id)).collect()
    }
}

/// The places of the buckets of a call, in order.
type Slots = SmallVec<[SlotHash; 4]>;

/// A call whose answer may tell that buckets are short.
struct DenyQuestion {
    table: Arc<DenyTable>,
    clock: Arc<dyn Clock>,
    asked: SmallVec<[AskedBucket; 2]>,
    sent: Timestamp,
}

/// A bucket of a call.
struct AskedBucket {
    slot: SlotHash,
    bucket: Bucket,
    /// Whether the charge takes. A look does not convert a bucket to other numbers of its limit, so
    /// what it shows is not what the store keeps.
    takes: bool,
    /// How many give-backs there were when the question was sent.
    returns: u64,
}

impl DenyQuestion {
    /// Remembers a refusal. Forgets the buckets of a call that has taken from them: they hold less.
    fn read(self, applied: &Applied) {
        let readings = applied.readings();
        if applied.verdict() != Verdict::Refused || readings.len() != self.asked.len() {
            return self.asked.iter().for_each(|asked| self.table.forget(asked.slot));
        }
        let (decided, sent, answered) = (applied.now(), self.sent, self.clock.monotonic());
        let asked = self.asked.iter().zip(readings).enumerate();
        for (nth, (asked, reading)) in asked.filter(|(_, (asked, _))| asked.takes) {
            // Where a call names a bucket twice, a reading shows it with the charges before it.
            if self.asked.iter().filter(|other| other.slot == asked.slot).count() > 1 {
                self.table.forget(asked.slot);
                continue;
            }
            let (bucket, state) = match applied.kept(nth) {
                Some(own) => (*own.bucket(), own.state()),
                None => (asked.bucket, reading.state()),
            };
            let seen = SeenBucket { bucket, state, decided, sent, answered };
            self.table.insert(asked.slot, seen, asked.returns);
        }
    }
}

impl<B: Backend> Backend for DenyCache<B> {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        if self.max_age.is_zero() || !charges.iter().any(Charge::takes) {
            return self.inner.apply(charges);
        }
        let slots = self.slots(charges.iter().flat_map(Charge::ids));
        let sent = self.clock.monotonic();
        if let Some(refused) = self.refuse(charges, &slots, sent) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Answer::Ready(Ok(refused));
        }
        let named = charges.iter().flat_map(|charge| charge.ids().map(move |_| charge));
        let asked = named.zip(&slots).map(|(charge, &slot)| {
            let (bucket, takes) = (*charge.bucket(), charge.takes());
            AskedBucket { slot, bucket, takes, returns: self.table.returns(slot) }
        });
        let (table, clock) = (Arc::clone(&self.table), Arc::clone(&self.clock));
        let question = DenyQuestion { table, clock, asked: asked.collect(), sent };
        match self.inner.apply(charges) {
            Answer::Ready(answer) => {
                Answer::Ready(answer.inspect(|applied| question.read(applied)))
            }
            Answer::Pending(answer) => {
                Answer::pending(
                    async move { answer.await.inspect(|applied| question.read(applied)) },
                )
            }
        }
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        let slots = self.slots(adjustments.iter().map(Adjustment::id));
        self.give_back(slots, |inner| inner.adjust(adjustments))
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        let slots = self.slots(ids.iter().copied());
        self.give_back(slots, |inner| inner.reset(ids))
    }

    fn charges_several(&self) -> bool {
        self.inner.charges_several()
    }

    fn answers_at_once(&self) -> bool {
        self.inner.answers_at_once()
    }

    /// Asks the store, as a [peek](crate::RateLimiter::peek) does.
    fn debtors(&self, query: &DebtorQuery) -> Answer<DebtorReport> {
        self.inner.debtors(query)
    }
}

/// Short enough that an operator who resets a limit on another node does not notice, and long enough
/// that a flood is one call a second for each bucket.
const MAX_AGE: Duration = Duration::from_secs(1);
