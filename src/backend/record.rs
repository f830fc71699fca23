//! The record that a store keeps of a bucket.

use std::fmt;
use std::hash::{Hash, Hasher};

use super::charge::BucketId;
use crate::algebra::{Bucket, State, rescale};
use crate::clock::Timestamp;
use crate::quota::MAX_UNITS;

/// The record that a store keeps of a bucket: its state, and the numbers of the quota that the
/// state counts in.
///
/// A state alone could not be read once the quota of its limit has changed. Two records are equal
/// if their [numbers](Self::to_numbers) are.
///
/// # Examples
///
/// ```
/// use tollgate::algebra::{Bucket, State};
/// use tollgate::backend::BucketRecord;
/// use tollgate::{Quota, SECOND, Timestamp};
///
/// let bucket = Bucket::new(&Quota::token_bucket(2, SECOND))?;
/// let record = BucketRecord::new(&bucket, State { value: 0, ts: Timestamp::UNIX_EPOCH });
/// assert_eq!(record.droppable_at(), Some(Timestamp::UNIX_EPOCH + SECOND));
///
/// let numbers = record.to_numbers();
/// assert_eq!(numbers, [0, 0, 1, 500_000, 1_000_000, 1]);
/// assert_eq!(BucketRecord::from_numbers(numbers), Some(record));
/// assert_eq!(BucketRecord::from_numbers([0; 6]), None);
/// # Ok::<(), tollgate::quota::QuotaError>(())
/// ```
#[derive(Clone, Copy)]
pub struct BucketRecord {
    bucket: Bucket,
    state: State,
}

impl BucketRecord {
    /// The record of a bucket in this state.
    #[must_use]
    pub const fn new(bucket: &Bucket, state: State) -> Self {
        Self { bucket: *bucket, state }
    }

    /// The state, counted in the numbers of this record.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// The instant from which the bucket is full, if nothing is taken from it until then.
    #[must_use]
    pub fn full_at(&self) -> Timestamp {
        self.bucket.full_at(self.state)
    }

    /// The instant from which the bucket may be dropped, because an absent one is full as well. A
    /// store whose clock may go back by some time has to keep it for that much longer.
    ///
    /// `None` if the bucket has to be kept, because its quota starts below the capacity.
    #[must_use]
    pub fn droppable_at(&self) -> Option<Timestamp> {
        self.bucket.is_droppable_when_full().then(|| self.bucket.drop_at(self.state))
    }

    /// The numbers to serialise: the value, its time in microseconds, and the gain, token, capacity
    /// and step of the bucket. The step is negative if the quota starts below the capacity. All but
    /// the time are within 2^53.
    #[must_use]
    pub fn to_numbers(&self) -> [i64; 6] {
        let (State { value, ts }, bucket) = (self.state, &self.bucket);
        let [gain, token, step] = [bucket.gain(), bucket.token(), bucket.step()]
            .map(|number| i64::try_from(number).unwrap_or(i64::MAX));
        let step = if bucket.is_droppable_when_full() { step } else { step.saturating_neg() };
        [value, ts.as_micros(), gain, token, bucket.capacity(), step]
    }

    /// The record with these [numbers](Self::to_numbers); `None` if no quota can have them.
    ///
    /// That is so if one of them is beyond 2^53, if the value is above the capacity, if the
    /// capacity is below zero, or if gain, token or step is zero or has the wrong sign.
    #[must_use]
    pub fn from_numbers([value, ts, gain, token, capacity, step]: [i64; 6]) -> Option<Self> {
        let counts = |number: &i64| number.unsigned_abs() <= MAX_UNITS;
        if ![value, gain, token, capacity, step].iter().all(counts) || value > capacity {
            return None;
        }
        let bucket = Bucket::from_stored(gain, token, capacity, step)?;
        let state = State { value, ts: Timestamp::from_micros(ts) };
        Some(Self { bucket, state })
    }

    /// The units that the bucket holds at `now`.
    #[doc(hidden)]
    #[must_use]
    pub fn value_at(&self, now: Timestamp) -> i64 {
        self.bucket.refresh(self.state, now).value
    }

    /// The numbers in which the state counts. A record that was read from numbers has neither
    /// `max_reserved`, nor the start of the windows, nor how far below its capacity a bucket began.
    #[doc(hidden)]
    #[must_use]
    pub const fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    /// The numbers in which the state counts, as they are read from a record.
    pub(super) fn stored_bucket(&self) -> Bucket {
        Self::from_numbers(self.to_numbers()).unwrap_or(*self).bucket.seen_by(&self.bucket)
    }

    /// The record at `now`, as it is read from its numbers.
    pub(super) fn refreshed(&self, now: Timestamp) -> Self {
        Self { bucket: self.stored_bucket(), state: self.bucket.refresh(self.state, now) }
    }

    /// The record as of now, for a call by the numbers of `bucket`, if its time lies after
    /// `latest`: a wrong clock has written it.
    #[inline]
    #[doc(hidden)]
    #[must_use]
    pub fn caught_up(
        &self,
        id: BucketId<'_>,
        bucket: &Bucket,
        [now, latest]: [Timestamp; 2],
    ) -> Option<Self> {
        self.bucket.is_ahead(self.state, latest).then(|| {
            let ts = self.bucket.time_of_now(bucket, now, id.phase(bucket));
            Self { state: State { ts, ..self.state }, ..*self }
        })
    }

