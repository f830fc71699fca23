//! Quotas of the suite, and random ones.

use std::time::Duration;

use super::dice::Dice;
use tollgate::algebra::Bucket;
use tollgate::clock::Timestamp;
#[cfg(feature = "calendar")]
use tollgate::quota::{Calendar, Weekday};
use tollgate::quota::{Kind, Quota, QuotaError};

/// The smallest time.
pub(super) const TICK: Duration = Duration::from_micros(1);

/// A bucket of this quota, or of one of its shards.
pub(super) fn bucket(quota: Quota) -> Bucket {
    Bucket::of_shard(&quota).expect("the quotas of the suite can be counted")
}

/// A quota of either kind, with numbers from the smallest to the largest that can be counted.
pub(super) fn random_quota(dice: &mut Dice) -> Quota {
    loop {
        let period = match dice.below(5) {
            0 => 1 + dice.up_to((1 << 53) - 1),
            1 => 1 + dice.below(10),
            // Large numbers in seconds, for which token buckets take longer steps.
            2 => (1 + dice.up_to(300_000_000)) * 1_000_000,
            _ => dice.pick(&[1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000]),
        };
        let most = match dice.below(8) {
            0 => 1 << 53,
            1 | 2 => 1_000_000_000,
            _ => 100,
        };
        let rate = 1 + dice.up_to(most);
        let period = Duration::from_micros(period);
        let mut quota = match dice.below(KINDS) {
            0 => Quota::token_bucket(rate, period),
            1 => Quota::fixed_window(rate, period),
            _ => calendar_quota(dice, rate),
        };
        if dice.one_in(2) {
            quota = quota.capacity(match dice.below(4) {
                0 => 0,
                1 => dice.up_to(1 << 53),
                _ => dice.below(40),
            });
        }
        if dice.one_in(2) {
            let most = if dice.one_in(8) { 1 << 53 } else { 64 };
            quota = quota.max_reserved(dice.up_to(most));
        }
        if dice.one_in(6) {
            quota = quota.initial(dice.below(quota.get_capacity().saturating_add(1)));
        }
        let has_start = quota.kind() == Kind::FixedWindow && quota.windows().is_none();
        if has_start && dice.one_in(3) {
            quota = quota.from_first_use();
        } else if has_start && dice.one_in(2) {
            let start = i64::try_from(dice.up_to(1 << 62)).unwrap();
            quota =
                quota.start(Timestamp::from_micros(if dice.one_in(2) { start } else { -start }));
        }
        if dice.one_in(3) {
            quota = quota.shards(1 + u32::try_from(dice.below(6)).unwrap());
        }
        if let Ok(quota) = quota.validated() {
            return quota;
        }
    }
}

/// How many kinds of quotas there are: those with windows of a calendar are a third.
const KINDS: u64 = if cfg!(feature = "calendar") { 3 } else { 2 };

/// Calendars in which clocks change by an hour and by half of one, in either half of the year.
#[cfg(feature = "calendar")]
const CALENDARS: [Calendar; 4] = [
    Calendar::monthly().zone("Europe/Berlin"),
    Calendar::weekly(Weekday::Sunday).zone("America/New_York"),
    Calendar::daily().zone("Australia/Lord_Howe"),
    Calendar::monthly(),
];

#[cfg(feature = "calendar")]
fn calendar_quota(dice: &mut Dice, rate: u64) -> Quota {
    Quota::calendar(rate, dice.pick(&CALENDARS))
}

#[cfg(not(feature = "calendar"))]
fn calendar_quota(_dice: &mut Dice, rate: u64) -> Quota {
    Quota::fixed_window(rate, TICK)
}

/// The same calendar, or another one, with another rate.
#[cfg(feature = "calendar")]
fn vary_calendar(dice: &mut Dice, before: &Quota, rate: u64) -> Result<Quota, QuotaError> {
    let other = dice.pick(&CALENDARS);
    Quota::try_calendar(rate, before.windows().filter(|_| !dice.one_in(4)).unwrap_or(other))
}

#[cfg(not(feature = "calendar"))]
fn vary_calendar(_dice: &mut Dice, before: &Quota, rate: u64) -> Result<Quota, QuotaError> {
    Quota::try_fixed_window(rate, before.period())
}

/// The same quota with one or two numbers changed.
pub(super) fn vary_quota(dice: &mut Dice, before: &Quota) -> Quota {
    loop {
        let (mut rate, mut period) = (before.rate(), before.period());
        let (mut capacity, mut shards) = (before.get_capacity(), before.get_shards());
        let (mut start, mut from_first_use) = (before.get_start(), before.is_from_first_use());
        let first = before.get_initial();
        let initial = (first < capacity).then_some(first);
        match dice.below(7) {
            0 => rate = 1 + dice.below(6),
            1 => period *= 1 + u32::try_from(dice.below(4)).unwrap(),
            2 => capacity = dice.below(40),
            3 => shards = 1 + u32::try_from(dice.below(6)).unwrap(),
            4 => (period, capacity) = (period * 3, 0),
            5 => from_first_use = !from_first_use,
            _ => start = start.map(|start| start + Duration::from_micros(1 + dice.up_to(1 << 40))),
        }
        let quota = match before.kind() {
            _ if before.windows().is_some() => vary_calendar(dice, before, rate),
            Kind::TokenBucket => Quota::try_token_bucket(rate, period),
            _ => Quota::try_fixed_window(rate, period),
        };
        let Ok(mut quota) = quota else { continue };
        if let Some(start) = start {
            quota = quota.start(start);
        }
        let is_plain_window = before.kind() == Kind::FixedWindow && before.windows().is_none();
        if from_first_use && is_plain_window {
            quota = quota.from_first_use();
        }
        if let Some(most) = before.get_max_reserved() {
            quota = quota.max_reserved(most);
        }
        if let Some(initial) = initial {
            quota = quota.initial(initial.min(capacity));
        }
        if let Ok(quota) = quota.capacity(capacity).shards(shards).validated() {
            return quota;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the suite plays is worth only as much as the quotas that it draws.
    #[test]
    fn random_quotas_are_of_both_kinds_and_count_in_steps_of_all_lengths() {
        let mut dice = Dice(7);
        let drawn: Vec<_> = (0..8_000).map(|_| random_quota(&mut dice)).collect();
        let count = |has: &dyn Fn(&Quota) -> bool| drawn.iter().filter(|one| has(one)).count();
        let windows = count(&|quota| quota.kind() == Kind::FixedWindow);
        let in_steps = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000].map(|step| {
            count(&|quota| quota.kind() == Kind::TokenBucket && bucket(*quota).step() == step)
        });
        println!("{windows} windows, and token buckets by steps of 1, 10, .. us: {in_steps:?}");
        assert!(windows > 800 && in_steps.iter().all(|count| *count > 10), "{in_steps:?}");
    }
}
