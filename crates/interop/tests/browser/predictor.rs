//! The predictor of `js/tollgate.js` against the formula and against limiters.

use std::process::Command;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, StatusCode};
use serde_json::{Value, json};
use tollgate::algebra::{
    Bucket, Charged, State, Terms, Verdict, calculate, charge, charge_slower, rescale,
};
use tollgate::clock::ManualClock;
use tollgate::key::header;
use tollgate::quota::{Calendar, Kind};
use tollgate::routes::remaining;
use tollgate::{Limit, MINUTE, Quota, RateLimitLayer, RateLimiter, Rule, SECOND, Timestamp};
use tollgate_testing::cases::seeds;
use tollgate_testing::dice::Dice;
use tollgate_testing::vectors::{millis, quota, state};
use tollgate_testing::web::{self, Reply};
use tollgate_testing::{at_once, limiter};
use tower::ServiceExt;

use crate::node;

/// A whole millisecond, in which JavaScript counts.
const START: Timestamp = Timestamp::from_micros(1_700_000_123_456_000);

/// A call of `charge` and what the formula answers to it.
struct Case {
    call: Value,
    charged: Charged,
    now: Timestamp,
}

impl Case {
    fn new(
        bucket: &Bucket,
        state: State,
        now: Timestamp,
        cost: u64,
        max_wait: Option<u64>,
    ) -> Self {
        let mut numbers = json!({
            "step": bucket.step(), "gain": bucket.gain(), "token": bucket.token(),
            "capacity": bucket.capacity(), "floor": bucket.floor(),
        });
        if let Some(windows) = windows(bucket, now) {
            numbers["windows"] = windows;
        }
        if bucket.is_from_first_use() {
            numbers["from_first_use"] = json!(true);
        }
        // Texts, since some recorded times are beyond what a double holds.
        let ts = state.ts.as_micros().to_string();
        let given = json!({ "value": state.value, "ts": ts });
        let call = json!(["charge", numbers, given, now.as_micros().to_string(), cost, max_wait]);
        let terms = match max_wait {
            None => Terms::reserving(bucket.floor()),
            Some(0) => Terms::AT_ONCE,
            Some(micros) => Terms::reserving(bucket.floor()).within(Duration::from_micros(micros)),
        };
        let charged = charge(bucket, state, bucket.units(cost).unwrap(), terms, now);
        Self { call, charged, now }
    }

    /// A charge by numbers that are slower than the `own` ones of the bucket, `later` than the
    /// client has looked.
    fn slower(
        [own, bucket]: [&Bucket; 2],
        state: State,
        [looked, now]: [Timestamp; 2],
        cost: u64,
        max_wait: Option<u64>,
    ) -> Self {
        let seen = rescale(own, bucket, state, looked, START);
        let mut case = Self::new(bucket, seen, now, cost, max_wait);
        let micros = |time: Timestamp| time.as_micros().to_string();
        case.call[2]["kept"] = json!({
            "value": state.value, "ts": micros(state.ts), "step": own.step(), "gain": own.gain(),
            "token": own.token(), "capacity": own.capacity(),
        });
        let terms = match max_wait {
            None => Terms::reserving(bucket.floor()),
            Some(0) => Terms::AT_ONCE,
            Some(micros) => Terms::reserving(bucket.floor()).within(Duration::from_micros(micros)),
        };
        let units = bucket.units(cost).unwrap();
        case.charged = charge_slower(own, state, bucket, units, terms, now, START);
        case
    }

    #[track_caller]
    fn agrees(&self, told: &Value) {
        let verdict = match self.charged.verdict() {
            Verdict::Admitted => "admitted",
            Verdict::Reserved => "reserved",
            _ => "refused",
        };
        let number = |name: &str| told[name].as_str().unwrap().parse::<i128>().unwrap();
        let after = self.charged.after();
        // A time beyond the last that a `Timestamp` can show is cut to that in Rust.
        let last = i128::from(i64::MAX) - i128::from(self.now.as_micros());
        let wait = i128::try_from(self.charged.wait().as_micros()).unwrap();
        assert_eq!(told["verdict"], verdict, "{}", self.call);
        assert_eq!(number("value"), i128::from(after.value), "{}", self.call);
        assert_eq!(number("ts"), i128::from(after.ts.as_micros()), "{}", self.call);
        assert_eq!(number("wait").min(last), wait, "{}", self.call);
    }
}

