//! What a backend is given back.

use super::BucketId;
use super::answer::List;
use crate::algebra::{Bucket, State, Units};
use crate::clock::Timestamp;

/// Units to give back to a bucket, or to take from it after the fact.
///
/// # Examples
///
/// A charge that is undone, but only as long as nobody has come after it:
///
/// ```
/// use tollgate::backend::{Answer, Backend, BucketId, Charge, Key, Memory, Refund};
/// use tollgate::{HOUR, Limit, Quota};
///
/// let limit = Limit::new("exports", Quota::token_bucket(10, HOUR));
/// let (key, bucket) = (Key::from("alice"), limit.bucket());
/// let id = BucketId::new(limit.name(), &key);
/// let one = bucket.units(1).unwrap();
///
/// let memory = Memory::new();
/// let take = || {
///     let Answer::Now(Ok(applied)) = memory.apply(&[Charge::take(id, bucket, one)]) else { panic!() };
///     applied.readings()[0].state()
/// };
/// let undo = |left| {
///     let Answer::Now(Ok(refunded)) = memory.refund(&[Refund::new(id, bucket, one).if_untouched(left)])
///     else {
///         panic!()
///     };
///     refunded.given()
/// };
/// let (first, second) = (take(), take());
/// assert_eq!([undo(first), undo(second), undo(first)], [false, true, true]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Refund<'a> {
    id: BucketId<'a>,
    bucket: &'a Bucket,
    units: Units,
    left: Option<State>,
}

impl<'a> Refund<'a> {
    /// Gives the units back, as far as they fit in.
    ///
    /// Less than no units are taken instead, into debt if need be, and never refused: this is how
    /// work that cost more than was charged for it is settled.
    #[must_use]
    pub const fn new(id: BucketId<'a>, bucket: &'a Bucket, units: Units) -> Self {
        Self { id, bucket, units, left: None }
    }

    /// Only if the bucket holds exactly what a charge `left` in it, both refreshed to now.
    #[must_use]
    pub const fn if_untouched(mut self, left: State) -> Self {
        self.left = Some(left);
        self
    }

    /// The name of the bucket.
    #[must_use]
    pub const fn id(&self) -> BucketId<'a> {
        self.id
    }

    /// The numbers of the bucket.
    #[must_use]
    pub const fn bucket(&self) -> &'a Bucket {
        self.bucket
    }

    /// How much to give back.
    #[must_use]
    pub const fn units(&self) -> Units {
        self.units
    }

    /// What the bucket has to hold; `None` if that does not matter.
    #[must_use]
    pub const fn left(&self) -> Option<State> {
        self.left
    }
}

/// What became of a list of refunds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refunded {
    now: Timestamp,
    given: bool,
    states: List<State>,
}

impl Refunded {
    /// The outcome of one refund: whether it was carried out, and what the bucket then holds.
    #[must_use]
    pub const fn one(now: Timestamp, given: bool, state: State) -> Self {
        Self { now, given, states: List::One([state]) }
    }

    /// The outcome of several refunds, in their order.
    #[must_use]
    pub const fn many(now: Timestamp, given: bool, states: Vec<State>) -> Self {
        Self { now, given, states: List::Many(states) }
    }

    /// As [`many`](Self::many), without an allocation for one or two.
    #[cfg(feature = "memory")]
    pub(super) fn gathered(
        now: Timestamp,
        given: bool,
        count: usize,
        states: impl IntoIterator<Item = State>,
    ) -> Self {
        Self { now, given, states: List::gathered(count, states) }
    }

    /// The time at which all of them were decided.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// Whether all of them were carried out; otherwise none was, as a bucket was not untouched.
    #[must_use]
    pub const fn given(&self) -> bool {
        self.given
    }

    /// What each bucket holds now, in the order of the refunds.
    #[must_use]
    pub fn states(&self) -> &[State] {
        self.states.as_slice()
    }
}
