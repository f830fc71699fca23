//! Two-choices charges, as the algebra decides them, against a model that counts tick by tick.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::algebra::{Bucket, Charged, State, Terms, Verdict, charge, charge_pair};
use tollgate::{HOUR, Quota, SECOND, Timestamp};

const NOW: Timestamp = Timestamp::from_micros(1_700_000_123_456_789);

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(NOW.as_micros() + micros)
}

/// What a shard holds `micros` from now, gained tick by tick.
fn held(bucket: &Bucket, state: State, micros: i64) -> i64 {
    let State { mut value, mut ts } = state;
    let step = i64::try_from(bucket.step()).unwrap();
    while ts.as_micros() + step <= at(micros).as_micros() {
        ts = Timestamp::from_micros(ts.as_micros() + step);
        value = (value + i64::try_from(bucket.gain()).unwrap()).min(bucket.capacity());
    }
    value
}

/// The time of the last step at which a shard gained.
fn gained_last(bucket: &Bucket, state: State) -> Timestamp {
    let (step, mut ts) = (i64::try_from(bucket.step()).unwrap(), state.ts);
    while ts.as_micros() + step <= NOW.as_micros() {
        ts = Timestamp::from_micros(ts.as_micros() + step);
    }
    ts
}

/// The outcome by the rules, found by trying every split and every tick.
#[derive(Debug, PartialEq)]
struct Model {
    verdict: Verdict,
    paid: [i64; 2],
    wait: i64,
}

/// The longest wait that small numbers can need.
const LONGEST: i64 = 2_000;

fn model(bucket: &Bucket, shards: [State; 2], units: i64, terms: Terms) -> Model {
    let [first, second] = shards.map(|state| held(bucket, state, 0));
    let fuller = usize::from(second > first);
    let poorer = 1 - fuller;
    let values = [first, second];
    let paid_by = |shard: usize, units: i64| if shard == 0 { [units, 0] } else { [0, units] };
    let alone = paid_by(fuller, units);
    // Even, or a unit more in the fuller one.
    let split = (0..=units)
        .map(|less| {
            let [a, b] = [paid_by(fuller, units - less), paid_by(poorer, less)];
            [a[0] + b[0], a[1] + b[1]]
        })
        .find(|paid| {
            let left = |shard: usize| values[shard] - paid[shard];
            (0..=1).contains(&(left(fuller) - left(poorer)))
        });
    let left = |paid: [i64; 2]| [values[0] - paid[0], values[1] - paid[1]];
    let out_of_debt = |paid, shard: usize| {
        let state = State { value: left(paid)[shard], ts: gained_last(bucket, shards[shard]) };
        (0..LONGEST).find(|&micros| state.value >= 0 || held(bucket, state, micros) >= 0).unwrap()
    };
    let in_time = |wait: i64| u64::try_from(wait).unwrap() <= terms.max_wait();
    if left(alone)[fuller] >= 0 {
        return Model { verdict: Verdict::Admitted, paid: alone, wait: 0 };
    }
    if let Some(paid) = split.filter(|&paid| left(paid).iter().all(|&left| left >= 0)) {
        return Model { verdict: Verdict::Admitted, paid, wait: 0 };
    }
    let wait = out_of_debt(alone, fuller);
    if left(alone)[fuller] >= terms.floor() && in_time(wait) {
        return Model { verdict: Verdict::Reserved, paid: alone, wait };
    }
    if let Some(paid) = split.filter(|&paid| left(paid).iter().all(|&left| left >= terms.floor())) {
        let wait = out_of_debt(paid, 0).max(out_of_debt(paid, 1));
        if in_time(wait) {
            return Model { verdict: Verdict::Reserved, paid, wait };
        }
    }
    let admits = |micros| {
        let [a, b] = shards.map(|state| held(bucket, state, micros));
        a >= units || b >= units || a + b >= units
    };
    // A request for more than two full shards hold together does not wait.
    let last = if units <= 2 * bucket.capacity() { LONGEST } else { 0 };
    let wait = (0..last).find(|&micros| admits(micros)).unwrap_or(LONGEST);
    Model { verdict: Verdict::Refused, paid: [0, 0], wait }
}

