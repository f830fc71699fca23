//! A store in virtual time: records in a map, by the algorithm of all stores.

use std::collections::HashMap;

use tollgate::backend::{
    Adjustment, Applied, BucketId, BucketRecord, BucketStore, Charge, OwnedBucketId, adjust_all,
    apply_all, reset_all,
};
use tollgate::clock::Timestamp;

/// Records in a map, at a time that is set.
#[derive(Debug)]
pub(super) struct VirtualStore {
    pub(super) now: Timestamp,
    records: HashMap<OwnedBucketId, BucketRecord>,
}

impl VirtualStore {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { now, records: HashMap::new() }
    }

    pub(super) fn apply(&mut self, charges: &[Charge<'_>]) -> Applied {
        apply_all(self, charges)
    }

    pub(super) fn adjust(&mut self, adjustments: &[Adjustment<'_>]) -> Applied {
        adjust_all(self, adjustments)
    }

    pub(super) fn reset(&mut self, ids: &[BucketId<'_>]) {
        reset_all(self, ids);
    }

    /// Forgets all buckets, as a server that is flushed or restarts empty.
    pub(super) fn flush(&mut self) {
        self.records.clear();
    }
}

impl BucketStore for VirtualStore {
    fn now(&mut self) -> Timestamp {
        self.now
    }

    fn read(&mut self, id: BucketId<'_>) -> Option<BucketRecord> {
        self.records.get(&id.into_owned()).copied()
    }

    fn write(&mut self, id: BucketId<'_>, record: BucketRecord) {
        self.records.insert(id.into_owned(), record);
    }

    fn forget(&mut self, id: BucketId<'_>) {
        self.records.remove(&id.into_owned());
    }
}
