//! The algorithm behind [`Backend`](super::Backend), for any store that can read and write.
//!
//! # Design
//!
//! "Read, decide, write" is here and nowhere else. It is generic over a [`CellStore`], so the
//! memory store and the replay of the Redis client use it without hashing names. A [`BucketStore`]
//! is a `CellStore` in which cells are names.
//!
//! | file | decides |
//! |---|---|
//! | `lone` | one charge: nearly all calls |
//! | `list` | any list |
//! | `adjust` | adjustments |

mod adjust;
mod cell_store;
mod list;
mod lone;

use std::marker::PhantomData;

use smallvec::SmallVec;

pub use self::adjust::adjust_list;
pub use self::cell_store::{CellStore, absent};
pub use self::list::apply_list;
pub use self::lone::apply_one;
pub(super) use self::lone::apply_pair;
use super::adjustment::Adjustment;
use super::answer::{Applied, Reading};
use super::charge::{BucketId, Charge};
use super::record::{BucketRecord, Found};
use crate::algebra::{Bucket, State};
use crate::clock::Timestamp;

/// A store of records by name, which gets the whole algorithm for free.
///
/// [`apply_all`], [`adjust_all`] and [`reset_all`] do what the contract of a
/// [`Backend`](super::Backend) says: absent buckets and their phases, changed numbers, two-choices
/// charges, all or nothing. They call these methods and nothing else, so whatever keeps other
/// callers out meanwhile makes a call atomic: a lock, or a transaction.
///
/// A store behind a network first reads the records of the [buckets](Charge::ids), then lets the
/// algorithm work on a map of them, and writes what has changed in one step, if nothing has changed
/// there meanwhile (compare-and-swap). The crate `tollgate-optimistic` does that.
///
/// # Examples
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::{Mutex, PoisonError};
///
/// use tollgate::backend::{
///     Adjustment, Answer, Applied, Backend, BucketId, BucketRecord, BucketStore, Charge, Key,
///     adjust_all, apply_all, reset_all,
/// };
/// use tollgate::clock::{Clock, SystemClock};
/// use tollgate::{HOUR, Limit, Quota, RateLimiter, Timestamp};
///
/// #[derive(Debug, Default)]
/// struct Records(HashMap<(String, Key, u32), BucketRecord>);
///
/// fn name(id: BucketId<'_>) -> (String, Key, u32) {
///     (id.limit().to_owned(), id.key().clone(), id.shard_index())
/// }
///
/// impl BucketStore for Records {
///     fn now(&mut self) -> Timestamp {
///         SystemClock::new().now()
///     }
///     fn read(&mut self, id: BucketId<'_>) -> Option<BucketRecord> {
///         self.0.get(&name(id)).copied()
///     }
///     fn write(&mut self, id: BucketId<'_>, record: BucketRecord) {
///         self.0.insert(name(id), record);
///     }
///     fn forget(&mut self, id: BucketId<'_>) {
///         self.0.remove(&name(id));
///     }
/// }
///
/// #[derive(Debug, Default)]
/// struct Mine(Mutex<Records>);
///
/// impl Mine {
///     fn with<T>(&self, work: impl FnOnce(&mut Records) -> T) -> Answer<T> {
///         Answer::Ready(Ok(work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))))
///     }
/// }
///
/// impl Backend for Mine {
///     fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
///         self.with(|records| apply_all(records, charges))
///     }
///     fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
///         self.with(|records| adjust_all(records, adjustments))
///     }
///     fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
///         self.with(|records| reset_all(records, ids))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = RateLimiter::new(Mine::default());
/// let exports = Limit::new("exports", Quota::token_bucket(2, HOUR));
/// for left in [1, 0] {
///     assert_eq!(limiter.limit(&exports).key("alice").await?.remaining(), left);
/// }
/// let refused = limiter.limit(&exports).key("alice").await.unwrap_err();
/// assert!(refused.is_refused());
/// limiter.reset(&exports).key("alice").await?;
/// assert!(limiter.limit(&exports).key("alice").await.is_ok());
/// # Ok(())
/// # }
/// ```
pub trait BucketStore {
    /// The time of a call. It is asked for once in a call.
    fn now(&mut self) -> Timestamp;

    /// The record of a bucket; `None` if there is none.
    fn read(&mut self, id: BucketId<'_>) -> Option<BucketRecord>;

    /// Stores the record of a bucket, in place of the one before.
    fn write(&mut self, id: BucketId<'_>, record: BucketRecord);

    /// Removes the record of a bucket, if there is one.
    fn forget(&mut self, id: BucketId<'_>);
}

/// Takes all charges from a store, or none of them if one is refused: what
/// [`Backend::apply`](super::Backend::apply) has to do.
pub fn apply_all<S: BucketStore + ?Sized>(store: &mut S, charges: &[Charge<'_>]) -> Applied {
    let now = store.now();
    let cells = &mut NamedCells(store, PhantomData);
    if let [charge] = charges {
        let id = charge.id();
        return match charge.get_second_shard() {
            None => {
                let (charged, kept) = apply_one(cells, id, charge, now);
                Applied::one(now, Reading::from_charged(charge, &charged)).with_remarks(kept)
            }
            Some(other) => {
                let (charged, kept) = apply_pair(cells, [id, id.shard(other)], charge, other, now);
                Applied::two(now, Reading::from_charged_pair(charge, &charged)).with_remarks(kept)
            }
        };
    }
    let named = charges.iter().flat_map(|charge| charge.ids().map(move |id| (id, charge)));
    let named: SmallVec<[_; 8]> = named.collect();
    apply_list(cells, &named, now)
}

/// Makes all adjustments to a store, or none of them if a bucket does not allow one: what
/// [`Backend::adjust`](super::Backend::adjust) has to do.
pub fn adjust_all<S: BucketStore + ?Sized>(
    store: &mut S,
    adjustments: &[Adjustment<'_>],
) -> Applied {
    let now = store.now();
    let named: SmallVec<[_; 8]> = adjustments.iter().map(|one| (one.id(), one)).collect();
    adjust_list(&mut NamedCells(store, PhantomData), &named, now)
}

/// Forgets these buckets of a store: what [`Backend::reset`](super::Backend::reset) has to do.
pub fn reset_all<S: BucketStore + ?Sized>(store: &mut S, ids: &[BucketId<'_>]) {
    ids.iter().for_each(|&id| store.forget(id));
}

/// A store in which cells are the names of buckets.
struct NamedCells<'s, 'a, S: ?Sized>(&'s mut S, PhantomData<BucketId<'a>>);

impl<'a, S: BucketStore + ?Sized> CellStore for NamedCells<'_, 'a, S> {
    type Cell = BucketId<'a>;

    fn find(
        &mut self,
        cell: BucketId<'a>,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> Found {
        self.0.read(cell).map_or(Found::Absent, |record| record.find(id, bucket, now))
    }

    fn write(&mut self, cell: BucketId<'a>, bucket: &Bucket, state: State, _now: Timestamp) {
        self.0.write(cell, BucketRecord::new(bucket, state));
    }
}
