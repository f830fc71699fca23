//! Buckets from numbers that a store has kept.

use std::num::NonZeroU64;

use super::bucket::Bucket;
use super::state::Units;
use crate::quota::Kind;
#[cfg(feature = "memory")]
use crate::quota::{Calendar, MAX_UNITS, WindowStart};

impl Bucket {
    /// The quota that a state was stored for, from its stored numbers; `None` if no quota has
    /// these.
    ///
    /// They suffice to read and [`rescale`](super::rescale) the state, not to charge it: a negative
    /// `step` tells that the bucket starts below its capacity, but how far below is not stored.
    pub(crate) fn from_stored(gain: i64, token: i64, capacity: Units, step: i64) -> Option<Self> {
        let positive = |number: i64| NonZeroU64::new(u64::try_from(number).ok()?);
        let initial = if step < 0 { capacity.checked_sub(1)? } else { capacity };
        let step = NonZeroU64::new(step.unsigned_abs())?;
        // The kind is not stored. A token bucket with longer steps reads like a window that long.
        let kind = if step == NonZeroU64::MIN { Kind::TokenBucket } else { Kind::FixedWindow };
        let (gain, token) = (positive(gain)?, positive(token)?);
        (initial >= 0).then_some(Self {
            kind,
            step,
            gain,
            token,
            capacity,
            floor: 0,
            initial,
            start: None,
            // `seen_by` adds it where it is known.
            calendar: None,
        })
    }
}

/// All numbers of a [`Bucket`], for a store that keeps each of them.
#[cfg(feature = "memory")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct BucketNumbers {
    pub(crate) kind: Kind,
    pub(crate) step: u64,
    pub(crate) gain: u64,
    pub(crate) token: u64,
    pub(crate) capacity: Units,
    pub(crate) floor: Units,
    pub(crate) initial: Units,
    pub(crate) start: Option<WindowStart>,
}

#[cfg(feature = "memory")]
impl BucketNumbers {
    pub(crate) const fn new(bucket: &Bucket) -> Self {
        Self {
            kind: bucket.kind(),
            step: bucket.step(),
            gain: bucket.gain(),
            token: bucket.token(),
            capacity: bucket.capacity(),
            floor: bucket.floor(),
            initial: bucket.initial(),
            start: bucket.window_start(),
        }
    }

    /// The bucket with these numbers; `None` if no bucket has them.
    pub(crate) fn bucket(&self) -> Option<Bucket> {
        let counts =
            |number: u64| NonZeroU64::new(number).filter(|number| number.get() <= MAX_UNITS);
        let (step, gain, token) = (counts(self.step)?, counts(self.gain)?, counts(self.token)?);
        let Self { kind, capacity, floor, initial, start, .. } = *self;
        let most = MAX_UNITS.cast_signed();
        let fits = (0..=most).contains(&capacity)
            && (most.saturating_neg()..=0).contains(&floor)
            && (0..=capacity).contains(&initial)
            // Only windows have a start.
            && (kind == Kind::FixedWindow || start.is_none());
        let is_window = kind == Kind::FixedWindow && start.is_none();
        let calendar = if is_window { Calendar::of_step(step) } else { None };
        fits.then_some(Bucket {
            kind,
            step,
            gain,
            token,
            capacity,
            floor,
            initial,
            start,
            calendar,
        })
    }
}
