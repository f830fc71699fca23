//! The name of a bucket, and a charge on it.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use super::key::Key;
use super::limit_head::LimitHead;
use super::on_failure::OnFailure;
use crate::algebra::{Bucket, Terms, Units};
use crate::clock::Timestamp;

/// The name of a bucket: the limit, the key and the shard.
///
/// Ids have an order, which is arbitrary but always the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketId<'a> {
    limit: &'a str,
    key: &'a Key,
    shard: u32,
    /// Last, so that it does not matter for the order: it follows from `limit`.
    head: LimitHead,
}

impl<'a> BucketId<'a> {
    /// Names the bucket of `key` under the limit of this name.
    #[must_use]
    #[inline]
    pub const fn new(limit: &'a str, key: &'a Key) -> Self {
        Self::with_head(limit, LimitHead::new(limit), key)
    }

    /// As [`new`](Self::new), for a limit that knows the head of its name.
    #[inline]
    pub(crate) const fn with_head(limit: &'a str, head: LimitHead, key: &'a Key) -> Self {
        Self { limit, key, shard: 0, head }
    }

    #[inline]
    #[doc(hidden)]
    #[must_use]
    pub const fn head(&self) -> LimitHead {
        self.head
    }

    /// Names a shard of the limit; the first one is 0, and is named unless this is called.
    #[must_use]
    #[inline]
    pub const fn shard(mut self, shard: u32) -> Self {
        self.shard = shard;
        self
    }

    /// The name of the limit.
    #[must_use]
    #[inline]
    pub const fn limit(&self) -> &'a str {
        self.limit
    }

    /// The key: a user, an address, a tenant.
    #[must_use]
    #[inline]
    pub const fn key(&self) -> &'a Key {
        self.key
    }

    /// Which shard of the limit.
    #[must_use]
    #[inline]
    pub const fn shard_index(&self) -> u32 {
        self.shard
    }

    /// Where the windows start if the quota does not say where: somewhere in the first period after the
    /// epoch. It is the same on every node and for every shard, and differs from key to key.
    ///
    /// It is the SipHash-1-3 (zero keys, 64 bits) of the limit's name, a byte 0xff and the key's
    /// bytes, modulo the period.
    #[must_use]
    pub fn phase(&self, bucket: &Bucket) -> Timestamp {
        let micros = self.hasher().finish().checked_rem(bucket.step()).unwrap_or(0);
        Timestamp::UNIX_EPOCH.plus_micros(micros)
    }

    /// A hash to pick a sample of the keys, such as those that a limit is enforced on. It is the
    /// same on every node and for every shard.
    ///
    /// It is the SipHash-1-3 (zero keys, 64 bits) of the limit's name, a byte 0xff, the key's bytes
    /// and a byte 0xfe. So it is independent of the [phase](Self::phase).
    #[must_use]
    pub fn sample_hash(&self) -> u64 {
        let mut hasher = self.hasher();
        hasher.write_u8(0xfe);
        hasher.finish()
    }

    fn hasher(&self) -> SipHasher13 {
        let mut hasher = SipHasher13::new();
        hasher.write(self.limit.as_bytes());
        hasher.write_u8(0xff);
        hasher.write(self.key.as_bytes());
        hasher
    }
}

/// Units to take from a bucket.
///
/// # Examples
///
/// Two limits at once, all or nothing:
///
/// ```
/// use tollgate::algebra::Verdict;
/// use tollgate::backend::{Answer, Backend, BucketId, Charge, Key, Memory};
/// use tollgate::{HOUR, Limit, Quota};
///
/// let (few, many) = (
///     Limit::new("few", Quota::token_bucket(1, HOUR)),
///     Limit::new("many", Quota::token_bucket(9, HOUR)),
/// );
/// let key = Key::from("alice");
/// let one_of_each = [&few, &many].map(|limit| {
///     let id = BucketId::new(limit.name(), &key);
///     Charge::take(id, limit.bucket(), limit.bucket().units(1).unwrap())
/// });
///
/// let memory = Memory::new();
/// let mut remaining = Vec::new();
/// for _ in 0..2 {
///     let Answer::Ready(Ok(applied)) = memory.apply(&one_of_each) else { panic!("memory answers at once") };
///     let state = applied.readings()[1].state();
///     remaining.push((applied.verdict(), many.bucket().tokens(state.value).whole()));
/// }
/// // The second is refused by the one, and takes nothing from the other.
/// assert_eq!(remaining, [(Verdict::Admitted, 8), (Verdict::Refused, 8)]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    id: BucketId<'a>,
    bucket: &'a Bucket,
    units: Units,
    terms: Terms,
    takes: bool,
    second_shard: Option<u32>,
    on_failure: Option<OnFailure>,
}