/// Shards of a few units that gain a few at a time.
fn buckets() -> impl Strategy<Value = Bucket> {
    let numbers = (any::<bool>(), 1_u64..=4, 1_u64..=5, 0_u64..=8, 0_u64..=8, 1_u32..=3);
    numbers.prop_map(|(windows, rate, period, capacity, reserved, shards)| {
        let period = Duration::from_micros(period);
        let quota = if windows {
            Quota::fixed_window(rate, period)
        } else {
            Quota::token_bucket(rate, period)
        };
        Bucket::of_shard(&quota.capacity(capacity).max_reserved(reserved).shards(shards)).unwrap()
    })
}

/// What a shard may hold, in thousandths of what fits into it, and when it did.
fn shards(bucket: &Bucket) -> impl Strategy<Value = State> + use<> {
    let values = bucket.floor() - 3..=bucket.capacity();
    (values, -15_i64..=8).prop_map(|(value, ts)| State { value, ts: at(ts) })
}

fn terms(bucket: &Bucket) -> impl Strategy<Value = Terms> + use<> {
    let reserving = Terms::reserving(bucket.floor());
    prop_oneof![
        Just(Terms::AT_ONCE),
        Just(reserving),
        (-4_i64..=1).prop_map(Terms::reserving),
        (0_u64..20).prop_map(move |micros| reserving.within(Duration::from_micros(micros))),
    ]
}

/// A bucket, two of its shards, what is asked of them, and on which terms.
fn asked() -> impl Strategy<Value = (Bucket, [State; 2], i64, Terms)> {
    buckets().prop_flat_map(|bucket| {
        let most = 2 * (bucket.capacity() - bucket.floor()) + 2;
        let pair = [shards(&bucket), shards(&bucket)];
        (Just(bucket), pair, 0..=most, terms(&bucket))
    })
}

