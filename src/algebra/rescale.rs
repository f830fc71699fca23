//! Converting a bucket when the numbers of its limit change.
//!
//! # Design
//!
//! A bucket changes its numbers in two steps: [`rescale`] converts what is used, and
//! [`Bucket::yields_to`] says when. Numbers that refill at least as fast take over with the first
//! request by them, whatever becomes of it. Slower ones take over with the first request that they
//! admit or reserve. Until then the bucket gains by its own numbers, and [`charge_slower`] and
//! [`charge_pair_slower`](super::charge_pair_slower) decide.
//!
//! For example, 5,000 of 10,000 a day are used when the quota becomes 100 a day. Were the bucket
//! counted in 100 a day at once, 4,900 tokens of debt would be repaid at 100 a day, in 49 days. By
//! its own numbers, less than 100 are used after 11.8 hours.
//!
//! Nothing is minted by this: what is used only falls by a rate that was in force when it was used.
//! To forgive what the slower quota cannot hold would mint, as two processes with different numbers
//! could convert to and fro.

use std::num::NonZeroU64;

use super::bucket::Bucket;
use super::charge::{Charged, Verdict, charge};
use super::state::{State, Units};
use super::terms::Terms;
use crate::clock::Timestamp;
use crate::quota::MAX_UNITS;

/// Returns the state of a bucket when the quota of its limit changes from `old` to `new` at `now`.
///
/// [`Bucket::yields_to`] says when it does. What was used stays used: `used = old capacity - value`
/// in tokens, and the new value is `new capacity - used`, below zero if need be. `phase` is an
/// instant at which a window starts, as for [`Bucket::absent`].
///
/// * Debt is used as well: what lies below zero adds to the capacity.
/// * `used` is rounded up to a whole unit of the new numbers, so less than a unit is lost. Whole
///   tokens are whole units under any numbers, so they are exact, and however often the numbers
///   change at one instant, `used` never falls and never passes the next whole token. (More than
///   the 2^53 units that can be counted is cut to that.)
/// * A bucket of which nothing is used becomes an [absent](Bucket::absent) one of the new quota:
///   full, or at its `initial`. Whether it was stored or had been dropped makes no difference.
/// * If `old` starts below its capacity (`initial`), the tokens that it has not gained yet count as
///   used.
/// * A [blocked](super::block) state, which has a value below zero and a time yet to come, stays
///   blocked: its value stays below zero, and its time does not get earlier. Where the new windows
///   start at other times, it is blocked until the end of the first window that starts after that;
///   where they are those of a calendar, until the end of the window in which it ends, or, where that
///   cannot be told, of the next.
///
/// Each shard is converted by itself, and keeps what was used of it, whatever the number of shards.
/// If that number grows, the new shards are absent; if it falls, some shards are not asked any
/// more.
///
/// # Examples
///
/// ```
/// use tollgate::algebra::{Bucket, State, rescale};
/// use tollgate::{HOUR, MINUTE, Quota, Timestamp};
///
/// let (free, pro) = (Quota::token_bucket(3, HOUR), Quota::token_bucket(100, MINUTE));
/// let (free, pro) = (Bucket::new(&free)?, Bucket::new(&pro)?);
/// let now = Timestamp::UNIX_EPOCH;
///
/// let empty = State { value: 0, ts: now };
/// let upgraded = rescale(&free, &pro, empty, now, now);
/// assert_eq!(pro.tokens(upgraded.value).to_string(), "97");
/// assert_eq!(rescale(&pro, &free, upgraded, now, now), empty);
///
/// let downgraded = rescale(&pro, &free, empty, now, now);
/// assert_eq!(free.tokens(downgraded.value).to_string(), "-97");
/// # Ok::<(), tollgate::quota::QuotaError>(())
/// ```
#[must_use]
pub fn rescale(
    old: &Bucket,
    new: &Bucket,
    state: State,
    now: Timestamp,
    phase: Timestamp,
) -> State {
    let old = old.seen_by(new);
    let refreshed = old.refresh(state, now);
    let absent = new.absent_by(refreshed, &old, now, phase);
    let State { value, ts } = refreshed;
    let used = old.missing(value).min(MAX_UNITS);
    if used == 0 {
        return absent;
    }
    let used = scale_up(used, new.token(), old.token()).min(MAX_UNITS);
    let left = new.capacity().saturating_sub_unsigned(used);
    if value >= 0 || ts <= now {
        return State { value: left, ts: absent.ts };
    }
    // Blocked. A window that starts before `ts` would gain too soon, or count as one without a
    // block.
    let next = absent.ts.plus_micros(new.step());
    let counts = new.calendar.is_none() && next.as_micros() < MAX_UNITS.cast_signed();
    let ts = if absent.ts < ts && counts { next } else { absent.ts };
    State { value: left.min(-1).max(new.min_value()), ts }
}

