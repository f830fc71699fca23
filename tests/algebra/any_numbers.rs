//! Numbers as plans are sold: any rate in any period, and debt as deep as promised.

use tollgate_testing::draw;

use std::time::Duration;

use draw::draw;
use proptest::prelude::*;
use proptest::sample::select;

use tollgate::algebra::{Bucket, State, Terms, Verdict, charge, check_history, refund};
use tollgate::{DAY, HOUR, Quota, Timestamp, WEEK, days};

/// The largest number that can be counted.
const MOST: u128 = 1 << 53;

/// How many of 1,000 random plans of each kind are refused. Before token buckets took longer steps,
/// these were 390, 492, 776, 925 and 899.
#[test]
fn no_plan_is_refused() {
    let kinds = [
        (20_000_u64, days(30)..=days(30)),
        (1_000_000, DAY..=DAY),
        (1_000_000, WEEK..=WEEK),
        (100_000, days(365)..=days(365)),
        (1_000_000, HOUR..=days(90)),
    ];
    let refused = kinds.map(|(most, periods)| {
        let hours = |period: &Duration| period.as_secs() / 3_600;
        let plans = (1..=most, hours(periods.start())..=hours(periods.end()));
        let plans = draw(&plans, 1_000).into_iter();
        let quotas = plans.map(|(rate, hours)| Quota::token_bucket(rate, seconds(hours * 3_600)));
        quotas.filter(|quota| quota.validated().is_err()).count()
    });
    println!("refused of 1,000 plans of each kind: {refused:?}");
    assert_eq!(refused, [0; 5]);
}

#[test]
fn a_plan_with_large_numbers_takes_the_shortest_steps_in_which_it_fits() {
    for (text, step) in [
        ("1000 per 30 days", 1),
        ("4999 per 30 days", 100),
        ("150001 per day", 100),
        ("293 per 365 days", 100),
        ("100003 per week", 100),
        ("999999937 per minute", 100),
        ("999999937 per day", 1_000_000),
        // Each fits in microseconds, but not with ten times the capacity as debt.
        ("3473 per 30 days", 100),
        ("1 per day, capacity 100_000", 100),
        ("1 per day, capacity 100_000, max_reserved 0", 1),
        ("1 per day, capacity 1, max_reserved 1_000_000", 10),
        // Shards count in the same steps as all of them together.
        ("4999 per 30 days, shards 4", 100),
        ("20 per 30 days, shards 1024", 1),
        // Longer steps would not help, as none divides the period.
        ("2 per 300000000000007us", 1),
    ] {
        let quota: Quota = text.parse().unwrap();
        for bucket in [Bucket::new(&quota), Bucket::of_shard(&quota)] {
            assert_eq!(bucket.unwrap().step(), step, "`{text}`");
        }
    }
}

/// 3,473 per 30 days granted one of 50 reservations, and a penalty of 50 tokens owed two.
#[test]
fn a_plan_can_owe_what_it_promises() {
    let now = Timestamp::from_micros(1_700_000_123_456_789);
    for (text, owes) in [
        ("3473 per 30 days", 34_730),
        ("4999 per 30 days, capacity 7", 70),
        ("4999 per 30 days, max_reserved 1_000_000", 1_000_000),
        ("fixed window: 1 per day, capacity 800_000_000_000_000", 8_000_000_000_000_000),
    ] {
        let quota: Quota = text.parse().unwrap();
        let bucket = Bucket::new(&quota).unwrap();
        let token = i64::try_from(bucket.token()).unwrap();
        let empty = refund(&bucket, bucket.absent(now, now), -bucket.capacity(), now);
        let owed = refund(&bucket, empty, -owes * token, now);
        assert_eq!(owed.value, -owes * token, "`{text}`");
        let terms = Terms::reserving(bucket.floor());
        let last = charge(&bucket, State { value: owed.value + token, ..owed }, token, terms, now);
        assert_eq!(last.verdict(), Verdict::Reserved, "`{text}`");
    }
}

#[test]
fn an_error_about_large_numbers_says_what_would_fit() {
    for (text, says) in [
        (
            "999999937 per 300000000007us",
            "capacity of 999999937 (the rate, as none is set) does not fit in 2^53 units: at \
             999999937 per 300000000007 us a token counts as 300000000007, and ten times the \
             capacity may be owed (use a capacity of at most 2729, or set `max_reserved`)",
        ),
        // The whole limit cannot hold its capacity, and a shard cannot owe so much.
        (
            "640 per 14083276186489us, max_reserved 40293, shards 64",
            "capacity of 640 (the rate, as none is set) does not fit in 2^53 units: at 640 per \
             14083276186489 us a token counts as 14083276186489 (use a capacity of at most 639)",
        ),
        (
            "1 per day, max_reserved 200_000_000_000",
            "max_reserved of 200000000000 does not fit in 2^53 units: at 1 per day a token counts \
             as 86400, and the capacity counts too (use a max_reserved of at most 104249991373)",
        ),
    ] {
        let error = text.parse::<Quota>().unwrap_err().to_string();
        assert_eq!(error.split_once(": ").unwrap().1, says);
    }
}

