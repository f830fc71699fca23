//! Taking from two shards of a limit: from the fuller one, or from both.
//!
//! # Design
//!
//! The limiter draws two shards at random, and the charge goes to the fuller one (Mitzenmacher,
//! "The power of two choices in randomized load balancing", IEEE Transactions on Parallel and
//! Distributed Systems 12, 2001). If the fuller shard is short, that is no reason to refuse: the
//! two may have the units together. Then both pay, and are left as even as possible.
//!
//! For example, shards hold 5 and 2 tokens. A cost of 4 leaves 1 and 2. A cost of 6 is more than
//! the fuller one holds, and leaves (5 + 2 - 6) / 2 each: one shard pays 4½ and the other 1½.

use super::bucket::Bucket;
use super::charge::{Charged, Verdict, charge};
use super::rescale::{rescale, terms_of_slower};
use super::state::{State, Units};
use super::terms::Terms;
use crate::clock::Timestamp;

impl Charged<[State; 2]> {
    /// The units that each shard pays: together the units of the charge, or zero if it is refused.
    #[must_use]
    pub const fn paid(&self) -> [Units; 2] {
        let [first, second] = self.before;
        let [first_left, second_left] = self.state();
        [
            first.value.saturating_sub(first_left.value),
            second.value.saturating_sub(second_left.value),
        ]
    }
}

/// Takes `units` from two shards of a limit at `now`: from the fuller one, or from both if it is
/// short. Returns what to store.
///
/// The fuller shard is the one with the larger value, the first of two equal ones. The first rule
/// that holds decides:
///
/// 1. The fuller shard has the units: admitted, and it pays for all. The other is unchanged.
/// 2. Both together have them: admitted, and both pay.
/// 3. The fuller shard alone can reserve them on these terms, as [`charge`] does.
/// 4. Both together can: reserved. Neither is left below the floor, and the wait is the longer of
///    the two.
/// 5. Refused: nothing is stored.
///
/// When both pay they are left with the same value, or with one unit more in the fuller one. A
/// shard never pays a negative amount: where an even split would need that, the fuller one pays for
/// all.
///
/// Negative units count as zero.
///
/// # Examples
///
/// ```
/// use tollgate::algebra::{Bucket, State, Terms, Verdict, charge_pair};
/// use tollgate::{Quota, SECOND, Timestamp};
///
/// // Each of 10 shards holds 3 tokens of 1,000,000 units.
/// let shard = Bucket::of_shard(&Quota::token_bucket(10, SECOND).capacity(30).shards(10))?;
/// let now = Timestamp::UNIX_EPOCH;
/// let holding = |tokens: i64| State { value: tokens * 1_000_000, ts: now };
/// let take = |tokens: i64| {
///     let shards = [holding(1), holding(3)];
///     charge_pair(&shard, shards, tokens * 1_000_000, Terms::AT_ONCE, now)
/// };
///
/// assert_eq!(take(3).after(), [holding(1), holding(0)]);
/// assert_eq!(take(4).after(), [holding(0), holding(0)]);
/// // A shard gains a token in a second, and one of these is full.
/// assert_eq!((take(5).verdict(), take(5).wait()), (Verdict::Refused, SECOND));
/// assert_eq!(take(5).paid(), [0, 0]);
/// # Ok::<(), tollgate::quota::QuotaError>(())
/// ```
#[must_use]
pub fn charge_pair(
    bucket: &Bucket,
    shards: [State; 2],
    units: Units,
    terms: Terms,
    now: Timestamp,
) -> Charged<[State; 2]> {
    let units = units.max(0);
    let [first, second] = shards.map(|state| bucket.refresh(state, now));
    let swapped = second.value > first.value;
    let in_order = |[fuller, poorer]: [State; 2]| {
        if swapped { [poorer, fuller] } else { [fuller, poorer] }
    };
    let [fuller, poorer] = in_order([first, second]);

    let alone = charge(bucket, fuller, units, terms, now);
    let after_alone = [alone.after(), poorer];
    if alone.verdict() == Verdict::Admitted {
        let (verdict, after) = (Verdict::Admitted, in_order(after_alone));
        return Charged { verdict, before: [first, second], after, wait: 0 };
    }
    let split = split([fuller, poorer], units);
    // With 7 units to be left, the fuller shard keeps 4 and the poorer one 3.
    let together = split.unwrap_or(after_alone);
    let wait = together.map(|left| wait(bucket, left, now)).into_iter().fold(0, u64::max);
    // Without an even split, the answer of the fuller shard alone stands.
    let enough = |least: Units| split.is_some_and(|left| left.iter().all(|s| s.value >= least));

    let (verdict, after, wait) = if enough(0) {
        (Verdict::Admitted, together, 0)
    } else if alone.verdict() == Verdict::Reserved {
        (Verdict::Reserved, after_alone, alone.wait_micros())
    } else if enough(terms.floor()) && wait <= terms.max_wait() {
        (Verdict::Reserved, together, wait)
    } else {
        (Verdict::Refused, together, shortest_wait(bucket, [fuller, poorer], units, now))
    };
    Charged { verdict, before: [first, second], after: in_order(after), wait }
}