impl Bucket {
    /// The state of a bucket that was never used, for one that was refreshed by the numbers `old` and
    /// may have a time in the future.
    fn absent_by(
        &self,
        State { value, ts }: State,
        old: &Self,
        now: Timestamp,
        phase: Timestamp,
    ) -> State {
        match self.calendar {
            Some(calendar) if ts > now && old.calendar.is_none() => {
                // A block holds to the end of the window in which it ends, and so does debt that
                // cannot be told from one. Otherwise the clock has been set back.
                let start = calendar.start(now);
                let ahead = if value < 0 { calendar.ahead_of_end(start, ts) } else { 0 };
                State { value: self.initial, ts: calendar.time_of(start, ahead) }
            }
            // `ts` says by itself in which window of this calendar it counts.
            Some(_) if ts > now => State { value: self.initial, ts },
            _ => self.absent(now.max(ts), phase),
        }
    }

    /// Whether a bucket that is counted in these numbers takes those of a request also if they do
    /// not admit it: if they refill at least as fast.
    ///
    /// The windows of a calendar count with a length that none exceeds.
    ///
    /// If they refill more slowly, the bucket keeps its numbers until a request is admitted by the
    /// others; see [`charge_slower`]. Numbers that start below their capacity (`initial`) are taken
    /// at once, as a bucket that is full by other numbers does not hold what they begin with.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::algebra::Bucket;
    /// use tollgate::{DAY, HOUR, Quota};
    ///
    /// let free = Bucket::new(&Quota::token_bucket(100, DAY))?;
    /// let pro = Bucket::new(&Quota::fixed_window(10, HOUR).capacity(50))?;
    /// assert!(free.yields_to(&pro) && !pro.yields_to(&free));
    /// # Ok::<(), tollgate::quota::QuotaError>(())
    /// ```
    #[must_use]
    pub fn yields_to(&self, other: &Self) -> bool {
        !other.is_droppable_when_full() || other.refills_as_fast_as(self)
    }

    /// Whether these numbers gain at least as many tokens in the same time.
    fn refills_as_fast_as(&self, other: &Self) -> bool {
        // Tokens in a microsecond: gain / (token · step). Multiplied by both tokens, one of them is
        // a / step and the other b / step. A product of three numbers would not fit, so whole parts
        // are compared, and then the rests.
        let gained = |gain: NonZeroU64, token: NonZeroU64, step: NonZeroU64| {
            let product = u128::from(gain.get()).saturating_mul(u128::from(token.get()));
            let step = u128::from(step.get());
            (product.checked_div(step).unwrap_or(0), product.checked_rem(step).unwrap_or(0))
        };
        let (whole, rest) = gained(self.gain, other.token, self.step);
        let (others, others_rest) = gained(other.gain, self.token, other.step);
        let part = |rest: u128, step: NonZeroU64| rest.saturating_mul(u128::from(step.get()));
        (whole, part(rest, other.step)) >= (others, part(others_rest, self.step))
    }

