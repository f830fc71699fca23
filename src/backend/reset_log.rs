//! Which buckets were reset of late, so that tokens which were taken before give nothing back.
//!
//! # Design
//!
//! A reset forgives what was taken. If the permits from before it gave their tokens back afterwards,
//! these would be there twice: once by the reset, and once by the refund.
//!
//! ```text
//! take 5 of 5, reset, take 5 of 5, refund the first 5: 10 have run, and 5 more fit
//! ```
//!
//! So a log counts the resets of some buckets, and what a charge takes is [marked](ResetMark) with how
//! many there were by then. A refund with an older mark than the reset of its bucket gives nothing
//! back. No time is compared, as a charge and a reset may come within one tick.
//!
//! Permits may live for ever, so no bounded log can know all resets that they have seen. The last
//! [`KEPT`] buckets are listed, each with its last reset. Of those that are not listed any more, only
//! the latest reset is known, and a mark that is older than that gives nothing back. So a permit that
//! outlives the resets of so many other buckets may lose its refund, and nothing is given back twice.

use std::collections::VecDeque;
use std::fmt;

/// How many resets there were when tokens were taken.
#[derive(Clone, Copy)]
pub(crate) struct ResetMark(u32);

impl ResetMark {
    /// There were none, or none that was counted.
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// The resets of some buckets.
#[derive(Debug, Default)]
pub(crate) struct ResetLog {
    /// How many there were, or more: see [`count_from`](Self::count_from).
    count: u64,
    /// The last buckets that were reset, and as the how manyth; the oldest one first.
    recent: VecDeque<(u64, u64)>,
    /// The last reset of a bucket that is not listed any more; none if it is 0.
    forgotten: u64,
}

/// How many buckets are listed, which takes 16 bytes each.
const KEPT: usize = 1_024;

/// How many marks there are.
const MARKS: u64 = 0xffff_ffff;

impl ResetLog {
    /// Whether there were none.
    #[cfg(feature = "memory")]
    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What is taken from now on is marked with this, which is not [`NONE`](ResetMark::NONE).
    pub(crate) fn mark(&self) -> ResetMark {
        // It begins anew at 1 after four billion: see `ResetLog::count_at`.
        let begun = u32::try_from(self.count % MARKS).unwrap_or(0);
        ResetMark(begun.saturating_add(1))
    }

    /// How many there were, or more.
    #[cfg(feature = "memory")]
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// Counts on from here, unless it has counted further. That makes what was taken before no older.
    #[cfg(feature = "memory")]
    pub(crate) fn count_from(&mut self, count: u64) {
        self.count = self.count.max(count);
    }

    /// A bucket is reset: all that was taken from it is forgiven.
    pub(crate) fn record(&mut self, bucket: u64) {
        self.count = self.count.saturating_add(1);
        if let Some(known) = self.recent.iter().position(|&(other, _)| other == bucket) {
            self.recent.remove(known);
        } else if self.recent.len() >= KEPT
            && let Some((_, oldest)) = self.recent.pop_front()
        {
            self.forgotten = oldest;
        }
        self.recent.push_back((bucket, self.count));
    }

    /// Whether what was taken from a bucket then was forgiven since.
    pub(crate) fn has_forgiven(&self, bucket: u64, mark: ResetMark) -> bool {
        let taken_at = self.count_at(mark);
        if taken_at == self.count {
            return false;
        }
        let mut since = self.recent.iter().rev().take_while(|&&(_, reset)| reset > taken_at);
        taken_at < self.forgotten || since.any(|&(other, _)| other == bucket)
    }

    /// The count of a mark: the last one that had this mark, unless the permit has outlived four
    /// billion resets.
    fn count_at(&self, mark: ResetMark) -> u64 {
        let Some(begun) = u64::from(mark.0).checked_sub(1) else { return 0 };
        let since = (self.count % MARKS).saturating_add(MARKS).saturating_sub(begun) % MARKS;
        self.count.saturating_sub(since)
    }
}

/// Marks are no part of what a bucket answers: two readings are equal whatever theirs are.
impl PartialEq for ResetMark {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ResetMark {}

impl fmt::Debug for ResetMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResetMark")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_taken_before_a_reset_of_its_bucket_is_forgiven() {
        let mut log = ResetLog::default();
        let before = log.mark();
        assert!(!log.has_forgiven(1, before));
        log.record(1);
        let after = log.mark();
        assert_eq!([before, after].map(|mark| log.has_forgiven(1, mark)), [true, false]);
        assert_eq!([before, after].map(|mark| log.has_forgiven(2, mark)), [false, false]);
        log.record(2);
        assert_eq!([before, after].map(|mark| log.has_forgiven(1, mark)), [true, false]);
        assert_eq!([before, after].map(|mark| log.has_forgiven(2, mark)), [true, true]);
    }

    /// Marks begin anew after four billion.
    #[test]
    fn a_mark_is_right_for_four_billion_resets() {
        let far = u64::from(u32::MAX) * 7;
        let mut log = ResetLog { count: far - 1, ..ResetLog::default() };
        let marks: Vec<_> = (0..4)
            .map(|bucket| {
                let mark = log.mark();
                log.record(bucket);
                mark
            })
            .collect();
        for (nth, mark) in (0..).zip(marks) {
            let forgiven = (0..4).map(|bucket| log.has_forgiven(bucket, mark));
            assert_eq!(forgiven.collect::<Vec<_>>(), [nth < 1, nth < 2, nth < 3, true]);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Beside a model that keeps all resets: nothing is given back twice, and only a mark that has
        /// seen more buckets reset than are listed is taken for older than it is.
        #[test]
        fn forgives_all_that_a_boundless_log_would(
            buckets in prop::collection::vec((0_u64..3_000, 0_u64..3_000), 1..4_000),
        ) {
            let (mut log, mut last, mut marks) = (ResetLog::default(), HashMap::new(), Vec::new());
            for (nth, (bucket, other)) in (0_usize..).zip(buckets) {
                marks.push(log.mark());
                // Some again and again, and some hardly ever.
                let bucket = if nth % 3 == 0 { bucket % 7 } else { bucket };
                log.record(bucket);
                last.insert(bucket, nth);
                if nth % 101 != 100 {
                    continue;
                }
                let taken = usize::try_from(other).unwrap() % marks.len();
                for asked in [other, other % 7] {
                    let truth = last.get(&asked).is_some_and(|&reset| reset >= taken);
                    let seen = last.values().filter(|&&reset| reset >= taken).count();
                    let forgiven = log.has_forgiven(asked, marks[taken]);
                    prop_assert!(forgiven == truth || (forgiven && seen > KEPT));
                }
            }
            prop_assert!(log.recent.len() <= KEPT);
        }
    }
}
