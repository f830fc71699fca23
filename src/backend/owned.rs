//! Charges, adjustments and names of buckets as owned values, for stores that answer later.

use super::adjustment::{Adjustment, Change};
use super::charge::{BucketId, Charge};
use super::key::Key;
use super::limit_head::LimitHead;
use super::on_failure::OnFailure;
use super::receipt::Receipt;
use crate::algebra::{Bucket, Terms, Units};

/// A [`BucketId`] that borrows nothing, made by [`BucketId::into_owned`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnedBucketId {
    limit: Box<str>,
    key: Key,
    shard: u32,
    /// Last, as in [`BucketId`], so that both have the same order.
    head: LimitHead,
}

impl OwnedBucketId {
    /// The name, borrowed from this value.
    #[must_use]
    #[inline]
    pub const fn as_id(&self) -> BucketId<'_> {
        BucketId::with_head(&self.limit, self.head, &self.key).shard(self.shard)
    }
}

/// A [`Charge`] that borrows nothing, made by [`Charge::into_owned`].
///
/// A store that answers later takes charges out of the call, since the future of its answer borrows
/// nothing.
///
/// # Examples
///
/// A wrapper that lets another store answer so many calls at a time. The others wait for their
/// turn:
///
/// ```
/// use std::sync::Arc;
///
/// use tokio::sync::Semaphore;
/// use tollgate::backend::{
///     Adjustment, Answer, Applied, Backend, BucketId, Charge, DebtorQuery, DebtorReport, Memory,
///     OwnedAdjustment, OwnedBucketId, OwnedCharge,
/// };
/// use tollgate::{HOUR, Limit, Quota, RateLimiter};
///
/// #[derive(Debug)]
/// struct AtMost<B> {
///     inner: Arc<B>,
///     turns: Arc<Semaphore>,
/// }
///
/// impl<B: Backend> AtMost<B> {
///     fn in_turn<T: Send + 'static>(
///         &self,
///         ask: impl FnOnce(&B) -> Answer<T> + Send + 'static,
///     ) -> Answer<T> {
///         let (inner, turns) = (Arc::clone(&self.inner), Arc::clone(&self.turns));
///         Answer::pending(async move {
///             let _turn = turns.acquire().await; // held until the store has answered
///             ask(&inner).wait().await
///         })
///     }
/// }
///
/// impl<B: Backend> Backend for AtMost<B> {
///     fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
///         let owned: Vec<_> = charges.iter().map(|charge| charge.into_owned()).collect();
///         self.in_turn(move |inner| {
///             inner.apply(&owned.iter().map(OwnedCharge::as_charge).collect::<Vec<_>>())
///         })
///     }
///
///     fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
///         let owned: Vec<_> = adjustments.iter().map(|one| one.into_owned()).collect();
///         self.in_turn(move |inner| {
///             inner.adjust(&owned.iter().map(OwnedAdjustment::as_adjustment).collect::<Vec<_>>())
///         })
///     }
///
///     fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
///         let owned: Vec<_> = ids.iter().map(|id| id.into_owned()).collect();
///         self.in_turn(move |inner| {
///             inner.reset(&owned.iter().map(OwnedBucketId::as_id).collect::<Vec<_>>())
///         })
///     }
///
///     fn charges_several(&self) -> bool {
///         self.inner.charges_several()
///     }
///
///     fn debtors(&self, query: &DebtorQuery) -> Answer<DebtorReport> {
///         let query = query.clone();
///         self.in_turn(move |inner| inner.debtors(&query))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let turns = Arc::new(Semaphore::new(8));
/// let limiter = RateLimiter::new(AtMost { inner: Arc::new(Memory::new()), turns });
/// let limit = Limit::new("reports", Quota::token_bucket(1, HOUR));
/// assert!(limiter.limit(&limit).await.is_ok());
/// assert!(limiter.limit(&limit).await.unwrap_err().is_refused());
/// # }
/// ```
///
/// A wrapper that asks again after a failure has to know that nothing was taken: an answer that was
/// lost may have taken the tokens, and a second charge would take them twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedCharge {
    id: OwnedBucketId,
    bucket: Bucket,
    units: Units,
    terms: Terms,
    takes: bool,
    second_shard: Option<u32>,
    on_failure: Option<OnFailure>,
}

impl OwnedCharge {
    /// The charge, borrowed from this value.
    #[must_use]
    #[inline]
    pub const fn as_charge(&self) -> Charge<'_> {
        let (id, bucket) = (self.id.as_id(), &self.bucket);
        let charge = match self.takes {
            true => Charge::take(id, bucket, self.units),
            false => Charge::look(id, bucket, self.units),
        };
        let charge = charge.terms(self.terms).on_failure(self.on_failure);
        match self.second_shard {
            Some(shard) => charge.second_shard(shard),
            None => charge,
        }
    }
}