/// The windows of a calendar as the server tells them, if the bucket has such.
fn windows(bucket: &Bucket, now: Timestamp) -> Option<Value> {
    let after = |start| bucket.full_at(State { value: bucket.capacity() - 1, ts: start });
    let mut start = bucket.absent(now, now).ts;
    // All windows of a calendar are shorter than its step.
    if bucket.capacity() == 0 || after(start).since(start).as_micros() >= u128::from(bucket.step())
    {
        return None;
    }
    let day = 86_400_000_000_i64;
    let mean = if bucket.step() < 31 * day.unsigned_abs() { day } else { 2_629_746_000_000 };
    let mut starts = Vec::new();
    for _ in 0..WINDOWS_TOLD {
        starts.push(start.as_micros());
        start = after(start);
    }
    Some(json!({ "mean": mean, "starts": starts }))
}

/// Beyond these, a client counts in windows of the mean length.
const WINDOWS_TOLD: usize = 40;

#[test]
fn random_charges_on_calendars_are_the_same_in_javascript() {
    let calendars = [
        Calendar::monthly().zone("Europe/Berlin"),
        Calendar::daily().zone("America/New_York"),
        Calendar::monthly(),
    ];
    let mut cases = Vec::new();
    for seed in seeds(5_000) {
        let mut dice = Dice(seed);
        let rate = 1 + dice.below(5);
        let quota = Quota::calendar(rate, calendars[dice.nth(&calendars)]);
        let quota = quota.capacity(rate * (1 + dice.below(4))).max_reserved(dice.below(20));
        let bucket = Bucket::new(&quota).unwrap();
        let now = Timestamp::from_micros(signed(1_500_000_000_000_000 + dice.below(1 << 49)));
        // From a block of some days to a bucket that was used months ago.
        let ago = signed(dice.below(1 << 43)) - if dice.below(8) == 0 { 1 << 43 } else { 0 };
        let used = bucket.absent(Timestamp::from_micros(now.as_micros() - ago), now);
        let held = signed(dice.below(bucket.capacity().unsigned_abs() + 1));
        let value = held - signed(dice.below(12));
        let state = bucket.refresh(State { value, ts: used.ts }, used.ts);
        let max_wait = [None, Some(0), Some(dice.below(1 << 43))][dice.nth(&[0; 3])];
        let case = Case::new(&bucket, state, now, dice.below(8), max_wait);
        let last = case.call[1]["windows"]["starts"][WINDOWS_TOLD - 1].as_i64().unwrap();
        if (now + case.charged.wait()).as_micros() <= last {
            cases.push(case);
        }
    }
    let all = usize::try_from(seeds(5_000).end).unwrap();
    assert!(cases.len() > all * 4 / 5, "{} of {all}", cases.len());
    play(&cases);
}

#[track_caller]
fn play(cases: &[Case]) {
    let calls: Vec<_> = cases.iter().map(|case| case.call.clone()).collect();
    for (case, told) in cases.iter().zip(node::run("predictor.mjs", &calls)) {
        case.agrees(&told);
    }
}