/// As [`charge_pair`], for shards that are counted in numbers of their own: as
/// [`charge_slower`](super::charge_slower) takes from one bucket.
///
/// A shard that is counted in the numbers of `bucket`, or [yields](Bucket::yields_to) to them, is
/// converted. If all of both shards that is used fits in their capacity, the charge may be
/// reserved. If it is refused, a shard that does not yield stays in its own numbers, and gains by
/// them until the wait is over.
///
/// # Examples
///
/// ```
/// use tollgate::algebra::{Bucket, State, Terms, Verdict, charge_pair_slower};
/// use tollgate::{HOUR, MINUTE, Quota, Timestamp};
///
/// let fast = Bucket::new(&Quota::token_bucket(60, MINUTE))?;
/// let slow = Bucket::new(&Quota::token_bucket(6, HOUR))?;
/// let now = Timestamp::UNIX_EPOCH;
/// // One shard has used 60 tokens by the fast numbers, and the other owes 10 by the slow ones.
/// let (one, ten) = (slow.units(1).unwrap(), slow.units(10).unwrap());
/// let shards = [(fast, State { value: 0, ts: now }), (slow, State { value: -ten, ts: now })];
/// let refused = charge_pair_slower(shards, &slow, one, Terms::AT_ONCE, now, now);
/// assert_eq!(refused.verdict(), Verdict::Refused);
/// // After 55 seconds, no more than 5 tokens of the first are used, and it can hold 6.
/// assert_eq!(refused.wait(), MINUTE * 55 / 60);
/// # Ok::<(), tollgate::quota::QuotaError>(())
/// ```
#[must_use]
pub fn charge_pair_slower(
    shards: [(Bucket, State); 2],
    bucket: &Bucket,
    units: Units,
    terms: Terms,
    now: Timestamp,
    phase: Timestamp,
) -> Charged<[State; 2]> {
    let rescaled = shards.map(|shard| state_in(bucket, shard, now, phase));
    let mut allowed = terms;
    for ((own, _), state) in shards.iter().zip(rescaled) {
        if !own.yields_to(bucket) {
            allowed = terms_of_slower(state, allowed);
        }
    }
    let charged = charge_pair(bucket, rescaled, units, allowed, now);
    if charged.verdict() != Verdict::Refused {
        return charged;
    }
    // One that yields gains by the new numbers from now on.
    let mut kept = shards;
    for (shard, state) in kept.iter_mut().zip(rescaled) {
        if shard.0.yields_to(bucket) {
            *shard = (*bucket, state);
        }
    }
    let wait = admits_at(kept, bucket, units.max(0), now).micros_since(now);
    Charged { wait, ..charged }
}

/// The state of a shard in the numbers of `bucket`.
fn state_in(
    bucket: &Bucket,
    (own, state): (Bucket, State),
    at: Timestamp,
    phase: Timestamp,
) -> State {
    if own == *bucket {
        return bucket.refresh(state, at);
    }
    rescale(&own, bucket, state, at, phase)
}

/// The instant at which two shards that refuse `units` by the numbers of `bucket` admit them, while
/// each gains by its own numbers. It is the instant at which both are full, if that is too little.
///
/// By bisection: the two gain at their own steps, so no formula is short, and this is not the way
/// of nearly any charge.
fn admits_at(
    shards: [(Bucket, State); 2],
    bucket: &Bucket,
    units: Units,
    now: Timestamp,
) -> Timestamp {
    let admits = |at: Timestamp| {
        let held = shards.map(|shard| state_in(bucket, shard, at, at).value);
        let [one, other] = held.map(i128::from);
        one.max(other).max(one.saturating_add(other)) >= i128::from(units)
    };
    let full = shards.map(|(own, state)| own.full_at(state));
    let (mut early, mut late) = (now, full.into_iter().fold(now, Timestamp::max));
    while late.micros_since(early) > 1 {
        let middle = early.plus_micros(late.micros_since(early) / 2);
        if admits(middle) { late = middle } else { early = middle }
    }
    late
}