proptest! {
    /// Not over round numbers: any rate up to 10^9, any period from a second to ten years.
    #[test]
    fn numbers_are_exact_in_the_shortest_steps_in_which_they_fit(
        quota in quotas(),
        now in instants(),
    ) {
        let fits = quota.validated();
        match (&fits, expected(&quota)) {
            (Ok(_), Some(step)) => {
                let bucket = Bucket::new(&quota).unwrap();
                prop_assert_eq!(bucket.step(), step);
                is_exact(&quota, &bucket, now)?;
                is_exact_for_shards(&quota, &bucket)?;
            }
            (Err(error), None) => what_the_error_names_fits(&quota, &error.to_string())?,
            (_, expected) => prop_assert!(false, "`{}`: {:?}, {:?}", quota, fits, expected),
        }
    }

    /// A bucket that was forgotten while it was full decides as if it had been kept, the bound holds,
    /// and a refusal tells the very microsecond at which the request is admitted.
    #[test]
    fn decisions_are_tight_and_bounded_and_forgetting_is_free(
        quota in quotas(),
        start in instants(),
        calls in prop::collection::vec((0.0..2.0, 0.0..1.0), 1..40),
    ) {
        let Ok(quota) = quota.shards(1).validated() else { return Ok(()) };
        let bucket = Bucket::new(&quota).unwrap();
        let fill = quota.period().as_micros() * u128::from(quota.get_capacity()) / u128::from(quota.rate());
        if fill > MOST / 100 {
            return Ok(());
        }
        let (mut now, mut runs) = (start, Vec::new());
        let (mut kept, mut forgotten) = (bucket.absent(now, now), None::<State>);
        for (pause, share) in calls {
            // At times longer than the bucket takes to fill.
            now = now + micros((fill as f64 * pause * pause * pause / 2.0) as u64);
            let cost = 1 + (quota.get_capacity() as f64 * share * share) as u64;
            let Some(units) = bucket.units(cost.min(quota.get_capacity())) else { return Ok(()) };
            let take = |state| charge(&bucket, state, units, Terms::AT_ONCE, now);
            let (one, other) = (take(kept), take(forgotten.unwrap_or(bucket.absent(now, start))));
            prop_assert_eq!(one, other);
            prop_assert!(one.before().ts <= now);
            prop_assert!(now.since(one.before().ts) < micros(bucket.step()));
            kept = one.state();
            forgotten = (kept.value < bucket.capacity()).then_some(kept);
            if one.verdict() == Verdict::Admitted {
                runs.push((now, cost.min(quota.get_capacity())));
            } else {
                let at = now + one.wait();
                let verdict = |at| charge(&bucket, kept, units, Terms::AT_ONCE, at).verdict();
                prop_assert_eq!(verdict(at), Verdict::Admitted);
                let before = Timestamp::from_micros(at.as_micros() - 1);
                prop_assert_eq!(verdict(before), Verdict::Refused);
            }
        }
        prop_assert_eq!(check_history(&quota, &runs).unwrap(), None);
    }
}

/// The properties above are worth only as much as the quotas that are drawn.
#[test]
fn the_quotas_that_are_drawn_take_steps_of_all_lengths() {
    let drawn = draw(&quotas(), 4_000);
    let steps: Vec<_> = drawn.iter().map(|quota| expected(quota).unwrap_or(0)).collect();
    let counts = [0, 1, 10, 100, 1_000, 10_000, 100_000, 1_000_000]
        .map(|step| steps.iter().filter(|found| **found == step).count());
    println!("refused, and accepted in steps of 1, 10, .. 1,000,000 us: {counts:?}");
    assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
}

// Helpers.

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// Numbers up to this one, small ones as often as large ones.
fn up_to(most: u64) -> impl Strategy<Value = u64> {
    (0..=most.ilog2(), any::<u64>())
        .prop_map(move |(bits, drawn)| (drawn >> (63 - bits)).clamp(1, most))
}

fn quotas() -> impl Strategy<Value = Quota> {
    const TEN_YEARS: u64 = 10 * 365 * 86_400;
    let period = prop_oneof![
        up_to(TEN_YEARS).prop_map(seconds),
        up_to(TEN_YEARS * 1_000).prop_map(|millis| Duration::from_millis(millis.max(1_000))),
        up_to(TEN_YEARS * 1_000_000).prop_map(|ticks| micros(ticks.max(1_000_000))),
    ];
    let tokens = || proptest::option::weighted(0.3, up_to(1_000_000_000));
    let shards = select(vec![1, 1, 1, 2, 7, 64]);
    (up_to(1_000_000_000), period, tokens(), tokens(), shards).prop_map(
        |(rate, period, capacity, owed, shards)| {
            let quota = Quota::token_bucket(rate, period).shards(shards);
            let quota = capacity.map_or(quota, |tokens| quota.capacity(tokens));
            owed.map_or(quota, |tokens| quota.max_reserved(tokens))
        },
    )
}

