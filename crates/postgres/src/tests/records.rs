//! A map of records, on which the algorithm of the crate decides: what the server has to do.

use std::collections::BTreeMap;

use super::encode::name;
use tollgate::backend::{BucketId, BucketRecord, BucketStore, adjust_all, apply_all, reset_all};
use tollgate::clock::Timestamp;
use tollgate_conformance::history::{Step, TestAdjustment, TestBucket, TestCharge};

pub(super) struct Records {
    pub(super) now: Timestamp,
    pub(super) stored: BTreeMap<Vec<u8>, BucketRecord>,
}

impl Records {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { now, stored: BTreeMap::new() }
    }

    /// The numbers of a bucket, as `decide` returns them.
    pub(super) fn cell(&self, name: &[u8]) -> [i64; 6] {
        self.stored.get(name).map_or([0; 6], BucketRecord::to_numbers)
    }

    /// Carries out a step.
    pub(super) fn play(&mut self, step: &Step) -> Vec<tollgate::backend::Reading> {
        match step {
            Step::Apply(charges) => {
                let charges: Vec<_> = charges.iter().map(TestCharge::charge).collect();
                apply_all(self, &charges).readings().to_vec()
            }
            Step::Adjust(adjustments) => {
                let adjustments: Vec<_> =
                    adjustments.iter().map(TestAdjustment::adjustment).collect();
                adjust_all(self, &adjustments).readings().to_vec()
            }
            Step::Reset(targets) => {
                let ids: Vec<_> = targets.iter().map(TestBucket::id).collect();
                reset_all(self, &ids);
                Vec::new()
            }
        }
    }
}

impl BucketStore for Records {
    fn now(&mut self) -> Timestamp {
        self.now
    }

    fn read(&mut self, id: BucketId<'_>) -> Option<BucketRecord> {
        self.stored.get(&name(id)).copied()
    }

    fn write(&mut self, id: BucketId<'_>, record: BucketRecord) {
        self.stored.insert(name(id), record);
    }

    fn forget(&mut self, id: BucketId<'_>) {
        self.stored.remove(&name(id));
    }
}
