//! Which buckets were reset lately, so that a refund from before a reset gives nothing back.
//!
//! # Design
//!
//! A reset forgives what was taken. If permits from before the reset gave their tokens back
//! afterwards, the bucket would get these tokens twice: once by the reset, and once by the refund.
//!
//! ```text
//! take 5 of 5, reset, take 5 of 5, refund the first 5: 10 have run, and 5 more fit
//! ```
//!
//! So a log counts resets, and each charge keeps the count as a [mark](ResetMark). A refund gives
//! nothing back if its bucket was reset after its mark. Marks are counts and not times, because a
//! charge and a reset may happen in one tick.
//!
//! In the example, the first take has mark 1. The reset makes the count 1, and is listed as reset 1
//! of this bucket; the second take has mark 2. A refund with mark 1 stands for the count 0, which
//! is before reset 1, so it is forgiven. A refund with mark 2 stands for the count 1, so it is not.
//!
//! **Bounded memory.** A permit may live for any time, so no bounded log can know all resets that
//! it has seen. Buckets are divided into [`STRIPES`] by their hashes. A stripe lists the last
//! [`STRIPE_LEN`] of its buckets that were reset, each with its last reset. Of the buckets that it
//! no longer lists it knows only the latest reset, and a mark from before that gives nothing back.
//! So the log errs on one side: no tokens are given back twice, and a permit loses its refund only
//! if it outlives the resets of [`STRIPE_LEN`] other buckets of its stripe. With all stripes, that
//! is some 60,000 other buckets. The stripes share one count, so a mark is valid in each.

use std::collections::VecDeque;
use std::fmt;

/// The count of resets when tokens were taken, in 32 bits.
#[derive(Clone, Copy)]
pub(crate) struct ResetMark(u32);

impl ResetMark {
    /// No reset so far, or a store that does not count resets.
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// The latest resets of a store, or of one part of it.
#[derive(Debug)]
pub(crate) struct ResetLog {
    /// The number of resets, or more: see [`count_from`](Self::count_from).
    count: u64,
    /// Empty until the first reset, then of the length `width`.
    stripes: Vec<ResetStripe>,
    width: usize,
}

/// The latest resets of the buckets with hashes in one range.
#[derive(Debug, Default)]
struct ResetStripe {
    /// The hashes of the buckets that were reset last, each with the count at its last reset; the
    /// oldest first.
    recent: VecDeque<(u64, u64)>,
    /// The count at the latest reset of a bucket that is no longer listed; 0 if there is none.
    forgotten: u64,
}

/// The number of stripes of a store, at least. When all are full they take 1 MiB.
const STRIPES: usize = 64;

/// The number of buckets that a stripe lists, in 16 bytes each.
const STRIPE_LEN: usize = 1_024;

/// The number of different marks.
const MARKS: u64 = 0xffff_ffff;

impl ResetLog {
    /// A log for one of so many parts of a store, which share the stripes.
    pub(crate) fn for_part_of(parts: usize) -> Self {
        Self { count: 0, stripes: Vec::new(), width: STRIPES.div_ceil(parts.max(1)) }
    }

    /// Whether no bucket was reset so far.
    #[cfg(feature = "memory")]
    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The mark of what is taken now. It is never [`NONE`](ResetMark::NONE).
    pub(crate) fn mark(&self) -> ResetMark {
        // Marks start over at 1 after four billion: see `ResetLog::count_at`.
        let begun = u32::try_from(self.count % MARKS).unwrap_or(0);
        ResetMark(begun.saturating_add(1))
    }

    /// The number of resets, or more.
    #[cfg(feature = "memory")]
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// Raises the count to this, unless it is larger already. That makes no earlier mark older.
    #[cfg(feature = "memory")]
    pub(crate) fn count_from(&mut self, count: u64) {
        self.count = self.count.max(count);
    }

    /// Goes on from the count of another log. What was taken with a mark from before that count
    /// gives nothing back, since this log does not know which buckets were reset.
    #[cfg(feature = "memory")]
    pub(crate) fn continue_from(&mut self, count: u64) {
        self.count_from(count);
        self.stripes.resize_with(self.width, ResetStripe::default);
        self.stripes.iter_mut().for_each(|stripe| stripe.forgotten = stripe.forgotten.max(count));
    }

    /// Records the reset of a bucket, given by its hash: all that was taken from it is forgiven.
    pub(crate) fn record(&mut self, bucket: u64) {
        self.count = self.count.saturating_add(1);
        if self.stripes.is_empty() {
            self.stripes.resize_with(self.width, ResetStripe::default);
        }
        let (index, nth) = (self.stripe_of(bucket), self.count);
        // The index is below the width, so the stripe exists.
        if let Some(stripe) = self.stripes.get_mut(index) {
            stripe.record(bucket, nth);
        }
    }

    /// Whether a reset since `mark` has forgiven what was taken from a bucket.
    pub(crate) fn has_forgiven(&self, bucket: u64, mark: ResetMark) -> bool {
        let taken_at = self.count_at(mark);
        let stripe = self.stripes.get(self.stripe_of(bucket));
        taken_at != self.count && stripe.is_some_and(|stripe| stripe.has_forgiven(bucket, taken_at))
    }

    /// The stripe of a bucket: the upper half of the product spreads hashes evenly over the
    /// stripes.
    fn stripe_of(&self, bucket: u64) -> usize {
        let width = u128::try_from(self.width).unwrap_or(1);
        usize::try_from(u128::from(bucket).saturating_mul(width) >> 64).unwrap_or(0)
    }

    /// The latest count with this mark. It is the right one unless the permit has outlived four
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
    /// A log for a whole store.
    fn default() -> Self {
        Self::for_part_of(1)
    }
}

/// Marks are not part of an answer: two readings are equal whatever their marks are.
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
    use tollgate_testing::cases::times;

    use super::*;

    #[test]
    fn a_reset_forgives_what_was_taken_from_its_bucket_before() {
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

    /// After four billion resets, marks start over at 1.
    #[test]
    fn a_mark_is_valid_for_four_billion_resets() {
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

    /// A different hash for each bucket, spread over all hashes.
    fn hash(bucket: u64) -> u64 {
        bucket.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Many other buckets are reset, and they are spread over the stripes.
    #[test]
    fn a_reset_is_remembered_for_fifty_thousand_resets_of_other_buckets() {
        for parts in [1, 16, 64, 1_024] {
            // A part of the store has its share of the buckets, and so of their resets.
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
            for other in others..2 * others {
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
        #![proptest_config(ProptestConfig::with_cases(times(128, 4).try_into().unwrap()))]

        /// Compared with a model that keeps all resets: nothing is given back twice, and a mark is
        /// only taken for older than it is if more buckets of its stripe were reset since than the
        /// stripe lists.
        #[test]
        fn the_log_forgives_all_that_an_unbounded_log_would(
            parts in prop::sample::select(vec![1_usize, 16, 64]),
            buckets in prop::collection::vec((0_u64..3_000, 0_u64..3_000), 1..4_000),
        ) {
            // Most buckets are in the first stripe, so that it forgets some, and the others forget
            // none.
            let hash = |bucket: u64| if bucket.is_multiple_of(8) { hash(bucket) } else { bucket };
            let mut log = ResetLog::for_part_of(parts);
            let (mut last, mut marks) = (HashMap::new(), Vec::new());
            for (nth, (bucket, other)) in (0_usize..).zip(buckets) {
                marks.push(log.mark());
                // Some buckets are reset again and again, and others rarely.
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