fn instants() -> impl Strategy<Value = Timestamp> {
    (0..4_000_000_000_000_000_i64).prop_map(Timestamp::from_micros)
}

/// The gain and the token of one of so many shards, in steps of this length.
fn gain_and_token(quota: &Quota, shards: u128, step: u128) -> (u128, u128) {
    let (gain, token) = (u128::from(quota.rate()) * step, quota.period().as_micros() * shards);
    let common = gcd(gain, token);
    (gain / common, token / common)
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The shortest step in which all numbers fit, by the definition.
fn expected(quota: &Quota) -> Option<u64> {
    let fits = |step: u128, shards: u128| {
        let (gain, token) = gain_and_token(quota, shards, step);
        let units = |tokens: u64| u128::from(tokens) * token / shards;
        let capacity = quota.get_capacity();
        let all = match quota.get_max_reserved() {
            Some(owed) => units(capacity) + units(owed),
            None => units(capacity * 11),
        };
        gain <= MOST && token <= MOST && all <= MOST
    };
    let steps = (0..=6).map(|zeros| 10_u64.pow(zeros));
    let shards = u128::from(quota.get_shards());
    steps.into_iter().find(|step| fits((*step).into(), 1) && fits((*step).into(), shards))
}

fn is_exact(quota: &Quota, bucket: &Bucket, now: Timestamp) -> Result<(), TestCaseError> {
    let (rate, period) = (u128::from(quota.rate()), quota.period().as_micros());
    let [step, gain, token] = [bucket.step(), bucket.gain(), bucket.token()].map(u128::from);
    // The rate is not rounded.
    prop_assert_eq!(gain * period, rate * step * token);
    let owed = quota.get_max_reserved().unwrap_or(quota.get_capacity() * 10);
    prop_assert!(i128::from(bucket.floor()) <= -i128::try_from(u128::from(owed) * token).unwrap());
    // The first token of an empty bucket comes less than a step from when the rate says.
    let empty = State { value: 0, ts: bucket.absent(now, now).ts };
    let one = bucket.units(1).unwrap();
    let wait = charge(bucket, empty, one, Terms::AT_ONCE, now).wait().as_micros();
    prop_assert!((wait + step) * rate > period && wait * rate < period + step * rate);
    // The wait for many: none is lost on the way.
    let tokens = u128::from(quota.get_capacity()) * period;
    if tokens / rate < MOST {
        let all = bucket.capacity();
        let wait = charge(bucket, empty, all, Terms::AT_ONCE, empty.ts).wait().as_micros();
        prop_assert!(wait * rate >= tokens && wait * rate < tokens + step * rate);
    }
    Ok(())
}

/// All shards together gain what the limit gains, and a token is worth the same parts of it.
fn is_exact_for_shards(quota: &Quota, whole: &Bucket) -> Result<(), TestCaseError> {
    let (shard, shards) = (Bucket::of_shard(quota).unwrap(), u128::from(quota.get_shards()));
    prop_assert_eq!(shard.step(), whole.step());
    prop_assert_eq!(shard.token() % whole.token(), 0);
    let [one, all] = [(&shard, whole), (whole, &shard)]
        .map(|(bucket, other)| u128::from(bucket.gain()) * u128::from(other.token()));
    prop_assert_eq!(one * shards, all);
    Ok(())
}

fn what_the_error_names_fits(quota: &Quota, error: &str) -> Result<(), TestCaseError> {
    let number = |what: &str| {
        let (_, rest) = error.split_once(what)?;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
    };
    if let Some(fits) = number("use a capacity of at most ") {
        // A debt that is set has to fit as well, and has an error of its own.
        let with = |tokens| match quota.get_max_reserved() {
            Some(_) => quota.capacity(tokens).max_reserved(0).validated(),
            None => quota.capacity(tokens).validated(),
        };
        prop_assert!(with(fits).is_ok() && with(fits + 1).is_err(), "`{}`: {}", quota, error);
    } else if let Some(fits) = number("use a max_reserved of at most ") {
        let with = |tokens| quota.max_reserved(tokens).validated();
        prop_assert!(with(fits).is_ok() && with(fits + 1).is_err(), "`{}`: {}", quota, error);
    } else {
        prop_assert!(error.contains("shards of"), "`{}`: {}", quota, error);
    }
    Ok(())
}