impl<'a> Charge<'a> {
    /// Takes the units if they are available.
    #[must_use]
    #[inline]
    pub const fn take(id: BucketId<'a>, bucket: &'a Bucket, units: Units) -> Self {
        let (terms, second_shard, on_failure) = (Terms::AT_ONCE, None, None);
        Self { id, bucket, units, terms, takes: true, second_shard, on_failure }
    }

    /// Looks whether the units could be taken, without taking them.
    #[must_use]
    #[inline]
    pub const fn look(id: BucketId<'a>, bucket: &'a Bucket, units: Units) -> Self {
        let (terms, second_shard, on_failure) = (Terms::AT_ONCE, None, None);
        Self { id, bucket, units, terms, takes: false, second_shard, on_failure }
    }

    /// Sets how far the charge may go when the bucket is short; [`Terms::AT_ONCE`] unless set.
    #[must_use]
    #[inline]
    pub const fn terms(mut self, terms: Terms) -> Self {
        self.terms = terms;
        self
    }

    /// Names a second shard of the limit that may pay as well: a two-choices charge.
    ///
    /// [`charge_pair`](crate::algebra::charge_pair) says which of the two pays, or how both do.
    /// Naming the shard that the charge is for already leaves it an ordinary charge.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::algebra::Bucket;
    /// use tollgate::backend::{Answer, Backend, BucketId, Charge, Key, Memory};
    /// use tollgate::{HOUR, Quota};
    ///
    /// // Ten shards, each of which holds 5 tokens.
    /// let shard = Bucket::of_shard(&Quota::token_bucket(50, HOUR).shards(10))?;
    /// let (key, seven) = (Key::from("all"), shard.units(7).unwrap());
    /// let id = BucketId::new("searches", &key).shard(3);
    /// let charge = Charge::take(id, &shard, seven).second_shard(8);
    ///
    /// let memory = Memory::new();
    /// let Answer::Ready(Ok(applied)) = memory.apply(&[charge]) else { panic!("memory answers at once") };
    /// let paid: i64 = applied.readings().iter().map(|reading| reading.units()).sum();
    /// assert_eq!((applied.readings().len(), paid), (2, seven));
    /// # Ok::<(), tollgate::quota::QuotaError>(())
    /// ```
    #[must_use]
    #[inline]
    pub const fn second_shard(mut self, shard: u32) -> Self {
        self.second_shard = if shard == self.id.shard { None } else { Some(shard) };
        self
    }

    /// Sets what the limit says about outages, for wrappers that decide in place of a store; nothing
    /// unless set. See [`Limit::on_failure`](crate::Limit::on_failure).
    #[must_use]
    #[inline]
    pub const fn on_failure(mut self, on_failure: Option<OnFailure>) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// What the limit says about outages; `None` if it leaves that to the store and the limiter.
    #[must_use]
    #[inline]
    pub const fn get_on_failure(&self) -> Option<OnFailure> {
        self.on_failure
    }

    /// The same charge on another bucket: for wrappers that rename buckets.
    ///
    /// If it names a [second shard](Self::second_shard), that is a shard of the same limit.
    #[must_use]
    pub const fn with_id(mut self, id: BucketId<'a>) -> Self {
        self.id = id;
        self
    }

    /// The name of the bucket; of a two-choices charge, that of the first.
    #[must_use]
    #[inline]
    pub const fn id(&self) -> BucketId<'a> {
        self.id
    }

    /// The names of the buckets that may pay. A two-choices charge has two, its own shard first.
    #[inline]
    pub fn ids(&self) -> impl Iterator<Item = BucketId<'a>> + use<'a> {
        let id = self.id;
        std::iter::once(id).chain(self.second_shard.map(|second| id.shard(second)))
    }

    /// The second shard of a two-choices charge.
    #[must_use]
    #[inline]
    pub const fn get_second_shard(&self) -> Option<u32> {
        self.second_shard
    }

    /// The compiled quota of the bucket, which is the same for both shards.
    #[must_use]
    #[inline]
    pub const fn bucket(&self) -> &'a Bucket {
        self.bucket
    }

    /// How much to take.
    #[must_use]
    #[inline]
    pub const fn units(&self) -> Units {
        self.units
    }

    /// How far to go when the bucket is short.
    #[must_use]
    #[inline]
    pub const fn get_terms(&self) -> Terms {
        self.terms
    }

    /// Whether it may go into debt.
    #[cfg(feature = "memory")]
    pub(super) fn reserves(&self) -> bool {
        self.takes && self.terms != Terms::AT_ONCE
    }

    /// Whether to take, not only to look.
    #[must_use]
    #[inline]
    pub const fn takes(&self) -> bool {
        self.takes
    }
}
