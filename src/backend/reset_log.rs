//! Which buckets were reset of late, so that tokens which were taken before give nothing back.
//!
//! # Design
//!
//! A reset forgives what was taken. If the permits from before it gave their tokens back
//! afterwards, these would be there twice: once by the reset, and once by the refund.
//!
//! ```text
//! take 5 of 5, reset, take 5 of 5, refund the first 5: 10 have run, and 5 more fit
//! ```
//!
//! So a log counts the resets of some buckets, and what a charge takes is [marked](ResetMark) with
//! how many there were by then. A refund with an older mark than the reset of its bucket gives
//! nothing back. No time is compared, as a charge and a reset may come within one tick.
//!
//! Nothing bounds the life of a permit, so no bounded log can know all resets that they have seen.
//! Each bucket belongs to one of some stripes, by its hash. A stripe lists the last [`STRIPE_LEN`]
//! of its buckets that were reset, each with its last reset. Of those that it does not list any
//! more it knows only the latest reset, and a mark that is older than that gives nothing back. So
//! nothing is given back twice, and a permit loses its refund only if it outlives the resets of
//! [`STRIPE_LEN`] other buckets of its stripe: with all [`STRIPES`], those of some 60,000 other
//! buckets. The stripes share one count, so a mark holds in each.

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
#[derive(Debug)]
pub(crate) struct ResetLog {
    /// How many there were, or more: see [`count_from`](Self::count_from).
    count: u64,
    /// None until the first reset, then as many as `width`.
    stripes: Vec<ResetStripe>,
    width: usize,
}

/// The resets of the buckets whose hashes are in one range.
#[derive(Debug, Default)]
struct ResetStripe {
    /// The last buckets that were reset, and as the how manyth; the oldest one first.
    recent: VecDeque<(u64, u64)>,
    /// The last reset of a bucket that is not listed any more; none if it is 0.
    forgotten: u64,
}

/// How many stripes all buckets of a store have at least. Full ones take 1 MiB.
const STRIPES: usize = 64;

/// How many buckets a stripe lists, which takes 16 bytes each.
const STRIPE_LEN: usize = 1_024;

/// How many marks there are.
const MARKS: u64 = 0xffff_ffff;

impl ResetLog {
    /// For the buckets of one of so many parts of a store, which share the stripes.
    pub(crate) fn for_part_of(parts: usize) -> Self {
        Self { count: 0, stripes: Vec::new(), width: STRIPES.div_ceil(parts.max(1)) }
    }

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

    /// Counts on from here, unless it has counted further. That makes what was taken before no
    /// older.
    #[cfg(feature = "memory")]
    pub(crate) fn count_from(&mut self, count: u64) {
        self.count = self.count.max(count);
    }

    /// A bucket is reset, which is given by its hash: all that was taken from it is forgiven.
    pub(crate) fn record(&mut self, bucket: u64) {
        self.count = self.count.saturating_add(1);
        if self.stripes.is_empty() {
            self.stripes.resize_with(self.width, ResetStripe::default);
        }
        let (index, nth) = (self.stripe_of(bucket), self.count);
        // There is one: it is below the width.
        if let Some(stripe) = self.stripes.get_mut(index) {
            stripe.record(bucket, nth);
        }
    }

    /// Whether what was taken from a bucket then was forgiven since.
    pub(crate) fn has_forgiven(&self, bucket: u64, mark: ResetMark) -> bool {
        let taken_at = self.count_at(mark);
        let stripe = self.stripes.get(self.stripe_of(bucket));
        taken_at != self.count && stripe.is_some_and(|stripe| stripe.has_forgiven(bucket, taken_at))
    }

    /// Which stripe a bucket belongs to: the high half of the product is even over the width.
    fn stripe_of(&self, bucket: u64) -> usize {
        let width = u128::try_from(self.width).unwrap_or(1);
        usize::try_from(u128::from(bucket).saturating_mul(width) >> 64).unwrap_or(0)
    }

    /// The count of a mark: the last one that had this mark, unless the permit has outlived four
    /// billion resets.
    fn count_at(&self, mark: ResetMark) -> u64 {
        let Some(begun) = u64::from(mark.0).checked_sub(1) else { return 0 };
        let since = (self.count % MARKS).saturating_add(MARKS).saturating_sub(begun) % MARKS;
        self.count.saturating_sub(since)
    }
}