fn ask(
    bucket: &Bucket,
    pair: [State; 2],
    units: i64,
    terms: Terms,
    now: i64,
) -> Charged<[State; 2]> {
    charge_pair(bucket, pair, units, terms, at(now))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_048))]

    /// The rules, in their order.
    #[test]
    fn the_model_says_the_same((bucket, pair, units, terms) in asked()) {
        let charged = ask(&bucket, pair, units, terms, 0);
        let expected = model(&bucket, pair, units, terms);
        prop_assert_eq!(charged.verdict(), expected.verdict);
        prop_assert_eq!(charged.paid(), expected.paid);
        // A request that no wait helps is promised none.
        if charged.verdict() != Verdict::Refused || units <= 2 * bucket.capacity() {
            prop_assert!(expected.wait < LONGEST);
            let wait = Duration::from_micros(expected.wait.unsigned_abs());
            prop_assert_eq!(charged.wait(), wait);
        }
    }

    /// P3: the pair refuses one tick before the time it named, and admits at it.
    #[test]
    fn the_wait_is_the_smallest_that_works((bucket, pair, part, _) in asked()) {
        let units = part % (2 * bucket.capacity() + 1);
        let charged = ask(&bucket, pair, units, Terms::AT_ONCE, 0);
        if charged.verdict() != Verdict::Refused {
            return Ok(());
        }
        let wait = i64::try_from(charged.wait().as_micros()).unwrap();
        prop_assert!(wait > 0);
        let verdict = |now| ask(&bucket, pair, units, Terms::AT_ONCE, now).verdict();
        prop_assert_eq!(verdict(wait - 1), Verdict::Refused);
        prop_assert_eq!(verdict(wait), Verdict::Admitted);
    }

    /// An admission takes exactly the cost, each shard keeps its time, and a refusal takes nothing.
    #[test]
    fn the_payments_add_up((bucket, pair, units, terms) in asked()) {
        let charged = ask(&bucket, pair, units, terms, 0);
        let [first, second] = charged.paid();
        prop_assert!(first >= 0 && second >= 0);
        let refused = charged.verdict() == Verdict::Refused;
        prop_assert_eq!(first + second, if refused { 0 } else { units });
        for (nth, state) in pair.into_iter().enumerate() {
            let stands = bucket.refresh(state, NOW);
            prop_assert_eq!(charged.before()[nth], stands);
            let value = stands.value - charged.paid()[nth];
            prop_assert_eq!(charged.state()[nth], State { value, ..stands });
        }
        // As if the shards had been charged one by one.
        if charged.verdict() == Verdict::Admitted {
            for (nth, state) in pair.into_iter().enumerate().filter(|&(nth, _)| charged.paid()[nth] > 0) {
                let one = charge(&bucket, state, charged.paid()[nth], Terms::AT_ONCE, NOW);
                prop_assert_eq!((one.verdict(), one.after()), (Verdict::Admitted, charged.after()[nth]));
            }
        }
    }

    /// The order of the two shards does not change the answer, unless both hold the same.
    #[test]
    fn the_order_of_shards_matters_only_between_equals((bucket, [a, b], units, terms) in asked()) {
        let (there, back) = (ask(&bucket, [a, b], units, terms, 0), ask(&bucket, [b, a], units, terms, 0));
        let [first, second] = there.before();
        if first.value != second.value {
            let [x, y] = back.after();
            prop_assert_eq!((there.verdict(), there.wait()), (back.verdict(), back.wait()));
            prop_assert_eq!(there.after(), [y, x]);
        } else if there.verdict() != Verdict::Refused {
            prop_assert!(there.paid()[0] <= units && there.paid()[0] >= 0);
        }
    }

    /// A cost is too large if two full shards refuse it, even if the next gain is a tick away.
    #[test]
    fn a_cost_is_too_large_if_two_full_shards_cannot_grant_it(
        bucket in buckets(),
        tokens in 0_u64..60,
        floor in -10_i64..=1,
        within in prop::option::of(0_u64..20),
    ) {
        let mut terms = Terms::reserving(floor);
        if let Some(micros) = within {
            terms = terms.within(Duration::from_micros(micros));
        }
        let last_gained = at(1 - i64::try_from(bucket.step()).unwrap());
        let full = State { value: bucket.capacity(), ts: last_gained };
        let charged = ask(&bucket, [full; 2], bucket.units(tokens).unwrap(), terms, 0);
        let too_large = bucket.too_large_for_pair(tokens, terms);
        prop_assert_eq!(too_large, charged.verdict() == Verdict::Refused);
        prop_assert!(bucket.too_large(tokens, terms) || !too_large);
    }

    /// Values, costs and times as large as they come: nothing overflows, and what is paid adds up.
    #[test]
    fn nothing_overflows(
        values in prop::array::uniform2(prop_oneof![
            Just(i64::MIN), Just(-(1 << 53)), Just(0), Just(1 << 53), Just(i64::MAX),
            -(1_i64 << 53)..=1 << 53, any::<i64>(),
        ]),
        times in prop::array::uniform3(prop_oneof![Just(i64::MIN), Just(0), Just(i64::MAX), any::<i64>()]),
        units in prop_oneof![Just(i64::MIN), Just(0), Just(i64::MAX), any::<i64>(), 0..=1_i64 << 54],
        floor in prop_oneof![Just(i64::MIN), Just(0), -(1_i64 << 53)..=0],
        window in any::<bool>(),
    ) {
        let quota = if window {
            Quota::fixed_window(1 << 52, HOUR).max_reserved(0)
        } else {
            Quota::token_bucket(2_000_000_000, HOUR)
        };
        let bucket = Bucket::of_shard(&quota.shards(2)).unwrap();
        let [now, first, second] = times.map(Timestamp::from_micros);
        let pair = [State { value: values[0], ts: first }, State { value: values[1], ts: second }];
        let charged = charge_pair(&bucket, pair, units, Terms::reserving(floor), now);
        let paid: i128 = charged.paid().into_iter().map(i128::from).sum();
        let refused = charged.verdict() == Verdict::Refused;
        // No bucket gets into the deepest debt that the numbers allow.
        if values.iter().all(|&value| value >= -(1 << 53)) && floor >= -(1 << 53) {
            prop_assert_eq!(paid, if refused { 0 } else { i128::from(units.max(0)) });
        }
        prop_assert!(charged.paid().iter().all(|&paid| paid >= 0));
    }

    /// The shards of a limit gain together what the whole gains, to the unit, and hold no more.
    #[test]
    fn shards_come_to_the_whole(
        windows in any::<bool>(),
        rate in 1_u64..=1_000,
        period in 1_u64..=100_000_000,
        shards in 1_u32..=100,
        capacity in 0_u64..=1_000,
        reserved in prop::option::of(0_u64..=1_000),
        elapsed in 0_u32..=1_000_000_000,
    ) {
        let period = Duration::from_micros(period);
        let quota = if windows { Quota::fixed_window(rate, period) } else { Quota::token_bucket(rate, period) };
        let mut quota = quota.capacity(capacity).shards(shards);
        if let Some(tokens) = reserved {
            quota = quota.max_reserved(tokens);
        }
        let (whole, shard) = (Bucket::new(&quota).unwrap(), Bucket::of_shard(&quota).unwrap());
        let n = i128::from(shards);
        // In tokens, as fractions: units over the token.
        let whole_token = i128::from(whole.token());
        let shard_token = i128::from(shard.token());
        let elapsed = u64::from(elapsed);
        let gained = |bucket: &Bucket| i128::from(elapsed / bucket.step() * bucket.gain());
        prop_assert_eq!(n * gained(&shard) * whole_token, gained(&whole) * shard_token);

        let within_a_unit = |units: i64, tokens: u64| {
            let exact = i128::from(tokens) * shard_token;
            (0..n).contains(&(exact - n * i128::from(units)))
        };
        prop_assert!(within_a_unit(shard.capacity(), capacity));
        match reserved {
            Some(tokens) => prop_assert!(within_a_unit(-shard.floor(), tokens)),
            None => prop_assert_eq!(shard.capacity() - shard.floor(), 1 << 53),
        }
    }
}

