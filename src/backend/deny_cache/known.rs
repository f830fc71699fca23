//! What is known of the buckets of a call, as a store that the algorithm reads.

use std::time::Duration;

use smallvec::SmallVec;

use super::table::SeenBucket;
use crate::algebra::Verdict;
use crate::backend::answer::Applied;
use crate::backend::apply::{BucketStore, apply_all};
use crate::backend::charge::{BucketId, Charge};
use crate::backend::record::BucketRecord;
use crate::clock::Timestamp;

/// The buckets of a call, as a refusal has shown them.
#[derive(Debug, Default)]
pub(super) struct KnownBuckets<'a> {
    records: SmallVec<[(BucketId<'a>, BucketRecord); 2]>,
    /// The time of the store is one of these, or between them.
    earliest: Option<Timestamp>,
    latest: Option<Timestamp>,
    /// The time at which the algorithm decides.
    now: Option<Timestamp>,
}

impl<'a> KnownBuckets<'a> {
    /// Adds a bucket; `None` if too much time has passed since it was seen, or if the clock has gone
    /// back.
    pub(super) fn push(
        &mut self,
        id: BucketId<'a>,
        seen: SeenBucket,
        now: Timestamp,
        max_age: Duration,
    ) -> Option<()> {
        let asked_before = now.since(seen.sent);
        if asked_before > max_age || now < seen.answered {
            return None;
        }
        // Clocks that a time server keeps differ in rate by less than a thousandth.
        let at_most = asked_before.saturating_add(asked_before / 1_000);
        // Of several sightings, the store's time is after the latest that each of them proves.
        self.latest = self.latest.max(Some(seen.decided + at_most));
        self.earliest = self.earliest.max(Some(seen.decided + now.since(seen.answered)));
        self.records.push((id, BucketRecord::new(&seen.bucket, seen.state)));
        Some(())
    }
}

/// The refusal of these charges; `None` if the store might admit them by now.
pub(super) fn is_still_refused(
    known: &mut KnownBuckets<'_>,
    charges: &[Charge<'_>],
) -> Option<Applied> {
    known.now = known.latest;
    if apply_all(known, charges).verdict() != Verdict::Refused {
        return None;
    }
    known.now = known.earliest;
    Some(apply_all(known, charges)).filter(|applied| applied.verdict() == Verdict::Refused)
}

impl BucketStore for KnownBuckets<'_> {
    fn now(&mut self) -> Timestamp {
        self.now.unwrap_or(Timestamp::UNIX_EPOCH)
    }

    fn read(&mut self, id: BucketId<'_>) -> Option<BucketRecord> {
        self.records.iter().find(|(known, _)| *known == id).map(|(_, record)| *record)
    }

    // What would be stored is not: either the charges are refused, or the store is asked.
    fn write(&mut self, _: BucketId<'_>, _: BucketRecord) {}

    fn forget(&mut self, _: BucketId<'_>) {}
}
