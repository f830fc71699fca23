//! The answers of a backend, which are ready or a future.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

#[cfg(feature = "memory")]
use super::adjustment::Adjustment;
use super::charge::Charge;
use super::error::BackendError;
use super::origin::Origin;
use super::reset_log::ResetMark;
#[cfg(feature = "memory")]
use crate::algebra::{Bucket, rescale};
use crate::algebra::{Charged, ChargedPair, State, Units, Verdict};
use crate::clock::Timestamp;

/// An answer that is ready, or a future of it.
///
/// A store in this process answers at once, without an allocation and without an `await`. One
/// behind a network returns a future. Callers match on the two, so the first costs them nothing.
#[expect(clippy::exhaustive_enums, reason = "an answer is ready or pending; wrappers match on it")]
pub enum Answer<T> {
    /// The answer itself.
    Ready(Result<T, BackendError>),
    /// A future of the answer. The operation may take effect before or after it is polled.
    Pending(Pin<Box<dyn Future<Output = Result<T, BackendError>> + Send>>),
}

impl<T> Answer<T> {
    /// Boxes a future of the answer.
    pub fn pending(future: impl Future<Output = Result<T, BackendError>> + Send + 'static) -> Self {
        Self::Pending(Box::pin(future))
    }

    /// Applies `read` to a successful answer, when it is ready.
    #[must_use]
    pub fn map<U>(self, read: impl FnOnce(T) -> U + Send + 'static) -> Answer<U>
    where
        T: 'static,
    {
        match self {
            Self::Ready(answer) => Answer::Ready(answer.map(read)),
            Self::Pending(future) => Answer::pending(async move { future.await.map(read) }),
        }
    }

    /// Waits for the answer.
    ///
    /// # Errors
    ///
    /// If the backend could not decide.
    ///
    /// # Cancel safety
    ///
    /// As [`Backend`](super::Backend): the operation may take effect although the future is
    /// dropped.
    pub async fn wait(self) -> Result<T, BackendError> {
        match self {
            Self::Ready(answer) => answer,
            Self::Pending(future) => future.await,
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(answer) => f.debug_tuple("Ready").field(answer).finish(),
            Self::Pending(_) => f.write_str("Pending(..)"),
        }
    }
}

/// The result of a list of charges or adjustments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    now: Timestamp,
    readings: List<Reading>,
}

/// A list of readings; one or two need no allocation.
#[derive(Clone, Debug)]
pub(super) enum List<T> {
    One([T; 1]),
    Two([T; 2]),
    Many(Vec<T>),
}

