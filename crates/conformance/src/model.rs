//! What the algorithm answers: a map of records, at the time that the store reports.

use std::collections::BTreeMap;

use tollgate::backend::{BucketId, BucketRecord, BucketStore, OwnedBucketId};
use tollgate::clock::Timestamp;

/// A store that drops nothing, and whose clock shows what the store under test has answered.
#[derive(Debug)]
pub(super) struct RecordMap {
    pub(super) now: Timestamp,
    records: BTreeMap<OwnedBucketId, BucketRecord>,
}

impl RecordMap {
    pub(super) fn new() -> Self {
        Self { now: Timestamp::UNIX_EPOCH, records: BTreeMap::new() }
    }

    /// The record of a bucket.
    pub(super) fn get(&self, id: BucketId<'_>) -> Option<BucketRecord> {
        self.records.get(&id.into_owned()).copied()
    }

    /// Removes the buckets that a store may have dropped by `now`, and returns their names.
    pub(super) fn remove_droppable(&mut self, now: Timestamp) -> Vec<OwnedBucketId> {
        let may_drop =
            |record: &BucketRecord| record.droppable_at().is_some_and(|full| full <= now);
        let full = self.records.iter().filter(|(_, record)| may_drop(record));
        let full: Vec<_> = full.map(|(id, _)| id.clone()).collect();
        for id in &full {
            self.records.remove(id);
        }
        full
    }
}

impl BucketStore for RecordMap {
    fn now(&mut self) -> Timestamp {
        self.now
    }

    fn read(&mut self, id: BucketId<'_>) -> Option<BucketRecord> {
        self.get(id)
    }

    fn write(&mut self, id: BucketId<'_>, record: BucketRecord) {
        self.records.insert(id.into_owned(), record);
    }

    fn forget(&mut self, id: BucketId<'_>) {
        self.records.remove(&id.into_owned());
    }
}
