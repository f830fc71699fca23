//! A charge on one bucket, under the lock of its shard.

use super::fingerprint::Fingerprint;
use super::shard::Shard;
use super::table::Slot;
use crate::algebra::{Bucket, Charged, State};
use crate::backend::answer::Remarks;
use crate::backend::apply::{CellStore, apply_one};
use crate::backend::charge::{BucketId, Charge};
use crate::backend::record::Found;
use crate::clock::Timestamp;

/// Why a bucket was not found with the quota of a charge.
#[derive(Clone, Copy, Debug)]
pub(super) enum LookupMiss {
    New,
    OtherQuota,
}

impl Shard {
    /// Decides one charge and stores what it leaves, if the bucket is stored with the quota of the
    /// charge. This is the fast path of nearly all decisions.
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
        // The slot is borrowed from the search to the write, so nothing moves the bucket in
        // between, and one search is enough.
        let (charged, _none) = apply_one(&mut KnownSlot(slot), (), charge, now);
        Ok(charged)
    }

    /// The slot and the state of a bucket that is stored with this quota.
    #[inline(always)]
    pub(super) fn find_known(&self, print: Fingerprint, bucket: &Bucket) -> Option<(usize, State)> {
        let index = self.table.find(print.tag())?;
        let slot = self.table.get(index)?;
        let is_known = self.quotas.get(slot.quota()?) == Some(bucket);
        is_known.then_some((index, slot.state()))
    }

    /// Decides one charge on a bucket that [`charge_known`](Self::charge_known) did not find.
    #[inline(always)]
    pub(super) fn charge_unknown(
        &mut self,
        print: Fingerprint,
        unknown: LookupMiss,
        charge: &Charge<'_>,
        now: Timestamp,
    ) -> (Charged, Remarks) {
        match unknown {
            LookupMiss::New => apply_one(&mut NewSlot { shard: self, print }, (), charge, now),
            LookupMiss::OtherQuota => self.charge_other(print, charge, now),
        }
    }

    /// Decides one charge on a bucket that is stored with another quota.
    #[cold]
    fn charge_other(
        &mut self,
        print: Fingerprint,
        charge: &Charge<'_>,
        now: Timestamp,
    ) -> (Charged, Remarks) {
        // The shard was locked all the time, so the bucket is still there.
        let found = self.table.find(print.tag());
        apply_one(&mut FoundSlot { shard: self, found, print }, (), charge, now)
    }
}

/// The slot of a bucket that is stored with the quota of the charge.
struct KnownSlot<'s>(&'s mut Slot);

impl CellStore for KnownSlot<'_> {
    type Cell = ();

    #[inline(always)]
    fn find(&mut self, (): (), _: BucketId<'_>, _: &Bucket, _: Timestamp) -> Found {
        Found::Own(self.0.state())
    }

    #[inline]
    fn write(&mut self, (): (), _: &Bucket, state: State, _: Timestamp) {
        self.0.set_state(state);
    }
}

/// The place of a bucket that is not stored.
struct NewSlot<'s> {
    shard: &'s mut Shard,
    print: Fingerprint,
}

impl CellStore for NewSlot<'_> {
    type Cell = ();

    #[inline(always)]
    fn find(&mut self, (): (), _: BucketId<'_>, _: &Bucket, _: Timestamp) -> Found {
        Found::Absent
    }

    #[inline(always)]
    fn write(&mut self, (): (), bucket: &Bucket, state: State, now: Timestamp) {
        self.shard.store(None, self.print, bucket, state, now);
    }
}

/// The result of a search: a bucket's slot, or none if it is not stored.
struct FoundSlot<'s> {
    shard: &'s mut Shard,
    found: Option<usize>,
    print: Fingerprint,
}

impl CellStore for FoundSlot<'_> {
    type Cell = ();

    fn find(&mut self, (): (), id: BucketId<'_>, bucket: &Bucket, now: Timestamp) -> Found {
        self.shard.found(self.found, id, bucket, now)
    }

    fn write(&mut self, (): (), bucket: &Bucket, state: State, now: Timestamp) {
        // The last that is done with `found`: storing a new bucket may move others.
        self.shard.store(self.found, self.print, bucket, state, now);
    }
}