    /// What a store that keeps this record finds for a charge by the numbers of `bucket`.
    #[doc(hidden)]
    #[must_use]
    pub fn find(&self, id: BucketId<'_>, bucket: &Bucket, now: Timestamp) -> Found {
        find(&self.bucket, bucket, self.state, id, now)
    }

    /// The state, converted to `bucket`; `None` if it counts as absent there.
    #[doc(hidden)]
    #[must_use]
    pub fn state_in(&self, id: BucketId<'_>, bucket: &Bucket, now: Timestamp) -> Option<State> {
        self.find(id, bucket, now).state_in(id, bucket, now)
    }

    /// Whether the bucket keeps its numbers until those of `bucket` admit a request: some is used,
    /// and its own refill faster.
    #[doc(hidden)]
    #[must_use]
    pub fn is_kept_from(&self, bucket: &Bucket, now: Timestamp) -> bool {
        is_used(&self.bucket, bucket, self.state, now) && !self.bucket.yields_to(bucket)
    }

    /// As [`state_in`](Self::state_in), where the key is not known, and so the phase of its windows:
    /// they begin with that of the state.
    pub(super) fn state_without_key(&self, bucket: &Bucket, now: Timestamp) -> Option<State> {
        let phase = self.state.ts;
        if is_counted_in_windows(&self.bucket, bucket, phase, || phase) {
            return Some(self.state);
        }
        let is_used = is_used(&self.bucket, bucket, self.state, now);
        is_used.then(|| rescale(&self.bucket.seen_by(bucket), bucket, self.state, now, phase))
    }
}

impl fmt::Debug for BucketRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BucketRecord").field(&self.to_numbers()).finish()
    }
}

impl PartialEq for BucketRecord {
    fn eq(&self, other: &Self) -> bool {
        self.to_numbers() == other.to_numbers()
    }
}

impl Eq for BucketRecord {}

impl Hash for BucketRecord {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.to_numbers().hash(hasher);
    }
}

/// What a store has of a bucket, for a call by some numbers.
#[expect(clippy::exhaustive_enums, reason = "each store handles all of them")]
#[derive(Clone, Debug)]
pub enum Found {
    /// Nothing, or a bucket that is full by other numbers: it may as well have been dropped.
    Absent,
    /// A bucket that is counted in these numbers.
    Own(State),
    /// A bucket of which some is used by other numbers. In a box: nearly all buckets are counted in
    /// the numbers of their charges, and this is moved for each.
    Other(Box<BucketRecord>),
}

impl Found {
    pub(super) const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// The state in the numbers of `bucket`; `None` if the bucket is absent.
    #[inline(always)]
    pub(super) fn state_in(
        &self,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> Option<State> {
        match self {
            Self::Absent => None,
            Self::Own(state) => Some(*state),
            Self::Other(record) => {
                Some(rescale(record.bucket(), bucket, record.state(), now, id.phase(bucket)))
            }
        }
    }

    /// The record of a bucket that keeps its numbers until those of `bucket` admit a request: its
    /// own refill faster.
    #[inline]
    pub(super) fn kept(&self, bucket: &Bucket) -> Option<&BucketRecord> {
        match self {
            Self::Other(record) if !record.bucket().yields_to(bucket) => Some(record),
            Self::Absent | Self::Own(_) | Self::Other(_) => None,
        }
    }
}

/// What a store finds that keeps a state of the quota `old`, for a charge by `new`.
///
/// It is nothing if the quotas differ and nothing of the bucket is used. Then the bucket counts as
/// absent in all respects, because another store may have dropped it.
pub(super) fn find(
    old: &Bucket,
    new: &Bucket,
    state: State,
    id: BucketId<'_>,
    now: Timestamp,
) -> Found {
    if is_counted_in(old, new, state, id) {
        Found::Own(state)
    } else if is_used(old, new, state, now) {
        Found::Other(Box::new(BucketRecord::new(&old.seen_by(new), state)))
    } else {
        Found::Absent
    }
}

/// Whether some of a bucket is used by its own numbers, as a store sees them that knows `new`.
fn is_used(old: &Bucket, new: &Bucket, state: State, now: Timestamp) -> bool {
    old.seen_by(new).refresh(state, now).value < old.capacity()
}

/// Whether a state means the same under both quotas, so that it needs no conversion.
fn is_counted_in(old: &Bucket, new: &Bucket, state: State, id: BucketId<'_>) -> bool {
    is_counted_in_windows(old, new, state.ts, || id.phase(new))
}

/// As [`is_counted_in`], where a window of the new quota begins at this phase unless it says another
/// start.
fn is_counted_in_windows(
    old: &Bucket,
    new: &Bucket,
    ts: Timestamp,
    phase: impl FnOnce() -> Timestamp,
) -> bool {
    has_same_numbers(old, new)
        // If only one of them may drop a full bucket, a full one means different things.
        && old.is_droppable_when_full() == new.is_droppable_when_full()
        // Where windows and steps begin is not among the stored numbers, but it matters as well.
        && new.gains_at(ts, phase)
}

/// Whether both quotas count in the same units, steps and capacity.
pub(super) fn has_same_numbers(one: &Bucket, other: &Bucket) -> bool {
    one.step() == other.step()
        && one.gain() == other.gain()
        && one.token() == other.token()
        && one.capacity() == other.capacity()
}