/// An [`Adjustment`] that borrows nothing, made by [`Adjustment::into_owned`].
#[derive(Clone, Debug)]
pub struct OwnedAdjustment {
    id: OwnedBucketId,
    bucket: Bucket,
    change: Change,
    receipt: Receipt,
}

impl OwnedAdjustment {
    /// The adjustment, borrowed from this value.
    #[must_use]
    #[inline]
    pub const fn as_adjustment(&self) -> Adjustment<'_> {
        let Self { id, bucket, change, receipt } = self;
        Adjustment::new(id.as_id(), bucket, *change).with_receipt(*receipt)
    }
}

impl BucketId<'_> {
    /// Copies the name of the limit and the key, so that the result borrows nothing.
    #[must_use]
    pub fn into_owned(self) -> OwnedBucketId {
        let (limit, key) = (self.limit().into(), self.key().clone());
        OwnedBucketId { limit, key, shard: self.shard_index(), head: self.head() }
    }
}

impl Charge<'_> {
    /// Copies what the charge borrows, so that it outlives the call: see [`OwnedCharge`].
    #[must_use]
    pub fn into_owned(self) -> OwnedCharge {
        OwnedCharge {
            id: self.id().into_owned(),
            bucket: *self.bucket(),
            units: self.units(),
            terms: self.get_terms(),
            takes: self.takes(),
            second_shard: self.get_second_shard(),
            on_failure: self.get_on_failure(),
        }
    }
}

impl Adjustment<'_> {
    /// Copies what the adjustment borrows, so that it outlives the call: see [`OwnedCharge`].
    #[must_use]
    pub fn into_owned(self) -> OwnedAdjustment {
        let (id, change, receipt) = (self.id().into_owned(), self.change(), self.receipt());
        OwnedAdjustment { id, bucket: *self.bucket(), change, receipt }
    }
}

#[cfg(test)]
mod tests {
    use super::super::origin::Origin;
    use super::super::reset_log::ResetLog;
    use super::*;
    use crate::algebra::State;
    use crate::clock::Timestamp;
    use crate::quota::{HOUR, Quota};

    /// All that a value holds: `Debug` shows each field.
    fn all(value: impl std::fmt::Debug) -> String {
        format!("{value:?}")
    }

    #[test]
    fn a_charge_is_the_same_when_it_is_borrowed_again() {
        let bucket = Bucket::new(&Quota::token_bucket(10, HOUR).max_reserved(5)).unwrap();
        let keys = [Key::GLOBAL, Key::from("alice"), Key::from("a key that is too long".repeat(4))];
        for (key, limit) in keys.iter().zip(["short", "", "a name of more than 16 bytes"]) {
            let id = BucketId::new(limit, key).shard(7);
            assert_eq!(id.into_owned().as_id(), id);
            assert_eq!(all(id.into_owned().as_id()), all(id));
            let take = Charge::take(id, &bucket, 3);
            let reserving = take.terms(Terms::reserving(bucket.floor()).within(HOUR));
            let look = Charge::look(id, &bucket, 4).second_shard(0);
            let strict = take.on_failure(Some(OnFailure::Refuse));
            for charge in [take, reserving, take.second_shard(9), look, strict] {
                assert_eq!(all(charge.into_owned().as_charge()), all(charge));
            }
        }
    }

    #[test]
    fn an_adjustment_is_the_same_when_it_is_borrowed_again() {
        let bucket = Bucket::new(&Quota::token_bucket(10, HOUR)).unwrap();
        let (key, left) = (Key::from("alice"), State { value: 3, ts: Timestamp::UNIX_EPOCH });
        let id = BucketId::new("exports", &key).shard(2);
        for adjustment in [
            Adjustment::refund(id, &bucket, -7),
            Adjustment::refund(id, &bucket, 7).with_mark(ResetLog::default().mark()),
            Adjustment::refund_since(id, &bucket, 7, left).with_receipt(Receipt::new(
                ResetLog::default().mark(),
                Origin::Fallback,
                3,
                left,
            )),
            Adjustment::undo(id, &bucket, 7, left),
            Adjustment::block(id, &bucket, HOUR),
        ] {
            let owned = adjustment.into_owned();
            assert_eq!(all(owned.as_adjustment()), all(adjustment));
            assert_eq!(owned.as_adjustment().mark().is_some(), adjustment.mark().is_some());
        }
    }

    /// Ids are sorted, as in the maps of a wrapper.
    #[test]
    fn owned_ids_have_the_order_of_ids() {
        let keys = ["a", "b"].map(Key::from);
        let mut ids = Vec::new();
        for limit in ["login", "api", "a name of more than 16 bytes"] {
            ids.extend(
                keys.iter()
                    .flat_map(|key| [1, 0].map(|shard| BucketId::new(limit, key).shard(shard))),
            );
        }
        for one in &ids {
            for other in &ids {
                assert_eq!(one.into_owned().cmp(&other.into_owned()), one.cmp(other));
            }
        }
    }
}
