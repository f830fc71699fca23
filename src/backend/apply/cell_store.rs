//! What the algorithm needs of a store inside of the crate.

use crate::algebra::{Bucket, State};
use crate::backend::charge::BucketId;
use crate::clock::Timestamp;

/// Buckets that one call reads and writes, and no other call meanwhile.
///
/// A store tells its buckets apart by cells, such as a fingerprint or an index, so that it hashes
/// the name of each bucket once a call. [`BucketStore`](super::BucketStore) is the public face of
/// this trait, whose cells are the names.
pub(in crate::backend) trait CellStore {
    /// What tells one bucket from another in this call.
    type Cell: Copy + Ord;

    /// The state of a bucket, counted in the numbers of `bucket`: what is stored, rescaled if its
    /// numbers have changed, or the state of an absent one if it is not [stored](Self::is_stored).
    fn read(
        &mut self,
        cell: Self::Cell,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> State;

    /// Whether anything is stored for a bucket. One that is full by other numbers than those of
    /// `bucket` does not count, as it may as well have been dropped.
    fn is_stored(
        &mut self,
        cell: Self::Cell,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> bool;

    /// Whether a bucket is [stored](Self::is_stored) in other numbers than those of `bucket`, so
    /// that [`read`](Self::read) converts it.
    fn is_converted(
        &mut self,
        cell: Self::Cell,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> bool;

    /// Stores the state of a bucket.
    fn write(&mut self, cell: Self::Cell, bucket: &Bucket, state: State, now: Timestamp);
}

/// Stores the state of a bucket from which nothing was taken, if this is its first use and it
/// begins below its capacity: it begins to fill then. Any other bucket stays as it is.
#[inline]
pub(super) fn write_first_use<C: CellStore>(
    cells: &mut C,
    cell: C::Cell,
    id: BucketId<'_>,
    bucket: &Bucket,
    state: State,
    now: Timestamp,
) {
    if !bucket.is_droppable_when_full() && !cells.is_stored(cell, id, bucket, now) {
        cells.write(cell, bucket, state, now);
    }
}

/// Stores the state of a bucket that refused to be taken from, if it was converted or this is its
/// first use.
///
/// The client is told a wait by the new numbers, so the bucket has to gain by these from now on.
#[inline]
pub(super) fn write_refused<C: CellStore>(
    cells: &mut C,
    cell: C::Cell,
    id: BucketId<'_>,
    bucket: &Bucket,
    state: State,
    now: Timestamp,
) {
    if cells.is_converted(cell, id, bucket, now) {
        cells.write(cell, bucket, state, now);
    } else {
        write_first_use(cells, cell, id, bucket, state, now);
    }
}

/// The state of a bucket that is not stored.
#[inline]
pub(in crate::backend) fn absent(id: BucketId<'_>, bucket: &Bucket, now: Timestamp) -> State {
    // Only windows without a start have a phase, and it takes a hash.
    let phase = if bucket.needs_phase() { id.phase(bucket) } else { now };
    bucket.absent(now, phase)
}