impl ResetStripe {
    fn record(&mut self, bucket: u64, nth: u64) {
        if let Some(known) = self.recent.iter().position(|&(other, _)| other == bucket) {
            self.recent.remove(known);
        } else if self.recent.len() >= STRIPE_LEN
            && let Some((_, oldest)) = self.recent.pop_front()
        {
            self.forgotten = oldest;
        }
        self.recent.push_back((bucket, nth));
    }

    fn has_forgiven(&self, bucket: u64, taken_at: u64) -> bool {
        let mut since = self.recent.iter().rev().take_while(|&&(_, reset)| reset > taken_at);
        taken_at < self.forgotten || since.any(|&(other, _)| other == bucket)
    }
}

impl Default for ResetLog {
    /// For all buckets of a store.
    fn default() -> Self {
        Self::for_part_of(1)
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

    /// After four billion, marks count from 1 again.
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

    /// Another number for each, spread over all of them.
    fn hash(bucket: u64) -> u64 {
        bucket.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// The resets of others are many, and spread over the stripes.
    #[test]
    fn a_bucket_is_known_for_fifty_thousand_resets_of_others() {
        for parts in [1, 16, 64, 1_024] {
            // A part has its share of the buckets, and so of their resets.
            let share = u64::try_from(parts).unwrap().min(64);
            let (mut log, others) = (ResetLog::for_part_of(parts), 50_000 / share);
            let before = log.mark();
            log.record(hash(0));
            let after = log.mark();
            for other in 1..=others {
                log.record(hash(other));
                log.record(hash(other));
            }
            let forgiven = [before, after].map(|mark| log.has_forgiven(hash(0), mark));
            assert_eq!(forgiven, [true, false], "one of {parts} parts");
            for other in others..3 * others {
                log.record(hash(other));
            }
            let forgiven = [before, after].map(|mark| log.has_forgiven(hash(0), mark));
            assert_eq!(forgiven, [true, true], "one of {parts} parts: nothing comes back twice");
            let most = STRIPES.div_ceil(parts) * STRIPE_LEN;
            let listed: usize = log.stripes.iter().map(|stripe| stripe.recent.len()).sum();
            assert!(listed <= most, "{listed} of {most}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Beside a model that keeps all resets: nothing is given back twice, and only a mark that
        /// has seen more buckets of the stripe reset than are listed is taken for older than it is.
        #[test]
        fn forgives_all_that_a_boundless_log_would(
            parts in prop::sample::select(vec![1_usize, 16, 64]),
            buckets in prop::collection::vec((0_u64..3_000, 0_u64..3_000), 1..4_000),
        ) {
            // Most are in the first stripe, so that it forgets some and the others forget none.
            let hash = |bucket: u64| if bucket.is_multiple_of(8) { hash(bucket) } else { bucket };
            let mut log = ResetLog::for_part_of(parts);
            let (mut last, mut marks) = (HashMap::new(), Vec::new());
            for (nth, (bucket, other)) in (0_usize..).zip(buckets) {
                marks.push(log.mark());
                // Some again and again, and some hardly ever.
                let bucket = if nth % 3 == 0 { bucket % 9 } else { bucket };
                log.record(hash(bucket));
                last.insert(hash(bucket), nth);
                if nth % 101 != 100 {
                    continue;
                }
                let taken = usize::try_from(other).unwrap() % marks.len();
                for asked in [other, other % 9, other & !7].map(hash) {
                    let truth = last.get(&asked).is_some_and(|&reset| reset >= taken);
                    let near = |bucket: u64| log.stripe_of(bucket) == log.stripe_of(asked);
                    let since = last.iter().filter(|&(_, &reset)| reset >= taken);
                    let seen = since.filter(|&(&bucket, _)| near(bucket)).count();
                    let forgiven = log.has_forgiven(asked, marks[taken]);
                    prop_assert!(forgiven == truth || (forgiven && seen > STRIPE_LEN));
                }
            }
            prop_assert_eq!(log.stripes.len(), STRIPES / parts);
            prop_assert!(log.stripes.iter().all(|stripe| stripe.recent.len() <= STRIPE_LEN));
        }
    }
}
