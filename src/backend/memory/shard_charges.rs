//! What a charge on one bucket does under the lock of its shard.

use super::fingerprint::Fingerprint;
use super::shard::Shard;
use super::table::Slot;
use crate::algebra::{Bucket, Charged, State};
use crate::backend::apply::{CellStore, apply_one};
use crate::backend::charge::{BucketId, Charge};
use crate::clock::Timestamp;

/// Why a bucket is not known by the numbers of a charge.
#[derive(Clone, Copy, Debug)]
pub(super) enum LookupMiss {
    New,
    OtherQuota,
}

impl Shard {
    /// Decides one charge and stores what is left, if the bucket is known by the numbers of the
    /// charge.
    #[inline(always)]
    pub(super) fn charge_known(
        &mut self,
        print: Fingerprint,
        charge: &Charge<'_>,
        now: Timestamp,
    ) -> Result<Charged, LookupMiss> {
        let slot = self.table.find_mut(print.tag()).ok_or(LookupMiss::New)?;
        if slot.quota().and_then(|index| self.quotas.get(index)) != Some(charge.bucket()) {
            return Err(LookupMiss::OtherQuota);
        }
        Ok(apply_one(&mut KnownSlot(slot), (), charge, now))
    }

    /// The slot of a bucket that is known by these numbers, and what it holds.
    #[inline(always)]
    pub(super) fn find_known(&self, print: Fingerprint, bucket: &Bucket) -> Option<(usize, State)> {
        let index = self.table.find(print.tag())?;
        let slot = self.table.get(index)?;
        let is_known = self.quotas.get(slot.quota()?) == Some(bucket);
        is_known.then_some((index, slot.state()))
    }

    /// As [`charge_known`](Self::charge_known), for a bucket about which that said `unknown`.
    pub(super) fn charge_unknown(
        &mut self,
        print: Fingerprint,
        unknown: LookupMiss,
        charge: &Charge<'_>,
        now: Timestamp,
    ) -> Charged {
        let found = match unknown {
            LookupMiss::New => None,
            LookupMiss::OtherQuota => self.table.find(print.tag()),
        };
        apply_one(&mut FoundSlot { shard: self, found, print }, (), charge, now)
    }
}

/// A bucket whose slot is at hand, and has the numbers of the charge.
struct KnownSlot<'s>(&'s mut Slot);

impl CellStore for KnownSlot<'_> {
    type Cell = ();

    #[inline]
    fn read(&mut self, (): (), _: BucketId<'_>, _: &Bucket, _: Timestamp) -> State {
        self.0.state()
    }

    #[inline]
    fn is_stored(&mut self, (): (), _: BucketId<'_>, _: &Bucket, _: Timestamp) -> bool {
        true
    }

    #[inline]
    fn is_converted(&mut self, (): (), _: BucketId<'_>, _: &Bucket, _: Timestamp) -> bool {
        false
    }

    #[inline]
    fn write(&mut self, (): (), _: &Bucket, state: State, _: Timestamp) {
        self.0.set_state(state);
    }
}

/// A bucket that was searched for, and is in a slot of a shard or not stored.
struct FoundSlot<'s> {
    shard: &'s mut Shard,
    found: Option<usize>,
    print: Fingerprint,
}

impl CellStore for FoundSlot<'_> {
    type Cell = ();

    fn read(&mut self, (): (), id: BucketId<'_>, bucket: &Bucket, now: Timestamp) -> State {
        self.shard.state(self.found, id, bucket, now)
    }

    fn is_stored(&mut self, (): (), id: BucketId<'_>, bucket: &Bucket, now: Timestamp) -> bool {
        self.shard.stored(self.found, id, bucket, now).is_some()
    }

    fn is_converted(&mut self, (): (), id: BucketId<'_>, bucket: &Bucket, now: Timestamp) -> bool {
        self.shard.is_converted(self.found, id, bucket, now)
    }

    fn write(&mut self, (): (), bucket: &Bucket, state: State, now: Timestamp) {
        self.shard.store(self.found, self.print, bucket, state, now);
    }
}
