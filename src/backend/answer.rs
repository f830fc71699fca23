//! The answers of a backend, which are ready or a future.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use super::charge::Charge;
use super::error::BackendError;
use super::origin::{Origin, Unpaid};
use super::receipt::Receipt;
use super::record::{BucketRecord, Found};
use super::reset_log::ResetMark;
use crate::algebra::{Bucket, Charged, State, Units, Verdict};
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

/// Most lists have no more charges.
pub(crate) const FEW: usize = 3;

/// The memory store takes no more charges at once without a list.
#[cfg(feature = "memory")]
pub(crate) const MOST: usize = 8;

/// The result of a list of charges or adjustments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    now: Timestamp,
    readings: List<Reading>,
    remarks: Remarks,
}

/// What few answers say beside their readings. Nearly always it is nothing, which costs a look at
/// one pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remarks(Option<Box<RareRemarks>>);

#[derive(Clone, Debug, Default)]
struct RareRemarks {
    /// The buckets that stay in faster numbers than those they were asked by, by the places of
    /// their readings.
    kept: Vec<(usize, BucketRecord)>,
    /// Why a fallback has answered in place of the store.
    outage: Option<BackendError>,
}

impl Drop for Remarks {
    /// Inlined is the look at the pointer alone: answers are dropped wherever a decision is made.
    #[inline]
    fn drop(&mut self) {
        if let Some(remarks) = self.0.take() {
            drop_rare(remarks);
        }
    }
}

#[cold]
#[inline(never)]
fn drop_rare(remarks: Box<RareRemarks>) {
    drop(remarks);
}

/// Answers say the same whatever the cause of an outage is.
impl PartialEq for RareRemarks {
    fn eq(&self, other: &Self) -> bool {
        self.kept == other.kept
    }
}

impl Eq for RareRemarks {}

impl Remarks {
    /// None.
    pub const NONE: Self = Self(None);

    /// Adds the record of the bucket with this reading.
    #[cold]
    pub fn add(&mut self, nth: usize, record: BucketRecord) {
        self.0.get_or_insert_default().kept.push((nth, record));
    }

    /// Adds what a store has of the bucket with this reading, if that is kept from the numbers of
    /// `bucket`.
    pub fn note(&mut self, nth: usize, found: &Found, bucket: &Bucket) {
        if let Some(record) = found.kept(bucket) {
            self.add(nth, *record);
        }
    }

    /// Adds those of an answer whose first reading is the `nth` of a longer one.
    pub fn append(&mut self, nth: usize, applied: &Applied) {
        for (place, record) in applied.remarks.0.iter().flat_map(|remarks| &remarks.kept) {
            self.add(nth.saturating_add(*place), *record);
        }
    }

