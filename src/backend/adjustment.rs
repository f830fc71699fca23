//! Changes to buckets after the fact: refunds, settlements, penalties, undone charges and blocks.

use std::time::Duration;

#[cfg(doc)]
use super::answer::Reading;
use super::charge::BucketId;
use super::origin::Origin;
use super::receipt::Receipt;
use super::record::BucketRecord;
use super::reset_log::ResetMark;
use crate::algebra::{Bucket, State, Units, block, refund, rescale, undo, untouched};
use crate::clock::Timestamp;
use crate::quota::MAX_UNITS;

/// A change to a bucket that needs no verdict: a refund, a settlement, an undone charge, a block.
///
/// # Examples
///
/// A charge that is undone, but only if no other charge came after it:
///
/// ```
/// use tollgate::algebra::Verdict;
/// use tollgate::backend::{Adjustment, Answer, Backend, BucketId, Charge, Key, Memory};
/// use tollgate::{HOUR, Limit, Quota};
///
/// let limit = Limit::new("exports", Quota::token_bucket(10, HOUR));
/// let (key, bucket) = (Key::from("alice"), limit.bucket());
/// let id = BucketId::new(limit.name(), &key);
/// let one = bucket.units(1).unwrap();
///
/// let memory = Memory::new();
/// let take = || {
///     let Answer::Ready(Ok(applied)) = memory.apply(&[Charge::take(id, bucket, one)]) else { panic!() };
///     applied.readings()[0].state()
/// };
/// let undo = |left| {
///     let undo = Adjustment::undo(id, bucket, one, left);
///     let Answer::Ready(Ok(applied)) = memory.adjust(&[undo]) else { panic!() };
///     applied.verdict() == Verdict::Admitted
/// };
/// let (first, second) = (take(), take());
/// assert_eq!([undo(first), undo(second), undo(first)], [false, true, true]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Adjustment<'a> {
    id: BucketId<'a>,
    bucket: &'a Bucket,
    change: Change,
    /// Of the charge that took the units.
    receipt: Receipt,
    /// Whether the bucket is known not to be blocked, even if it looks so.
    is_open: bool,
}

/// What an [`Adjustment`] does to its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "each store has to know all changes")]
pub enum Change {
    /// See [`Adjustment::refund`].
    Refund {
        /// How much to give back; below zero, how much to take.
        units: Units,
    },
    /// See [`Adjustment::refund_since`].
    RefundSince {
        /// How much to give back at most; below zero, how much to take.
        units: Units,
        /// What the charge left in the bucket.
        since: State,
    },
    /// See [`Adjustment::undo`].
    Undo {
        /// How much the charge took.
        units: Units,
        /// What the charge left in the bucket.
        left: State,
    },
    /// See [`Adjustment::block`].
    Block {
        /// For how long.
        time: Duration,
    },
}

impl Change {
    /// How many units this gives back at `now`, if they fit into the bucket. An undo gives nothing
    /// back: its charge was never made.
    pub(crate) fn returns(&self, bucket: &Bucket, now: Timestamp) -> Units {
        match *self {
            Self::Refund { units } => units,
            Self::RefundSince { units, since } => {
                let held = bucket.refresh(since, now).value;
                units.min(bucket.capacity().saturating_sub(held).max(0))
            }
            Self::Undo { .. } | Self::Block { .. } => 0,
        }
    }

    /// The largest number of units that this gives back at any time.
    pub(crate) const fn returns_at_most(&self) -> Units {
        match *self {
            Self::Refund { units } | Self::RefundSince { units, .. } => units,
            Self::Undo { .. } | Self::Block { .. } => 0,
        }
    }

    /// The same change with so many units less to give back.
    pub(crate) const fn returning_less(self, less: Units) -> Self {
        match self {
            Self::Refund { units } => Self::Refund { units: units.saturating_sub(less) },
            Self::RefundSince { units, since } => {
                Self::RefundSince { units: units.saturating_sub(less), since }
            }
            Self::Undo { .. } | Self::Block { .. } => self,
        }
    }

    /// The same change with nothing to give back: it takes at most.
    pub(crate) const fn returning_nothing(self) -> Self {
        let units = self.returns_at_most();
        if units > 0 { self.returning_less(units) } else { self }
    }
}

impl<'a> Adjustment<'a> {
    /// Makes this change to a bucket.
    #[must_use]
    pub const fn new(id: BucketId<'a>, bucket: &'a Bucket, change: Change) -> Self {
        Self { id, bucket, change, receipt: Receipt::NONE, is_open: false }
    }

    /// Sets the receipt of the charge that took the units, which its [reading](Reading::receipt)
    /// carries.
    #[must_use]
    pub const fn with_receipt(mut self, receipt: Receipt) -> Self {
        self.receipt = receipt;
        self
    }

    /// The receipt of the charge that took the units. A wrapper that makes another adjustment of this
    /// one hands it on.
    #[must_use]
    pub const fn receipt(&self) -> Receipt {
        self.receipt
    }