    /// The instant from which a bucket that is counted in these numbers and was refreshed has no
    /// more used than leaves room for `units` in `other` numbers.
    fn has_room_at(&self, state: State, other: &Self, units: Units) -> Timestamp {
        let room = other.capacity().saturating_sub(units.max(0)).max(0).unsigned_abs();
        // The largest number of units whose equal there, rounded up, is within the room.
        let most = scale(room, self.token(), other.token()).0;
        self.gained_at(state, self.missing(state.value).saturating_sub(most))
    }
}

/// Takes `units` by the numbers of `bucket` from one that is counted in `own` numbers, which refill
/// faster: that does not [yield](Bucket::yields_to).
///
/// * If what is used, and the units, fit in the capacity of `bucket`, the charge is admitted. It
///   makes the bucket count in these numbers: [`after`](Charged::after) is to be stored with them.
/// * If what is used fits, but not the units, the charge may be reserved on these terms, and the
///   bucket counts in these numbers from then on as well.
/// * Otherwise it is refused, and the bucket stays as it is, in its own numbers. The wait is the
///   smallest after which the charge is admitted, if nothing else is taken.
///
/// `phase` is an instant at which a window starts, as for [`rescale`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::algebra::{Bucket, State, Terms, Verdict, charge_slower};
/// use tollgate::{DAY, Quota, Timestamp};
///
/// let (pro, free) = (Quota::token_bucket(10_000, DAY), Quota::token_bucket(100, DAY));
/// let (pro, free) = (Bucket::new(&pro)?, Bucket::new(&free)?);
/// let now = Timestamp::UNIX_EPOCH;
/// let used = State { value: pro.units(5_000).unwrap(), ts: now };
/// let ask = |at| charge_slower(&pro, used, &free, free.units(1).unwrap(), Terms::AT_ONCE, at, at);
///
/// // 4,901 of the 5,000 tokens that are used have to come back, at 10,000 a day.
/// let refused = ask(now);
/// assert_eq!(refused.verdict(), Verdict::Refused);
/// assert_eq!(refused.wait(), Duration::from_micros(42_344_640_000));
/// let admitted = ask(now + refused.wait());
/// assert_eq!(admitted.verdict(), Verdict::Admitted);
/// assert_eq!(free.tokens(admitted.after().value).to_string(), "0");
/// # Ok::<(), tollgate::quota::QuotaError>(())
/// ```
#[must_use]
pub fn charge_slower(
    own: &Bucket,
    state: State,
    bucket: &Bucket,
    units: Units,
    terms: Terms,
    now: Timestamp,
    phase: Timestamp,
) -> Charged {
    let own = &own.seen_by(bucket);
    let rescaled = rescale(own, bucket, state, now, phase);
    let charged = charge(bucket, rescaled, units, terms_of_slower(rescaled, terms), now);
    match charged.verdict() {
        Verdict::Refused => {
            let room = own.has_room_at(own.refresh(state, now), bucket, units);
            charged.with_wait(room.micros_since(now))
        }
        Verdict::Admitted | Verdict::Reserved => charged,
    }
}

/// The terms of a charge by slower numbers, in which the bucket has this state. If more is used
/// than they hold, it cannot reserve: a bucket in debt by them would have to count in them.
pub(super) fn terms_of_slower(state: State, terms: Terms) -> Terms {
    if state.value < 0 { Terms::AT_ONCE } else { terms }
}

/// `units * to / from`, rounded up.
fn scale_up(units: u64, to: u64, from: u64) -> u64 {
    let (whole, has_rest) = scale(units, to, from);
    whole.saturating_add(u64::from(has_rest))
}

/// `units * to / from`, rounded down, and whether there is a rest.
fn scale(units: u64, to: u64, from: u64) -> (u64, bool) {
    let product = u128::from(units).saturating_mul(u128::from(to));
    // A token is worth a unit at least, so nothing is divided by zero.
    let whole = product.checked_div(u128::from(from)).unwrap_or(0);
    let has_rest = product.checked_rem(u128::from(from)).is_some_and(|rest| rest > 0);
    (u64::try_from(whole).unwrap_or(u64::MAX), has_rest)
}
