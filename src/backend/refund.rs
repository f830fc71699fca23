//! What a backend is given back, or is to withhold.

use std::time::Duration;

use super::BucketId;
use super::answer::List;
use crate::algebra::{Bucket, State, Units, block, refund, undo};
use crate::clock::Timestamp;

/// Units to give back to a bucket, or to take from it after the fact; or a time for which to close
/// it.
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
///     let Answer::Ready(Ok(applied)) = memory.apply(&[Charge::take(id, bucket, one)]) else { panic!() };
///     applied.readings()[0].state()
/// };
/// let undo = |left| {
///     let Answer::Ready(Ok(refunded)) = memory.refund(&[Refund::new(id, bucket, one).if_untouched(left)])
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
    change: Change,
    left: Option<State>,
    since: Option<State>,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Give(Units),
    /// Nothing comes in for so many microseconds.
    Block(u64),
}

impl<'a> Refund<'a> {
    /// Gives the units back, as far as they fit in.
    ///
    /// Less than no units are taken instead, into debt if need be, and never refused: this is how
    /// work that cost more than was charged for it is settled.
    #[must_use]
    pub const fn new(id: BucketId<'a>, bucket: &'a Bucket, units: Units) -> Self {
        Self { id, bucket, change: Change::Give(units), left: None, since: None }
    }

    /// Closes the bucket for this long from now on, as [`block`] says, and gives nothing back. The
    /// time is rounded up to the microsecond; none at all changes nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::backend::{Answer, Backend, BucketId, Key, Memory, Refund};
    /// use tollgate::{HOUR, Limit, Quota};
    ///
    /// let limit = Limit::new("exports", Quota::token_bucket(10, HOUR));
    /// let key = Key::from("mallory");
    /// let refund = Refund::block(BucketId::new(limit.name(), &key), limit.bucket(), HOUR);
    /// let Answer::Ready(Ok(refunded)) = Memory::new().refund(&[refund]) else { panic!() };
    /// assert!(refunded.states()[0].value < 0 && refunded.states()[0].ts > refunded.now());
    /// ```
    #[must_use]
    pub fn block(id: BucketId<'a>, bucket: &'a Bucket, time: Duration) -> Self {
        let micros = u64::try_from(time.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX);
        Self { id, bucket, change: Change::Block(micros), left: None, since: None }
    }

    /// Only if the bucket holds exactly what a charge `left` in it, both refreshed to now.
    #[must_use]
    pub const fn if_untouched(mut self, left: State) -> Self {
        self.left = Some(left);
        self
    }

    /// Gives back no more than would still be missing from what a charge `left`, if nobody else had
    /// taken anything: what the bucket has gained in place of it is not given a second time.
    ///
    /// So is work undone that has run for long. With its units back, the bucket never holds more than if
    /// they had not been taken; where others have taken from it meanwhile, it may hold a little less.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::algebra::State;
    /// use tollgate::backend::{BucketId, Key, Refund};
    /// use tollgate::{HOUR, Limit, Quota, Timestamp};
    ///
    /// let limit = Limit::new("exports", Quota::fixed_window(10, HOUR));
    /// let key = Key::from("alice");
    /// let empty = State { value: 0, ts: Timestamp::UNIX_EPOCH };
    /// let refund = Refund::new(BucketId::new(limit.name(), &key), limit.bucket(), 7);
    /// let refund = refund.less_gained_since(empty);
    /// assert_eq!(refund.carried_out(empty, empty.ts).value, 7);
    /// // The next window has begun with ten, which others have taken.
    /// let next = State { value: 0, ts: empty.ts + HOUR };
    /// assert_eq!(refund.carried_out(next, next.ts).value, 0);
    /// ```
    #[must_use]
    pub const fn less_gained_since(mut self, left: State) -> Self {
        self.since = Some(left);
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

    /// How much to give back; nothing, if it is to [close](Self::blocks) the bucket.
    #[must_use]
    pub const fn units(&self) -> Units {
        match self.change {
            Change::Give(units) => units,
            Change::Block(_) => 0,
        }
    }

    /// For how long to close the bucket; `None` if something is given back to it, or taken.
    #[must_use]
    pub const fn blocks(&self) -> Option<Duration> {
        match self.change {
            Change::Give(_) => None,
            Change::Block(micros) => Some(Duration::from_micros(micros)),
        }
    }

    /// Whether the bucket holds less for it: one that is not stored has to be, then.
    #[must_use]
    pub const fn takes(&self) -> bool {
        match self.change {
            Change::Give(units) => units < 0,
            Change::Block(micros) => micros > 0,
        }
    }

    /// What a bucket holds once this is carried out at `now`: what [`refund`], [`undo`] or [`block`]
    /// says.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::algebra::State;
    /// use tollgate::backend::{BucketId, Key, Refund};
    /// use tollgate::{HOUR, Limit, Quota, Timestamp};
    ///
    /// let limit = Limit::new("exports", Quota::token_bucket(10, HOUR));
    /// let key = Key::from("alice");
    /// let empty = State { value: 0, ts: Timestamp::UNIX_EPOCH };
    /// let refund = Refund::new(BucketId::new(limit.name(), &key), limit.bucket(), 7);
    /// assert_eq!(refund.carried_out(empty, empty.ts).value, 7);
    /// ```
    #[must_use]
    pub fn carried_out(&self, state: State, now: Timestamp) -> State {
        match self.change {
            Change::Give(units) if self.left.is_some() => undo(self.bucket, state, units, now),
            Change::Give(units) => refund(self.bucket, state, units.min(self.missing(now)), now),
            Change::Block(micros) => block(self.bucket, state, now.plus_micros(micros), now),
        }
    }

    /// The most that may be given back.
    fn missing(&self, now: Timestamp) -> Units {
        let missing = |left| {
            let held = self.bucket.refresh(left, now).value;
            self.bucket.capacity().saturating_sub(held).max(0)
        };
        self.since.map_or(Units::MAX, missing)
    }

    /// What the charge has left from which on the bucket's [gains are
    /// counted](Self::less_gained_since); `None` if they do not matter.
    #[must_use]
    pub const fn gained_since(&self) -> Option<State> {
        self.since
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
    #[cfg(any(feature = "memory", feature = "redis"))]
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