    /// The same adjustment of another bucket: for wrappers that rename buckets.
    #[must_use]
    pub const fn with_id(mut self, id: BucketId<'a>) -> Self {
        self.id = id;
        self
    }

    /// Sets the mark of the charge that took the units. If the bucket was reset since, they are
    /// forgiven and not given back.
    #[cfg(any(test, feature = "memory"))]
    pub(crate) const fn with_mark(mut self, mark: ResetMark) -> Self {
        self.receipt.mark = Some(mark);
        self
    }

    pub(crate) const fn mark(&self) -> Option<ResetMark> {
        self.receipt.mark
    }

    /// Removes the mark, for a store that does not count resets.
    pub(crate) const fn without_mark(mut self) -> Self {
        self.receipt.mark = None;
        self
    }

    pub(crate) const fn origin(&self) -> Origin {
        self.receipt.origin
    }

    /// Sets how many units of the charge the local store of a fallback has not paid.
    pub(crate) const fn with_unpaid(mut self, units: Units) -> Self {
        self.receipt.unpaid = units;
        self
    }

    pub(crate) const fn unpaid(&self) -> Units {
        self.receipt.unpaid
    }

    /// The same for a bucket that is not blocked, although it is in debt at a time in the future.
    #[cfg(feature = "memory")]
    pub(super) const fn to_open_bucket(mut self) -> Self {
        self.is_open = true;
        self
    }

    /// Replaces the change.
    pub(crate) const fn with_change(mut self, change: Change) -> Self {
        self.change = change;
        self
    }

    /// Gives units back, as far as they fit into the bucket.
    ///
    /// Negative units are taken, into debt if need be, and never refused. This settles work that
    /// cost more than was charged for it, and it is how a penalty is paid.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::algebra::State;
    /// use tollgate::backend::{Adjustment, BucketId, Key};
    /// use tollgate::{HOUR, Limit, Quota, Timestamp};
    ///
    /// let limit = Limit::new("exports", Quota::token_bucket(10, HOUR));
    /// let key = Key::from("alice");
    /// let id = BucketId::new(limit.name(), &key);
    /// let empty = State { value: 0, ts: Timestamp::UNIX_EPOCH };
    /// let after = |units| Adjustment::refund(id, limit.bucket(), units).apply_to(empty, empty.ts);
    /// assert_eq!((after(7).value, after(-7).value), (7, -7));
    /// ```
    #[must_use]
    pub const fn refund(id: BucketId<'a>, bucket: &'a Bucket, units: Units) -> Self {
        Self::new(id, bucket, Change::Refund { units })
    }

    /// Gives units back, less what the bucket has gained in their place since a charge left it in
    /// the state `since`.
    ///
    /// It gives back no more than would still be missing from that state if nothing else had been
    /// taken. Use it to refund work that ran for long: by itself, it never leaves more in the
    /// bucket than if the units had not been taken. It may leave a little less if other charges
    /// have taken from the bucket too, and a little more if another refund came in between.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::algebra::State;
    /// use tollgate::backend::{Adjustment, BucketId, Key};
    /// use tollgate::{HOUR, Limit, Quota, Timestamp};
    ///
    /// let limit = Limit::new("exports", Quota::fixed_window(10, HOUR));
    /// let key = Key::from("alice");
    /// let empty = State { value: 0, ts: Timestamp::UNIX_EPOCH };
    /// let id = BucketId::new(limit.name(), &key);
    /// let refund = Adjustment::refund_since(id, limit.bucket(), 7, empty);
    /// assert_eq!(refund.apply_to(empty, empty.ts).value, 7);
    /// // The next window began with ten tokens, which others have taken.
    /// let next = State { value: 0, ts: empty.ts + HOUR };
    /// assert_eq!(refund.apply_to(next, next.ts).value, 0);
    /// ```
    #[must_use]
    pub const fn refund_since(
        id: BucketId<'a>,
        bucket: &'a Bucket,
        units: Units,
        since: State,
    ) -> Self {
        Self::new(id, bucket, Change::RefundSince { units, since })
    }

    /// Undoes a charge of `units` that left the bucket in the state `left`.
    ///
    /// The bucket is then as if the charge had never been made. It must be [untouched] since the
    /// charge; otherwise the whole call is refused.
    #[must_use]
    pub const fn undo(id: BucketId<'a>, bucket: &'a Bucket, units: Units, left: State) -> Self {
        Self::new(id, bucket, Change::Undo { units, left })
    }