/// Ten tokens of a million units, one of which is gained each second.
fn shard() -> Bucket {
    Bucket::of_shard(&Quota::token_bucket(4, SECOND).capacity(40).max_reserved(8).shards(4))
        .unwrap()
}

#[track_caller]
fn tokens(held: [i64; 2], asked: i64, terms: Terms) -> (Verdict, [i64; 2], f64) {
    let pair = held.map(|tokens| State { value: tokens * 1_000_000, ts: NOW });
    let charged = ask(&shard(), pair, asked * 1_000_000, terms, 0);
    (charged.verdict(), charged.paid().map(|paid| paid / 1_000_000), charged.wait().as_secs_f64())
}

#[test]
fn the_rules_hold_in_their_order() {
    use Verdict::{Admitted, Refused, Reserved};
    let at_once = Terms::AT_ONCE;
    let patient = Terms::reserving(shard().floor());
    assert_eq!(tokens([3, 7], 7, at_once), (Admitted, [0, 7], 0.0), "the fuller one alone");
    assert_eq!(tokens([7, 7], 7, at_once), (Admitted, [7, 0], 0.0), "the first of two equal ones");
    assert_eq!(
        tokens([3, 7], 8, at_once),
        (Admitted, [2, 6], 0.0),
        "both, and one is left in each"
    );
    assert_eq!(tokens([3, 7], 10, at_once), (Admitted, [3, 7], 0.0), "all that there is");
    assert_eq!(tokens([3, 7], 11, at_once), (Refused, [0, 0], 0.5), "both gain what is missing");
    assert_eq!(tokens([3, 7], 20, at_once), (Refused, [0, 0], 7.0), "the poorer one fills up last");
    assert_eq!(
        tokens([-9, 7], 10, at_once),
        (Refused, [0, 0], 3.0),
        "the fuller one needs no other"
    );

    assert_eq!(tokens([3, 7], 8, patient), (Admitted, [2, 6], 0.0), "now, before later");
    assert_eq!(tokens([0, 1], 3, patient), (Reserved, [0, 3], 2.0), "the fuller one alone");
    assert_eq!(tokens([0, 1], 5, patient), (Reserved, [2, 3], 2.0), "both");
    assert_eq!(tokens([0, 0], 4, patient), (Reserved, [2, 2], 2.0), "as deep as they may");
    assert_eq!(tokens([0, 0], 5, patient), (Refused, [0, 0], 2.5), "and no deeper");
    let soon = patient.within(SECOND);
    assert_eq!(tokens([0, 0], 2, soon), (Reserved, [1, 1], 1.0), "one alone would take too long");

    assert_eq!(tokens([-1, 0], 0, at_once), (Admitted, [0, 0], 0.0), "a cost of 0 takes nothing");
    assert_eq!(
        tokens([-3, -1], 0, at_once),
        (Refused, [0, 0], 1.0),
        "a cost of 0 is refused if both are in debt"
    );
}

#[test]
fn a_full_shard_gains_nothing_more() {
    // One is full, so the other has to gain all that is missing: twice as long as both would need.
    assert_eq!(tokens([10, 6], 18, Terms::AT_ONCE).2, 2.0);
    assert_eq!(tokens([9, 6], 18, Terms::AT_ONCE).2, 2.0);
    assert_eq!(tokens([8, 6], 18, Terms::AT_ONCE).2, 2.0);
    assert_eq!(tokens([7, 7], 18, Terms::AT_ONCE).2, 2.0);
}