impl<T> List<T> {
    pub(super) fn as_slice(&self) -> &[T] {
        match self {
            Self::One(one) => one,
            Self::Two(two) => two,
            Self::Many(many) => many,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [T] {
        match self {
            Self::One(one) => one,
            Self::Two(two) => two,
            Self::Many(many) => many,
        }
    }

    /// Collects `count` items.
    #[inline(always)]
    pub(super) fn collect(count: usize, items: impl IntoIterator<Item = T>) -> Self {
        let mut items = items.into_iter();
        match count {
            1 if let Some(one) = items.next() => Self::One([one]),
            2 if let (Some(one), Some(two)) = (items.next(), items.next()) => Self::Two([one, two]),
            _ => Self::Many(items.collect()),
        }
    }
}

/// Lists are equal if their items are, whichever variant holds them.
impl<T: PartialEq> PartialEq for List<T> {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<T: Eq> Eq for List<T> {}

impl Applied {
    /// The result of a charge on one bucket, or of one adjustment.
    #[must_use]
    #[inline]
    pub const fn one(now: Timestamp, reading: Reading) -> Self {
        Self { now, readings: List::One([reading]) }
    }

    /// The result of charges on two buckets, such as one two-choices charge.
    #[must_use]
    pub const fn two(now: Timestamp, readings: [Reading; 2]) -> Self {
        Self { now, readings: List::Two(readings) }
    }

    /// The result of charges on several buckets: one reading for each bucket that is named, in
    /// order.
    #[must_use]
    pub const fn many(now: Timestamp, readings: Vec<Reading>) -> Self {
        Self { now, readings: List::Many(readings) }
    }

    /// As [`many`](Self::many), without an allocation for one or two.
    #[inline(always)]
    pub(super) fn collect(
        now: Timestamp,
        count: usize,
        readings: impl IntoIterator<Item = Reading>,
    ) -> Self {
        Self { now, readings: List::collect(count, readings) }
    }

    /// Sets the mark of all readings.
    #[cfg(feature = "memory")]
    pub(super) fn with_mark(mut self, mark: ResetMark) -> Self {
        if !mark.is_none() {
            let readings = self.readings.as_mut_slice();
            readings.iter_mut().for_each(|reading| reading.mark = mark);
        }
        self
    }

    /// Sets which store has decided.
    pub(super) fn with_origin(mut self, origin: Origin) -> Self {
        let readings = self.readings.as_mut_slice();
        readings.iter_mut().for_each(|reading| reading.origin = origin);
        self
    }

    /// Which store has decided.
    pub(crate) fn origin(&self) -> Origin {
        let origins = self.readings().iter().map(|reading| reading.origin);
        origins.reduce(Origin::and).unwrap_or_default()
    }

    /// The time at which all of them were decided.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// What each bucket answered, in the order of the charges or adjustments.
    ///
    /// A two-choices charge has two, next to each other: first that of its own shard, then that of
    /// the [second](Charge::get_second_shard).
    #[must_use]
    pub fn readings(&self) -> &[Reading] {
        self.readings.as_slice()
    }

    /// What each bucket answered, as a list of its own.
    #[inline]
    pub(crate) fn into_readings(self) -> Vec<Reading> {
        match self.readings {
            List::One(one) => one.into(),
            List::Two(two) => two.into(),
            List::Many(many) => many,
        }
    }

    /// The verdict on all of them: refused if one was refused, else reserved if one was reserved.
    #[must_use]
    #[inline]
    pub fn verdict(&self) -> Verdict {
        let mut verdict = Verdict::Admitted;
        for reading in self.readings() {
            match reading.verdict {
                Verdict::Refused => return Verdict::Refused,
                Verdict::Reserved => verdict = Verdict::Reserved,
                Verdict::Admitted => {}
            }
        }
        verdict
    }

    /// The longest wait of all readings: after it every bucket has what was asked of it.
    #[must_use]
    #[inline]
    pub fn wait(&self) -> Duration {
        self.readings().iter().map(Reading::wait).max().unwrap_or(Duration::ZERO)
    }
}

/// What one bucket answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    verdict: Verdict,
    state: State,
    units: Units,
    /// In microseconds, because a `Duration` takes twice the room.
    wait: u64,
    /// The mark that a later refund of these units carries.
    mark: ResetMark,
    /// The store that a later refund goes to.
    origin: Origin,
}

impl Reading {
    /// A reading of `state`, with the bucket's own verdict and wait, and nothing taken.
    ///
    /// The wait is rounded up to the microsecond.
    #[must_use]
    pub fn new(verdict: Verdict, state: State, wait: Duration) -> Self {
        let micros = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        let begun = u64::from(!wait.subsec_nanos().is_multiple_of(1_000));
        Self::in_micros(verdict, state, 0, micros.saturating_add(begun))
    }

    /// Sets how many units were taken from this bucket.
    #[must_use]
    pub const fn taking(mut self, units: Units) -> Self {
        self.units = units;
        self
    }

    /// The reading of one ordinary charge. A look has the state of the bucket as it stays.
    #[must_use]
    #[inline]
    pub const fn from_charged(charge: &Charge<'_>, charged: &Charged) -> Self {
        let (verdict, wait) = (charged.verdict(), charged.wait_micros());
        if charge.takes() && !matches!(verdict, Verdict::Refused) {
            let units = if charge.units() < 0 { 0 } else { charge.units() };
            return Self::in_micros(verdict, charged.after(), units, wait);
        }
        Self::in_micros(verdict, charged.before(), 0, wait)
    }

    /// The readings of one two-choices charge, in the order of its shards.
    #[must_use]
    pub fn from_charged_pair(charge: &Charge<'_>, charged: &ChargedPair) -> [Self; 2] {
        let ([first, second], [first_pays, second_pays]) = if charge.takes() {
            (charged.state(), charged.paid())
        } else {
            (charged.before(), [0; 2])
        };
        let (verdict, wait) = (charged.verdict(), charged.wait_micros());
        [(first, first_pays), (second, second_pays)]
            .map(|(state, units)| Self::in_micros(verdict, state, units, wait))
    }

    /// Converts the state from the `stored` quota to that of the adjustment.
    #[cfg(feature = "memory")]
    pub(super) fn convert_from(
        mut self,
        stored: &Bucket,
        adjustment: &Adjustment<'_>,
        now: Timestamp,
    ) -> Self {
        let bucket = adjustment.bucket();
        let phase = adjustment.id().phase(bucket);
        self.state = rescale(stored, bucket, self.state, now, phase);
        self
    }

    #[inline]
    pub(super) const fn in_micros(verdict: Verdict, state: State, units: Units, wait: u64) -> Self {
        let (mark, origin) = (ResetMark::NONE, Origin::Store);
        Self { verdict, state, units, wait, mark, origin }
    }

    /// Sets the mark.
    #[cfg(feature = "memory")]
    #[inline]
    pub(super) const fn with_mark(mut self, mark: ResetMark) -> Self {
        self.mark = mark;
        self
    }

    /// How many resets the store knew of when it took the units.
    #[inline]
    pub(crate) const fn mark(&self) -> ResetMark {
        self.mark
    }

    /// Which store has decided.
    #[inline]
    pub(crate) const fn origin(&self) -> Origin {
        self.origin
    }

    /// The verdict of this bucket by itself; of a two-choices charge, that of both together.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// What the bucket holds now that all charges are taken, or none is.
    #[must_use]
    #[inline]
    pub const fn state(&self) -> State {
        self.state
    }

    /// The units that this charge has taken from this bucket.
    ///
    /// Nothing is taken by a look, by any charge if one is refused, nor from the shard of a
    /// two-choices charge that does not pay.
    #[must_use]
    #[inline]
    pub const fn units(&self) -> Units {
        self.units
    }

    /// How long until this bucket has what was asked of it; for a two-choices charge, until both
    /// shards have it together. Zero if they have it now.
    #[must_use]
    pub const fn wait(&self) -> Duration {
        Duration::from_micros(self.wait)
    }
}