    fn get(&self, nth: usize) -> Option<&BucketRecord> {
        let records = &self.0.as_deref()?.kept;
        records.iter().find(|(place, _)| *place == nth).map(|(_, record)| record)
    }
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
        if count == 1
            && let Some(one) = items.next()
        {
            return Self::One([one]);
        }
        if count == 2
            && let (Some(one), Some(two)) = (items.next(), items.next())
        {
            return Self::Two([one, two]);
        }
        Self::Many(items.collect())
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
        Self { now, readings: List::One([reading]), remarks: Remarks::NONE }
    }

    /// The result of charges on two buckets, such as one two-choices charge.
    #[must_use]
    pub const fn two(now: Timestamp, readings: [Reading; 2]) -> Self {
        Self { now, readings: List::Two(readings), remarks: Remarks::NONE }
    }

    /// The result of charges on several buckets: one reading for each bucket that is named, in
    /// order.
    #[must_use]
    pub const fn many(now: Timestamp, readings: Vec<Reading>) -> Self {
        Self { now, readings: List::Many(readings), remarks: Remarks::NONE }
    }

    /// As [`many`](Self::many), without an allocation for one or two.
    #[inline(always)]
    pub(super) fn collect(
        now: Timestamp,
        count: usize,
        readings: impl IntoIterator<Item = Reading>,
    ) -> Self {
        Self { now, readings: List::collect(count, readings), remarks: Remarks::NONE }
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

    /// Sets what it says beside its readings.
    #[inline(always)]
    #[doc(hidden)]
    #[must_use]
    pub fn with_remarks(self, remarks: Remarks) -> Self {
        if remarks.0.is_none() { self } else { self.with_some_remarks(remarks) }
    }

    #[cold]
    fn with_some_remarks(mut self, mut remarks: Remarks) -> Self {
        // In the form in which every store has them.
        for (_, record) in remarks.0.iter_mut().flat_map(|remarks| &mut remarks.kept) {
            *record = record.refreshed(self.now);
        }
        self.remarks = remarks;
        self
    }

    /// The record of the bucket with this reading, if the bucket stays in numbers of its own, which
    /// refill faster than those that it was asked by.
    ///
    /// Its state is what the [reading](Self::readings) says, in other units. Only this record tells
    /// what the bucket holds at a later time: it gains by its own numbers until a request by the
    /// others is admitted. See [`charge_slower`](crate::algebra::charge_slower).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::backend::{Answer, Backend, BucketId, Charge, Key, Memory};
    /// use tollgate::{DAY, Limit, Quota};
    ///
    /// let pro = Limit::new("requests", Quota::token_bucket(10_000, DAY));
    /// let free = Limit::new("requests", Quota::token_bucket(100, DAY));
    /// let (memory, key) = (Memory::new(), Key::from("alice"));
    /// let take = |limit: &Limit, tokens| {
    ///     let (id, bucket) = (BucketId::new(limit.name(), &key), limit.bucket());
    ///     let charge = Charge::take(id, bucket, bucket.units(tokens).unwrap());
    ///     let Answer::Ready(Ok(applied)) = memory.apply(&[charge]) else { panic!() };
    ///     applied
    /// };
    /// assert!(take(&pro, 5_000).kept(0).is_none());
    /// let refused = take(&free, 1);
    /// let kept = refused.kept(0).expect("the bucket refills by 10,000 a day");
    /// assert!(kept.full_at().since(refused.now()) <= DAY / 2);
    /// ```
    #[must_use]
    pub fn kept(&self, nth: usize) -> Option<&BucketRecord> {
        self.remarks.get(nth)
    }

    /// Whether any bucket stays in faster numbers.
    #[doc(hidden)]
    #[must_use]
    pub fn has_kept(&self) -> bool {
        self.remarks.0.as_ref().is_some_and(|remarks| !remarks.kept.is_empty())
    }

    /// Sets why a fallback has answered in place of the store.
    #[cold]
    pub(super) fn in_outage(mut self, error: BackendError) -> Self {
        self.remarks.0.get_or_insert_default().outage = Some(error);
        self
    }

    /// Why a fallback has answered in place of the store, if one has.
    #[inline]
    pub(crate) fn outage(&self) -> Option<&BackendError> {
        self.remarks.0.as_ref()?.outage.as_ref()
    }

    /// Sets which store has decided.
    pub(super) fn with_origin(mut self, origin: Origin) -> Self {
        let readings = self.readings.as_mut_slice();
        readings.iter_mut().for_each(|reading| reading.origin = origin);
        self
    }

    /// Sets what the local store of a fallback has not paid of each bucket.
    pub(super) fn with_unpaid(mut self, unpaid: impl Iterator<Item = Unpaid>) -> Self {
        for (reading, unpaid) in self.readings.as_mut_slice().iter_mut().zip(unpaid) {
            reading.unpaid = unpaid;
        }
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
    /// What the local store of a fallback has not paid of it.
    unpaid: Unpaid,
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
    pub fn from_charged_pair(charge: &Charge<'_>, charged: &Charged<[State; 2]>) -> [Self; 2] {
        let ([first, second], [first_pays, second_pays]) = if charge.takes() {
            (charged.state(), charged.paid())
        } else {
            (charged.before(), [0; 2])
        };
        let (verdict, wait) = (charged.verdict(), charged.wait_micros());
        [(first, first_pays), (second, second_pays)]
            .map(|(state, units)| Self::in_micros(verdict, state, units, wait))
    }

    #[inline]
    #[doc(hidden)]
    #[must_use]
    pub const fn in_micros(verdict: Verdict, state: State, units: Units, wait: u64) -> Self {
        let (mark, origin, unpaid) = (ResetMark::NONE, Origin::Store, Unpaid::NOTHING);
        Self { verdict, state, units, wait, mark, origin, unpaid }
    }

    /// Sets the receipt: for a wrapper that answers in place of the store that took the units.
    #[must_use]
    pub fn with_receipt(mut self, receipt: Receipt) -> Self {
        self.mark = receipt.mark.unwrap_or(ResetMark::NONE);
        self.origin = receipt.origin;
        self.unpaid = Unpaid::part(receipt.unpaid, self.units);
        self
    }

    /// What an [adjustment](super::Adjustment::with_receipt) of these units has to know of this charge.
    #[must_use]
    pub fn receipt(&self) -> Receipt {
        Receipt::new(self.mark, self.origin, self.unpaid.of(self.units), self.state)
    }

    /// The same with what was charged on top of it.
    pub(crate) fn with_more(self, more: &Self) -> Self {
        let units = self.units.saturating_add(more.units);
        let unpaid = self.unpaid.of(self.units).saturating_add(more.unpaid.of(more.units));
        let (unpaid, origin) = (Unpaid::part(unpaid, units), self.origin.and(more.origin));
        Self { state: more.state, units, origin, unpaid, ..self }
    }

    /// Sets the mark.
    #[inline]
    pub(crate) const fn with_mark(mut self, mark: ResetMark) -> Self {
        self.mark = mark;
        self
    }

    /// The same units, paid as those of another reading: before or after a reset, and in a local store or
    /// not.
    pub(crate) const fn paid_like(self, other: &Self) -> Self {
        Self { mark: other.mark, unpaid: other.unpaid, ..self }
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

    /// What the local store of a fallback has not paid of it.
    #[inline]
    pub(crate) const fn unpaid(&self) -> Unpaid {
        self.unpaid
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
