//! What the algorithm needs of a store of this crate.

use crate::algebra::{Bucket, State};
use crate::backend::charge::BucketId;
use crate::clock::Timestamp;

/// Buckets that one call reads and writes, while no other call does.
///
/// A store tells its buckets apart by *cells*, such as a fingerprint or an index, so it hashes the
/// name of each bucket once in a call. [`BucketStore`](super::BucketStore) is the public form of
/// this trait, in which cells are names.
pub(in crate::backend) trait CellStore {
    /// What tells one bucket from another in this call.
    type Cell: Copy + Ord;

    /// The state of a bucket, converted to the quota of `bucket`; the state of an absent one if it
    /// is not [stored](Self::is_stored).
    fn read(
        &mut self,
        cell: Self::Cell,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> State;

    /// Whether a bucket is stored. One that is full by another quota than `bucket` does not count,
    /// because it may as well have been dropped.
    fn is_stored(
        &mut self,
        cell: Self::Cell,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> bool;

    /// Whether a bucket is [stored](Self::is_stored) for another quota than `bucket`, so that
    /// [`read`](Self::read) converts it.
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

/// Stores a bucket from which nothing was taken, if this is its first use and it starts below its
/// capacity: it begins to fill now. Any other bucket stays as it is.
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

/// Stores a bucket that refused a charge, if it was converted or this is its first use.
///
/// The client is told a wait by the new quota, so the bucket has to gain by it from now on.
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
    // Only fixed windows without a start need a phase, which takes a hash.
    let phase = if bucket.needs_phase() { id.phase(bucket) } else { now };
    bucket.absent(now, phase)
}