    /// Blocks the bucket for `time` from now on, as [`block`] says.
    ///
    /// The time is rounded up to the microsecond; a time of zero changes nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::backend::{Adjustment, Answer, Backend, BucketId, Key, Memory};
    /// use tollgate::{HOUR, Limit, Quota};
    ///
    /// let limit = Limit::new("exports", Quota::token_bucket(10, HOUR));
    /// let key = Key::from("mallory");
    /// let block = Adjustment::block(BucketId::new(limit.name(), &key), limit.bucket(), HOUR);
    /// let Answer::Ready(Ok(applied)) = Memory::new().adjust(&[block]) else { panic!() };
    /// let state = applied.readings()[0].state();
    /// assert!(state.value < 0 && state.ts > applied.now());
    /// ```
    #[must_use]
    pub const fn block(id: BucketId<'a>, bucket: &'a Bucket, time: Duration) -> Self {
        Self::new(id, bucket, Change::Block { time })
    }

    /// The name of the bucket.
    #[must_use]
    pub const fn id(&self) -> BucketId<'a> {
        self.id
    }

    /// The quota of the bucket, compiled.
    #[must_use]
    pub const fn bucket(&self) -> &'a Bucket {
        self.bucket
    }

    /// What to do to the bucket.
    #[must_use]
    pub const fn change(&self) -> Change {
        self.change
    }

    /// The units that it gives back, or takes if they are below zero.
    #[cfg(feature = "memory")]
    pub(super) const fn units(&self) -> Units {
        match self.change {
            Change::Refund { units }
            | Change::RefundSince { units, .. }
            | Change::Undo { units, .. } => units,
            Change::Block { .. } => 0,
        }
    }

    /// Whether the bucket may hold less afterwards. If not, a bucket that is not stored need not be
    /// stored for it: it is full, or was never used.
    #[must_use]
    pub fn takes(&self) -> bool {
        match self.change {
            Change::Refund { units }
            | Change::RefundSince { units, .. }
            | Change::Undo { units, .. } => units < 0,
            Change::Block { time } => !time.is_zero(),
        }
    }

    /// Whether a bucket in this state allows the change: an [undo](Self::undo) needs one that is
    /// [untouched], and every other change needs nothing.
    #[must_use]
    pub fn is_allowed(&self, state: State, now: Timestamp) -> bool {
        match self.change {
            Change::Undo { left, .. } => untouched(self.bucket, state, left, now),
            Change::Refund { .. } | Change::RefundSince { .. } | Change::Block { .. } => true,
        }
    }

    /// Whether some buckets do not allow this change.
    #[doc(hidden)]
    #[must_use]
    pub const fn is_conditional(&self) -> bool {
        matches!(self.change, Change::Undo { .. })
    }

    /// What a bucket in this state holds after the change at `now`: what [`refund`], [`undo`] or
    /// [`block`] says.
    #[must_use]
    pub fn apply_to(&self, state: State, now: Timestamp) -> State {
        let bucket = self.bucket;
        match self.change {
            Change::Refund { .. } | Change::RefundSince { .. } => {
                let units = self.change.returns(bucket, now);
                match self.is_open {
                    // What is undone is not held back for a block.
                    true => undo(bucket, state, units, now),
                    false => refund(bucket, state, units, now),
                }
            }
            Change::Undo { units, .. } => undo(bucket, state, units, now),
            Change::Block { time } => block(bucket, state, now.plus_micros(micros(time)), now),
        }
    }
}

impl Adjustment<'_> {
    /// The adjustment in the numbers in which its bucket is counted.
    ///
    /// Windows of states begin with that of the bucket.
    pub(super) fn convert_to<'b>(
        &'b self,
        own: &'b BucketRecord,
        now: Timestamp,
    ) -> Adjustment<'b> {
        let (bucket, phase) = (own.bucket(), own.state().ts);
        // More than can be counted empties or fills any bucket.
        let units = |units: Units| match units.unsigned_abs() >= MAX_UNITS {
            true => units,
            false => convert_units(units, self.bucket, bucket),
        };
        let stored = own.stored_bucket();
        let state = |state| rescale(self.bucket, &stored, state, now, phase);
        let change = match self.change {
            Change::Refund { units: own } => Change::Refund { units: units(own) },
            Change::RefundSince { units: own, since } => {
                Change::RefundSince { units: units(own), since: state(since) }
            }
            Change::Undo { units: own, left } => {
                Change::Undo { units: units(own), left: state(left) }
            }
            block @ Change::Block { .. } => block,
        };
        let receipt = Receipt { charged: None, ..self.receipt };
        Adjustment { bucket, change, receipt, ..*self }
    }
}

/// Converts units from one quota to another, rounded down.
pub(super) fn convert_units(units: Units, from: &Bucket, to: &Bucket) -> Units {
    if from == to {
        return units;
    }
    let units = i128::from(units).saturating_mul(i128::from(to.token()));
    let units = units.checked_div_euclid(i128::from(from.token())).unwrap_or(0);
    Units::try_from(units).unwrap_or(if units < 0 { Units::MIN } else { Units::MAX })
}

/// Units to take in another quota, rounded up.
pub(super) fn cost_in(units: Units, from: &Bucket, to: &Bucket) -> Units {
    convert_units(units.saturating_neg(), from, to).saturating_neg()
}

/// A time in microseconds, rounded up: a block never ends early.
#[must_use]
pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}
