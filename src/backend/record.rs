//! What a store keeps of a bucket.

use std::hash::{Hash, Hasher};

use super::charge::BucketId;
use crate::algebra::{Bucket, State, rescale};
use crate::clock::Timestamp;
use crate::quota::MAX_UNITS;

/// What a store keeps of a bucket: its state, and the numbers that this state is counted in.
///
/// A state alone would be misread once the limit has got other numbers. Two records are equal if
/// their [numbers](Self::to_numbers) are.
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
#[derive(Clone, Copy, Debug)]
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

    /// The instant from which the bucket may be dropped, as an absent one is then like it. A store
    /// whose clock may go back keeps it for as much longer.
    ///
    /// `None` if it has to be kept, as its quota begins below the capacity.
    #[must_use]
    pub fn droppable_at(&self) -> Option<Timestamp> {
        self.bucket.is_droppable_when_full().then(|| self.full_at())
    }

    /// What to serialise: the value, its time in microseconds, and the gain, token, capacity and
    /// step of the bucket. The step is negative if the quota begins below the capacity. All but the
    /// time are within 2^53.
    #[must_use]
    pub fn to_numbers(&self) -> [i64; 6] {
        let (State { value, ts }, bucket) = (self.state, &self.bucket);
        let [gain, token, step] = [bucket.gain(), bucket.token(), bucket.step()]
            .map(|number| i64::try_from(number).unwrap_or(i64::MAX));
        let step = if bucket.is_droppable_when_full() { step } else { step.saturating_neg() };
        [value, ts.as_micros(), gain, token, bucket.capacity(), step]
    }

    /// The record of which these are the [numbers](Self::to_numbers); `None` if no quota can have
    /// them: if one of them is beyond 2^53, if the value is above the capacity or the capacity
    /// below zero, or if gain, token or step is zero or has the wrong sign.
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

    /// The state, counted in the numbers of `bucket`; `None` if it counts as absent there.
    pub(super) fn state_in(
        &self,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> Option<State> {
        stored_state(&self.bucket, bucket, self.state, id, now)
    }

    /// Whether [`state_in`](Self::state_in) has to convert it.
    pub(super) fn is_converted_in(
        &self,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> bool {
        is_converted(&self.bucket, bucket, self.state, id, now)
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

/// A stored state that is counted in the numbers of `old`, in those of `new`.
///
/// `None` if nothing is used of it and the numbers differ. It counts as absent then, in all
/// respects: another store may have dropped it.
pub(super) fn stored_state(
    old: &Bucket,
    new: &Bucket,
    state: State,
    id: BucketId<'_>,
    now: Timestamp,
) -> Option<State> {
    if is_counted_in(old, new, state, id) {
        return Some(state);
    }
    is_used(old, state, now).then(|| rescale(old, new, state, now, id.phase(new)))
}

/// Whether [`stored_state`] has to convert a state that is counted in the numbers of `old`.
pub(super) fn is_converted(
    old: &Bucket,
    new: &Bucket,
    state: State,
    id: BucketId<'_>,
    now: Timestamp,
) -> bool {
    !is_counted_in(old, new, state, id) && is_used(old, state, now)
}

fn is_used(bucket: &Bucket, state: State, now: Timestamp) -> bool {
    bucket.refresh(state, now).value < bucket.capacity()
}

/// A state that is counted in the numbers of `old`, in those of `new`.
pub(super) fn convert(
    old: &Bucket,
    new: &Bucket,
    state: State,
    id: BucketId<'_>,
    now: Timestamp,
) -> State {
    if is_counted_in(old, new, state, id) {
        return state;
    }
    rescale(old, new, state, now, id.phase(new))
}

/// Whether a state that is counted in the numbers of `old` needs no conversion to those of `new`.
fn is_counted_in(old: &Bucket, new: &Bucket, state: State, id: BucketId<'_>) -> bool {
    has_same_numbers(old, new)
        // A full bucket may have been dropped by now, unless it began below its capacity.
        && old.is_droppable_when_full() == new.is_droppable_when_full()
        // Windows that begin elsewhere are other numbers as well, although none of the six says so.
        && new.has_window_at(state.ts, || id.phase(new))
}

/// Whether units that are counted by one are those of the other.
pub(super) fn has_same_numbers(one: &Bucket, other: &Bucket) -> bool {
    one.step() == other.step()
        && one.gain() == other.gain()
        && one.token() == other.token()
        && one.capacity() == other.capacity()
}