/// The states of the fuller and the poorer shard once both have paid, as even as possible. `None`
/// if one of them would gain units, or if the debt does not fit into an `i64`.
fn split([fuller, poorer]: [State; 2], units: Units) -> Option<[State; 2]> {
    // 128 bits, wide enough for any three numbers.
    let held = i128::from(fuller.value).saturating_add(i128::from(poorer.value));
    let left = held.saturating_sub(i128::from(units));
    let half = left.div_euclid(2);
    let poorer_left = Units::try_from(half).ok()?;
    let fuller_left = Units::try_from(left.saturating_sub(half)).ok()?;
    (poorer_left <= poorer.value && fuller_left <= fuller.value)
        .then_some([State { value: fuller_left, ..fuller }, State { value: poorer_left, ..poorer }])
}

/// How long until a bucket in `state` is out of debt.
fn wait(bucket: &Bucket, state: State, now: Timestamp) -> u64 {
    if state.value >= 0 {
        return 0;
    }
    bucket.gained_at(state, state.value.unsigned_abs()).micros_since(now)
}

/// The smallest wait after which two shards that refuse `units` admit them.
fn shortest_wait(bucket: &Bucket, shards: [State; 2], units: Units, now: Timestamp) -> u64 {
    let together = match bucket.calendar() {
        Some(calendar) => {
            // By the numbers of the windows, which are steps of one.
            let start = calendar.start(now);
            let flat = bucket.of_window_numbers();
            let numbers = shards.map(|State { value, ts }| State {
                value,
                ts: Timestamp::from_micros(calendar.ahead(start, ts)),
            });
            let ahead = pair_affords_at(&flat, numbers, units).as_micros();
            calendar.after(start, ahead.max(0).unsigned_abs())
        }
        None => pair_affords_at(bucket, shards, units),
    };
    let soonest = if units > bucket.capacity() {
        together
    } else {
        // The shards together may have to wait for one that is in debt, while the other has the
        // units alone sooner.
        let alone = shards.map(|state| bucket.gained_at(state, units.abs_diff(state.value)));
        alone.into_iter().fold(together, Timestamp::min)
    };
    soonest.micros_since(now)
}

/// The instant at which two shards that are short of `units` have them together, where neither
/// gains beyond its capacity.
///
/// Both gain at every step from their own `ts` on, and these may differ. Let the early one have
/// made `n` steps and the late one `m`, and let them have room for `e` and `l` units. They have
/// gained `min(e, n·gain) + min(l, m·gain)`, which is the smallest of four sums. So it is enough
/// once `n·gain + m·gain`, `n·gain + l` and `e + m·gain` are. (The fourth, `e + l`, always is
/// unless the units are more than two capacities.)
fn pair_affords_at(bucket: &Bucket, [a, b]: [State; 2], units: Units) -> Timestamp {
    let (early, late) = if a.ts <= b.ts { (a, b) } else { (b, a) };
    let (room_early, room_late) = (bucket.missing(early.value), bucket.missing(late.value));
    let held = i128::from(a.value).saturating_add(i128::from(b.value));
    let need = i128::from(units).saturating_sub(held);
    let need = u64::try_from(need).unwrap_or(u64::MAX);

    // The fewest steps of the early shard, while the late one is this many `behind`.
    let steps = |behind: u64| {
        let alone = bucket.steps_to_gain(need);
        let both = alone.min(alone.saturating_add(behind).div_ceil(2));
        let late_full = bucket.steps_to_gain(need.saturating_sub(room_late));
        let early_full = match need.saturating_sub(room_early) {
            0 => 0,
            rest => bucket.steps_to_gain(rest).saturating_add(behind),
        };
        both.max(late_full).max(early_full)
    };
    let apart = late.ts.micros_since(early.ts);
    let behind = bucket.steps(apart);
    // The instant is one at which the early shard gains, or one at which the late one does. Unless
    // these coincide, the late one is a step less behind at its own instants.
    let early_late = behind.saturating_add(u64::from(behind.saturating_mul(bucket.step()) < apart));
    let after =
        |state: State, steps: u64| state.ts.plus_micros(steps.saturating_mul(bucket.step()));
    let at_early = after(early, steps(early_late));
    let at_late = after(late, steps(behind).saturating_sub(behind));
    at_early.min(at_late)
}