#[test]
fn every_recorded_calculation_is_the_same_in_javascript() {
    let mut cases = Vec::new();
    for line in include_str!("../../../../tests/data/calculate.jsonl").lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let (quota, _) = quota(&line);
        let bucket = Bucket::new(&quota).unwrap();
        let (now, cost) = (millis(&line["now"]), line["count"].as_u64().unwrap());
        let stored = state(&bucket, &line["existing"]);
        let held = stored.unwrap_or_else(|| bucket.absent(now, Timestamp::UNIX_EPOCH));
        let predicted = calculate(&quota, stored, now, cost).unwrap();
        if bucket.units(cost).is_none() {
            assert!(predicted.too_large());
            continue;
        }
        let case = Case::new(&bucket, held, now, cost, Some(0));
        let charged = &case.charged;
        assert_eq!((charged.verdict(), charged.wait()), (predicted.verdict(), predicted.wait()));
        assert_eq!(charged.after(), predicted.state());
        cases.extend([case, Case::new(&bucket, held, now, cost, None)]);
    }
    assert!(cases.len() > 2_600, "{}", cases.len());
    play(&cases);
}

/// A quota of odd numbers that fits.
fn random_quota(dice: &mut Dice) -> Quota {
    loop {
        let periods =
            [1, 997, 1_000_000, 60_000_000, 86_400_000_000, 1 + dice.below(2_592_000_000_000)];
        let period = Duration::from_micros(periods[dice.nth(&periods)]);
        let rate = 1 + [dice.below(10), dice.below(1_000), dice.below(1 << 40)][dice.nth(&[0; 3])];
        let mut quota = match dice.below(2) {
            0 => Quota::token_bucket(rate, period),
            _ => Quota::fixed_window(rate, period),
        };
        if quota.kind() == Kind::FixedWindow && dice.below(3) == 0 {
            quota = quota.from_first_use();
        }
        if dice.below(2) == 0 {
            quota = quota.capacity([dice.below(30), dice.below(1 << 45)][dice.nth(&[0; 2])]);
        }
        if dice.below(2) == 0 {
            quota = quota.max_reserved([dice.below(30), dice.below(1 << 45)][dice.nth(&[0; 2])]);
        }
        if let Ok(quota) = quota.validated() {
            return quota;
        }
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap()
}

/// Up to `most`, and often near its ends.
fn up_to(dice: &mut Dice, most: u64) -> u64 {
    match dice.below(4) {
        0 => dice.below(most.min(3) + 1),
        1 => most - dice.below(most.min(3) + 1),
        _ => dice.below(most + 1),
    }
}

#[test]
fn tens_of_thousands_of_random_charges_are_the_same_in_javascript() {
    let mut cases = Vec::new();
    for seed in seeds(50_000) {
        let mut dice = Dice(seed);
        let bucket = Bucket::new(&random_quota(&mut dice)).unwrap();
        let deepest = (1 << 53) - bucket.capacity().unsigned_abs();
        let debt = match dice.below(3) {
            0 => 0,
            1 => up_to(&mut dice, bucket.floor().unsigned_abs()),
            _ => up_to(&mut dice, deepest),
        };
        let held = up_to(&mut dice, bucket.capacity().unsigned_abs());
        let value = if debt == 0 { signed(held) } else { -signed(debt) };
        // From a time in the future, as of a blocked bucket, to centuries ago.
        let ago =
            [dice.below(1 << 20), dice.below(1 << 40), dice.below(1 << 52)][dice.nth(&[0; 3])];
        let ago = if dice.below(8) == 0 { -signed(ago.min(1 << 40)) } else { signed(ago) };
        let now = Timestamp::from_micros(signed(1_500_000_000_000_000 + dice.below(1 << 50)));
        let state = State { value, ts: Timestamp::from_micros(now.as_micros() - ago) };
        let most = (1 << 53) / bucket.token();
        let cost = [dice.below(30).min(most), up_to(&mut dice, most)][dice.nth(&[0; 2])];
        let max_wait = [None, Some(0), Some(dice.below(1 << 40))][dice.nth(&[0; 3])];
        cases.push(Case::new(&bucket, state, now, cost, max_wait));
    }
    let count = |verdict| cases.iter().filter(|case| case.charged.verdict() == verdict).count();
    for verdict in [Verdict::Admitted, Verdict::Reserved, Verdict::Refused] {
        assert!(
            count(verdict) > cases.len() / 20,
            "{verdict:?}: {} of {}",
            count(verdict),
            cases.len()
        );
    }
    play(&cases);
}

#[test]
fn random_charges_by_slower_numbers_are_the_same_in_javascript() {
    let (mut cases, mut admitted) = (Vec::new(), 0);
    for seed in seeds(50_000) {
        let mut dice = Dice(seed);
        let [own, bucket] = [0, 1].map(|_| Bucket::new(&random_quota(&mut dice)).unwrap());
        if own.yields_to(&bucket) {
            continue;
        }
        let used = up_to(&mut dice, own.capacity().unsigned_abs().saturating_mul(2).min(1 << 52));
        let value = own.capacity() - signed(used);
        let looked = Timestamp::from_micros(signed(1_500_000_000_000_000 + dice.below(1 << 50)));
        let ago = signed(dice.below(1 << 30)) - if dice.below(8) == 0 { 1 << 30 } else { 0 };
        let state = State { value, ts: Timestamp::from_micros(looked.as_micros() - ago) };
        let full = own.full_at(state).as_micros() - looked.as_micros();
        let later = up_to(&mut dice, full.max(0).unsigned_abs().min(1 << 50)).saturating_sub(1);
        let now = looked + Duration::from_micros(later);
        let most = (1 << 53) / bucket.token();
        let cost = dice.below(30).min(most).min(bucket.capacity().unsigned_abs() / bucket.token());
        let max_wait = [None, Some(0), Some(dice.below(1 << 40))][dice.nth(&[0; 3])];
        let case = Case::slower([&own, &bucket], state, [looked, now], cost, max_wait);
        admitted += usize::from(case.charged.verdict() == Verdict::Admitted);
        cases.push(case);
    }
    let others = cases.len() - admitted;
    assert!(admitted.min(others) > cases.len() / 10, "{admitted} of {}", cases.len());
    play(&cases);
}

/// The answer of the route, in which the rule's limit is the first.
async fn limits<N>(layer: &RateLimitLayer<N>) -> Value {
    let app = Router::new().route("/limits", get(remaining(layer)));
    let request = Request::get("/limits").body(Body::empty()).unwrap();
    let Ok(response) = app.oneshot(request).await;
    serde_json::from_str(&Reply::read(response).await.body).unwrap()
}

fn millis_of(now: Timestamp) -> i64 {
    now.as_micros() / 1_000
}

/// What a limiter answers: the verdict and the milliseconds to wait.
fn answer(limiter: &RateLimiter, limit: &Limit, cost: u64, queue: Option<Duration>) -> Value {
    let call = limiter.limit(limit).cost(cost);
    let wait = |wait: Duration| u64::try_from(wait.as_micros()).unwrap().div_ceil(1_000);
    let answer = match queue {
        None => at_once(call).map(|_permit| Duration::ZERO),
        Some(longest) => at_once(call.reserve_within(longest)).map(|reservation| {
            let wait = reservation.wait();
            drop(reservation.keep());
            wait
        }),
    };
    match answer {
        Ok(Duration::ZERO) => json!(["admitted", 0]),
        Ok(waiting) => json!(["reserved", wait(waiting)]),
        Err(error) if error.is_too_large() => json!(["refused", null]),
        Err(error) => json!(["refused", wait(error.retry_after().unwrap())]),
    }
}

/// From one answer of the server on, a client that counts its own requests is always right.
#[test]
fn a_client_predicts_a_whole_session_from_one_look() {
    let (mut calls, mut expected) = (Vec::new(), Vec::new());
    for seed in seeds(400) {
        let mut dice = Dice(seed);
        let period = Duration::from_millis(1 + dice.below(20_000));
        let mut quota = match dice.below(3) {
            0 => Quota::token_bucket(1 + dice.below(30), period),
            1 => Quota::fixed_window(1 + dice.below(30), period),
            _ => Quota::fixed_window(1 + dice.below(30), period).from_first_use(),
        };
        quota = quota.capacity(dice.below(40));
        if dice.below(2) == 0 {
            quota = quota.max_reserved(dice.below(40));
        }
        let queue = (dice.below(2) == 0).then(|| Duration::from_millis(1 + dice.below(10_000)));
        let limit = Limit::try_new("api", quota).unwrap();
        let clock = ManualClock::new(START);
        let limiter = limiter(&clock);
        let layer = limiter.layer(&limit);
        let layer = match queue {
            Some(longest) => layer.queue(longest),
            None => layer,
        };
        // Some are used already when the client looks.
        for _ in 0..dice.below(10) {
            answer(&limiter, &limit, 1, queue);
        }
        let told = at_once(limits(&layer));
        let mut now = START;
        let (mut steps, mut answers) = (Vec::new(), Vec::new());
        for _ in 0..40 {
            let gap = [0, dice.below(100), dice.below(5_000)][dice.nth(&[0; 3])];
            now = now + Duration::from_millis(gap);
            clock.set(now);
            let cost = dice.below(8);
            steps.push(json!(["remaining", millis_of(now)]));
            answers.push(json!(at_once(limiter.peek(&limit)).unwrap().remaining()));
            steps.push(json!(["take", cost, millis_of(now)]));
            answers.push(answer(&limiter, &limit, cost, queue));
        }
        let look = millis_of(START);
        calls.push(json!(["bucket", told["limits"][0], told["now"], look, look, steps]));
        expected.push(answers);
    }
    let (mut admitted, mut all) = (0, 0);
    for ((call, told), expected) in
        calls.iter().zip(node::run("predictor.mjs", &calls)).zip(expected)
    {
        let told = told.as_array().unwrap().iter().map(|step| match step {
            Value::Object(step) => json!([step["verdict"], step["wait"]]),
            number => number.clone(),
        });
        let told: Vec<_> = told.collect();
        assert_eq!(told, expected, "{call}");
        all += expected.len() / 2;
        admitted += expected.iter().filter(|step| step[0] == "admitted").count();
    }
    assert!(admitted > all / 8 && admitted < all / 8 * 7, "{admitted} of {all}");
}

/// The clocks differ by days and the answer was under way for seconds, more one way than the other.
#[test]
fn a_countdown_ends_when_the_token_is_there_and_at_most_a_round_trip_later() {
    let (mut calls, mut truths) = (Vec::new(), Vec::new());
    for seed in seeds(2_000) {
        let mut dice = Dice(seed);
        let quota =
            Quota::token_bucket(1 + dice.below(50), Duration::from_millis(1 + dice.below(9_000)));
        let limit = Limit::try_new("api", quota).unwrap();
        let clock = ManualClock::new(START);
        let limiter = limiter(&clock);
        let held = quota.get_capacity();
        at_once(limiter.limit(&limit).cost(1 + dice.below(held))).unwrap();
        // The answer: `up` to the server, `down` back.
        let (up, down) = (signed(dice.below(3_000)), signed(dice.below(3_000)));
        let told = at_once(limits(&limiter.layer(&limit)));
        let skew = signed(dice.below(400_000_000)) - 200_000_000;
        let local = |server: i64| server - skew;
        let (sent, received) = (local(millis_of(START) - up), local(millis_of(START) + down));
        let now = received + signed(dice.below(2_000));
        let cost = 1 + dice.below(held);
        let steps = json!([["uncertainty"], ["serverTime", now], ["predict", cost, now]]);
        calls.push(json!(["bucket", told["limits"][0], told["now"], sent, received, steps]));
        truths.push((limiter, limit, clock, cost, skew, now, up + down));
    }
    for (told, (limiter, limit, clock, cost, skew, now, trip)) in
        node::run("predictor.mjs", &calls).iter().zip(truths)
    {
        let server = |local: i64| Timestamp::from_micros((local + skew) * 1_000);
        assert_eq!(told[0].as_f64().unwrap() * 2.0, trip as f64);
        let (earliest, really) = (told[1].as_i64().unwrap(), server(now).as_micros());
        assert!(earliest <= really && really <= earliest + trip * 1_000);
        let at = told[2]["at"].as_i64().unwrap();
        assert_eq!(at - now, told[2]["wait"].as_i64().unwrap());
        // By then it is admitted. Unless it was at once, it was not by so much as a round trip
        // before.
        if at > now {
            clock.set(server(at - trip - 1));
            assert!(at_once(limiter.limit(&limit).cost(cost)).is_err());
        }
        clock.set(server(at));
        assert!(at_once(limiter.limit(&limit).cost(cost)).is_ok());
    }
}

/// Each request is under way for up to as long as the look was in all.
#[test]
fn a_client_that_waits_as_predicted_is_never_refused() {
    let (mut calls, mut servers) = (Vec::new(), Vec::new());
    for seed in seeds(600) {
        let mut dice = Dice(seed);
        let period = Duration::from_millis(1 + dice.below(9_000));
        let quota = match dice.below(2) {
            0 => Quota::token_bucket(1 + dice.below(50), period),
            _ => Quota::fixed_window(1 + dice.below(50), period),
        };
        let limit = Limit::try_new("api", quota).unwrap();
        let clock = ManualClock::new(START);
        let limiter = limiter(&clock);
        let held = quota.get_capacity();
        at_once(limiter.limit(&limit).cost(1 + dice.below(held))).unwrap();
        let (up, down) = (signed(dice.below(400)), signed(dice.below(400)));
        let told = at_once(limits(&limiter.layer(&limit)));
        let skew = signed(dice.below(400_000_000)) - 200_000_000;
        let local = millis_of(START) - skew;
        let requests: Vec<_> = (0..40)
            .map(|_| {
                let gaps = [0, dice.below(50), dice.below(5_000)];
                (gaps[dice.nth(&gaps)], 1 + dice.below(held.min(4)))
            })
            .collect();
        let looked = [local - up, local + down];
        calls.push(json!(["follow", told["limits"][0], told["now"], looked, looked[1], requests]));
        servers.push((limiter, limit, clock, skew, up + down, requests));
    }
    let followed = node::run("predictor.mjs", &calls);
    for (seed, (sent, server)) in followed.iter().zip(servers).enumerate() {
        let (limiter, limit, clock, skew, trip, requests) = server;
        let mut dice = Dice(seed as u64);
        let mut arrived = START;
        for (sent, (_, cost)) in sent.as_array().unwrap().iter().zip(requests) {
            assert_eq!(sent[1], "admitted");
            let way = signed(dice.below(trip.unsigned_abs() + 1));
            let at = Timestamp::from_micros((sent[0].as_i64().unwrap() + skew + way) * 1_000);
            arrived = arrived.max(at);
            clock.set(arrived);
            let admitted = at_once(limiter.limit(&limit).cost(cost)).is_ok();
            assert!(admitted, "seed {seed}, {sent}, {cost} of {limit:?}");
        }
    }
}

#[test]
fn what_others_take_is_read_from_the_fields_of_a_response() {
    let limit = Limit::new("a \"b\"", Quota::token_bucket(10, SECOND).capacity(20));
    let limiter = limiter(&ManualClock::new(START));
    at_once(limiter.limit(&limit).cost(14)).unwrap();
    let told = at_once(limits(&limiter.layer(&limit)));
    let (name, now) = ("\"a \\\"b\\\"\"", millis_of(START));
    // Six are known when a request of no cost is sent, and seven 100 ms later, when its response is
    // there. All are counted another 100 ms later.
    let cases = [
        (&[0][..], 200, String::new(), 8),
        (&[0], 200, "\"other\";r=1;t=1, \"third\";r=2".to_owned(), 8),
        (&[0], 200, format!("{name};t=1, \"third\";r=2"), 8),
        (&[0], 200, format!("{name};r=6;t=1"), 8),
        (&[0], 200, format!("{name};r=7;t=1"), 8),
        // Others have taken some. Those that came in since they did are lost at worst.
        (&[0], 200, format!("{name};r=5;t=1"), 6),
        (&[0], 200, format!("\"other\";r=9, {name};pk=:YQ==:;r=2;t=1"), 3),
        (&[0], 200, format!("{name};r=0;t=1, \"third\";r=9"), 1),
        // Some came back.
        (&[0], 200, format!("{name};r=15;t=1"), 16),
        // What is known includes the request, and another one that was sent meanwhile.
        (&[2], 200, format!("{name};r=4;t=1"), 6),
        (&[2, 3], 200, format!("{name};r=4;t=1"), 3),
        // Refused against the prediction, as by another limit: it took nothing.
        (&[2], 429, String::new(), 8),
        (&[2, 3], 503, String::new(), 5),
        // Admitted against the prediction, on the edge: it took its tokens.
        (&[7], 200, format!("{name};r=0;t=1"), 1),
        (&[7], 429, format!("{name};r=6;t=1"), 8),
    ];
    let call = |(costs, status, field, _): &(&[u64], u16, String, u64)| {
        let fields = json!({ "ratelimit": field });
        let (limit, looked) = (&told["limits"][0], [now, now]);
        json!([
            "observe",
            limit,
            told["now"],
            looked,
            costs,
            status,
            fields,
            now,
            now + 100,
            now + 200
        ])
    };
    let calls: Vec<_> = cases.iter().map(call).collect();
    for (case, told) in cases.iter().zip(node::run("predictor.mjs", &calls)) {
        assert_eq!(told, json!(case.3), "{case:?}");
    }
}

/// What a large limit gains in a round trip is more than JavaScript's numbers hold exactly.
#[test]
fn what_is_taken_is_never_rounded_in_favour_of_the_client() {
    let most = 1_u64 << 53;
    let (mut calls, mut left) = (Vec::new(), Vec::new());
    for seed in seeds(300) {
        let mut dice = Dice(seed);
        let (gain, cost) = (1 + up_to(&mut dice, most - 1), up_to(&mut dice, most - 1));
        let (now, trip) = (millis_of(START), 1 + signed(dice.below(3_000)));
        let limit = json!({
            "name": "large", "cost": 1, "max_cost": most, "max_wait": 0, "value": most - 1,
            "ts": START.as_micros(),
            "bucket": {"step": 1, "gain": gain, "token": 1, "capacity": most, "floor": 0},
        });
        let steps = json!([["take", cost, now], ["remaining", now + 2 * trip]]);
        calls.push(json!(["bucket", limit, START.as_micros(), now - trip, now, steps]));
        left.push(most - cost);
    }
    for (told, left) in node::run("predictor.mjs", &calls).iter().zip(left) {
        assert_eq!(told[0]["verdict"], "admitted");
        assert!(told[1].as_u64().unwrap() <= left, "{told} and {left}");
    }
}

/// Not even a request that costs nothing is admitted by a quota of nothing.
#[test]
fn nothing_fits_a_quota_of_nothing() {
    let limit = Limit::new("paused", Quota::none());
    let told = at_once(limits(&limiter(&ManualClock::new(START)).layer(&limit)));
    let now = millis_of(START);
    let later = now + 1_000_000;
    let steps = json!([
        ["remaining", now],
        ["predict", 0, now],
        ["predict", 1, later],
        ["take", 0, now],
        ["remaining", later],
    ]);
    let call = json!(["bucket", told["limits"][0], told["now"], now, now, steps]);
    let answers = node::run("predictor.mjs", &[call]);
    let refused = json!({ "verdict": "refused", "wait": null, "at": null });
    assert_eq!((&answers[0][0], &answers[0][4]), (&json!(0), &json!(0)));
    assert_eq!((&answers[0][1], &answers[0][2]), (&refused, &refused));
    assert_eq!(answers[0][3]["verdict"], "refused");
}

/// A window keeps its place in time: only what is left of it changes.
#[test]
fn what_is_observed_does_not_move_a_window() {
    let start = START + Duration::from_millis(700);
    let limit = Limit::new("api", Quota::fixed_window(10, SECOND).start(start));
    let limiter = limiter(&ManualClock::new(START));
    let told = at_once(limits(&limiter.layer(&limit)));
    let now = millis_of(START);
    let known_at = |at: i64| {
        let fields = json!({ "ratelimit": "\"api\";r=3;t=1" });
        let looked = [now, now];
        json!([
            "observe",
            told["limits"][0],
            told["now"],
            looked,
            [0],
            200,
            fields,
            now,
            now + 10,
            now + at
        ])
    };
    let calls = [known_at(10), known_at(699), known_at(700)];
    assert_eq!(node::run("predictor.mjs", &calls), [json!(3), json!(3), json!(10)]);
}

#[tokio::test]
async fn look_asks_a_server_and_says_what_went_wrong() {
    let limits = [("a", 5), ("b", 7)]
        .map(|(name, rate)| Limit::try_new(name, Quota::token_bucket(rate, MINUTE)).unwrap());
    let unauthorized = StatusCode::UNAUTHORIZED;
    let rule = |limit| Rule::new(limit).key(header("x-user")).missing_key(unauthorized);
    let layer = RateLimiter::in_memory().layer(rule(&limits[0])).and(rule(&limits[1]));
    let app = Router::new().route("/limits", get(remaining(&layer)));
    let server = web::serve(app).await;
    let url = format!("http://{server}/limits");
    let lines = [json!(["look", url, { "headers": { "x-user": "ann" } }]), json!(["look", url])];
    let told = tokio::task::spawn_blocking(move || node::run("predictor.mjs", &lines)).await;
    let told = told.unwrap();
    for (bucket, (name, rate)) in told[0].as_array().unwrap().iter().zip([("a", 5), ("b", 7)]) {
        assert_eq!((&bucket["name"], &bucket["remaining"]), (&json!(name), &json!(rate)));
        assert_eq!((&bucket["verdict"], &bucket["wait"]), (&json!("admitted"), &json!(0)));
        // One machine, one clock: known to the round trip.
        let (skew, uncertainty) =
            (bucket["skew"].as_f64().unwrap(), bucket["uncertainty"].as_f64().unwrap());
        assert!(skew < 1_000.0 && skew > -2.0 * uncertainty - 1_000.0, "{bucket}");
    }
    assert_eq!(told[0].as_array().unwrap().len(), 2);
    assert_eq!(told[1], json!(format!("{url} answered 401")));
}

/// The code of the guide, with the paths of a server and of the module in place of its own.
#[tokio::test]
async fn the_code_of_the_guide_runs() {
    let limit = Limit::new("per-client", Quota::token_bucket(10, MINUTE).capacity(20));
    let layer = RateLimiter::in_memory().layer(limit);
    let hello = Router::new().route("/hello", get(async || "hello")).layer(layer.clone());
    let server = web::serve(hello.route("/limits", get(remaining(&layer)))).await;

    let guide = include_str!("../../../../docs/predicting.md");
    let blocks = guide.split("```js\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let [first, second]: [&str; 2] = blocks.collect::<Vec<_>>().try_into().unwrap();
    let module = concat!("\"file://", env!("CARGO_MANIFEST_DIR"), "/../../js/tollgate.js\"");
    // A block of its own, since both name the same things.
    let code = format!("{first}\n{{\n{second}}}\n")
        .replace("\"/tollgate.js\"", module)
        .replace("\"/hello\"", &format!("\"http://{server}/hello\""))
        .replace("\"/limits\"", &format!("\"http://{server}/limits\""));
    let run = move || Command::new("node").args(["--input-type=module", "-e", &code]).output();
    let output = tokio::task::spawn_blocking(run).await.unwrap().unwrap();
    let (said, error) = (String::from_utf8_lossy(&output.stdout), output.stderr);
    assert_eq!(said, "20\nnow\n", "{}", String::from_utf8_lossy(&error));
    let limits: Value = serde_json::from_str(&web::get(server, "/limits").await.body).unwrap();
    let left = limits["limits"][0]["value"].as_i64().unwrap();
    assert!(left < 120_000_000, "the request of the guide was not sent: {left}");
}
