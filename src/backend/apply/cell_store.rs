//! What the algorithm needs of a store of this crate.

use crate::algebra::{Bucket, State};
use crate::backend::charge::BucketId;
use crate::backend::record::Found;
use crate::clock::Timestamp;

/// Buckets that one call reads and writes, while no other call does.
///
/// A store tells its buckets apart by *cells*, such as a fingerprint or an index, so it hashes the
/// name of each bucket once in a call. [`BucketStore`](super::BucketStore) is the public form of
/// this trait, in which cells are names.
pub trait CellStore {
    /// What tells one bucket from another in this call.
    type Cell: Copy + Ord;

    /// What is stored of a bucket, for a call by the numbers of `bucket`.
    fn find(
        &mut self,
        cell: Self::Cell,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> Found;

    /// The state of a bucket that is not stored.
    fn absent(
        &self,
        _cell: Self::Cell,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> State {
        absent(id, bucket, now)
    }

    /// Stores the state of a bucket.
    fn write(&mut self, cell: Self::Cell, bucket: &Bucket, state: State, now: Timestamp);
}

/// Reads a bucket in the numbers of `bucket`.
#[inline(always)]
pub(super) fn read<C: CellStore>(
    cells: &C,
    cell: C::Cell,
    found: &Found,
    id: BucketId<'_>,
    bucket: &Bucket,
    now: Timestamp,
) -> State {
    found.state_in(id, bucket, now).unwrap_or_else(|| cells.absent(cell, id, bucket, now))
}

/// Stores a bucket from which nothing was taken, if this is its first use and it starts below its
/// capacity: it begins to fill now. Any other bucket stays as it is.
#[inline]
pub(super) fn write_first_use<C: CellStore>(
    cells: &mut C,
    cell: C::Cell,
    found: &Found,
    bucket: &Bucket,
    state: State,
    now: Timestamp,
) {
    if !bucket.is_droppable_when_full() && found.is_absent() {
        cells.write(cell, bucket, state, now);
    }
}

/// Stores a bucket that refused a charge, if it takes the numbers of the charge or this is its
/// first use.
///
/// The client is told a wait by the new numbers, so the bucket has to gain by them from now on.
#[inline]
pub(super) fn write_refused<C: CellStore>(
    cells: &mut C,
    cell: C::Cell,
    found: &Found,
    bucket: &Bucket,
    state: State,
    now: Timestamp,
) {
    match found {
        Found::Other(record) if record.bucket().yields_to(bucket) => {
            cells.write(cell, bucket, state, now);
        }
        _ => write_first_use(cells, cell, found, bucket, state, now),
    }
}

/// The state of a bucket that is not stored.
#[inline]
#[must_use]
pub fn absent(id: BucketId<'_>, bucket: &Bucket, now: Timestamp) -> State {
    // Only fixed windows without a start need a phase, which takes a hash.
    let phase = if bucket.needs_phase() { id.phase(bucket) } else { now };
    bucket.absent(now, phase)
}
