//! Golden data, recorded from another implementation that counts in floating-point milliseconds.
//!
//! Agreement means: the same decision and the same time stamps, and values and waits within 1e-6
//! relative (and one unit, respectively one microsecond, of rounding). Every line is played.

use std::time::Duration;

use serde_json::Value;
use tollgate::algebra::{Bucket, Calculation, Terms, Verdict, calculate};
use tollgate::backend::{Backend, BucketId, Charge, Memory};
use tollgate::clock::ManualClock;
use tollgate::{Key, Limit, Quota};
use tollgate_testing::at_once;
use tollgate_testing::vectors::{millis, number, quota, state};

#[test]
fn every_calculation_agrees() {
    let mut lines = 0;
    let mut did_not_fit = 0;
    for line in include_str!("../data/calculate.jsonl").lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let (quota, fitted) = quota(&line);
        did_not_fit += u32::from(fitted);
        check_calculation(&line, &quota);
        lines += 1;
    }
    assert_eq!(lines, 1_331);
    // One line reserves up to a million million months, which is more than can be counted; it is
    // played with the largest number that the error names.
    assert_eq!(did_not_fit, 1);
}

fn check_calculation(line: &Value, quota: &Quota) {
    let id = &line["id"];
    let bucket = Bucket::new(quota).unwrap();
    let stored = state(&bucket, &line["existing"]);
    let count = line["count"].as_u64().unwrap();
    let calculation = calculate(quota, stored, millis(&line["now"]), count).unwrap();

    let expect = &line["expect"];
    assert_close(calculation.value().to_f64(), number(&expect["value"]), &bucket, id);
    assert_eq!(calculation.ts(), millis(&expect["ts"]), "line {id}");
    assert_wait(calculation.wait(), &expect["retryAfter"], id);
    assert_window(&calculation, quota, &expect["windowStart"], id);

    let reserve = line["reserve"].as_bool().unwrap();
    let (verdict, too_large) = if reserve {
        (calculation.reserving(), calculation.too_large_to_reserve())
    } else {
        (calculation.verdict(), calculation.too_large())
    };
    assert_eq!(too_large, !expect["error"].is_null(), "line {id}");
    let ok = verdict != Verdict::Refused && !too_large;
    assert_eq!(ok, expect["ok"].as_bool().unwrap(), "line {id}");
}

/// The recorded start is the first window's, ours the current one's: whole periods apart.
fn assert_window(calculation: &Calculation, quota: &Quota, expected: &Value, id: &Value) {
    let Some(start) = calculation.window_start() else {
        return assert!(expected.is_null(), "line {id}");
    };
    let apart = start.as_micros() - millis(expected).as_micros();
    assert_eq!(apart % i64::try_from(quota.period().as_micros()).unwrap(), 0, "line {id}");
}

#[test]
fn every_sequence_agrees() {
    let (mut sequences, mut steps) = (0, 0);
    for line in include_str!("../data/sequences.jsonl").lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let limit = Limit::try_new("sequence", quota(&line).0).unwrap();
        let clock = ManualClock::default();
        let (memory, limiter) = tollgate_testing::store(Memory::new(), &clock);
        for step in line["steps"].as_array().unwrap() {
            clock.set(millis(&step["now"]));
            play(step, &limit, &memory, &limiter, &format!("{}, step {steps}", line["id"]));
            steps += 1;
        }
        sequences += 1;
    }
    assert_eq!((sequences, steps), (150, 5_899));
}

fn play(step: &Value, limit: &Limit, memory: &Memory, limiter: &tollgate::RateLimiter, id: &str) {
    let bucket = limit.bucket();
    let key = Key::GLOBAL;
    let bucket_id = BucketId::new(limit.name(), &key);
    let count = step["count"].as_u64().unwrap_or(1);
    let reserve = step["reserve"].as_bool().unwrap();
    let terms = if reserve { Terms::reserving(bucket.floor()) } else { Terms::AT_ONCE };
    let id = &Value::from(id);

    assert_eq!(bucket.too_large(count, terms), !step["error"].is_null(), "{id}");
    if !step["error"].is_null() {
        if !reserve {
            assert!(at_once(limiter.limit(limit).cost(count)).unwrap_err().is_too_large());
        }
    } else if reserve {
        let charge = Charge::take(bucket_id, bucket, bucket.units(count).unwrap()).terms(terms);
        let applied = at_once(memory.apply(&[charge]).wait()).unwrap();
        let ok = applied.verdict() != Verdict::Refused;
        assert_eq!(ok, step["ok"].as_bool().unwrap(), "{id}");
        assert_wait(applied.wait(), &step["retryAfter"], id);
    } else {
        let answer = at_once(limiter.limit(limit).cost(count));
        assert_eq!(answer.is_ok(), step["ok"].as_bool().unwrap(), "{id}");
        let wait = answer.err().map(|error| error.retry_after().expect("a refusal"));
        assert_wait(wait.unwrap_or_default(), &step["retryAfter"], id);
    }

    // What is stored, seen from now; nothing was stored before the first call that was admitted.
    let now = millis(&step["now"]);
    let seen = at_once(limiter.peek(limit)).unwrap();
    if let Some(stored) = state(bucket, &step["stored"]) {
        let stored = bucket.refresh(stored, now);
        let expected = bucket.tokens(stored.value).to_f64();
        assert_close(seen.tokens().to_f64(), expected, bucket, id);
        assert_eq!(seen.state().ts, stored.ts, "{id}");
    } else {
        assert_eq!(seen.remaining(), limit.quota().get_capacity(), "{id}");
    }
}

#[track_caller]
fn assert_close(ours: f64, theirs: f64, bucket: &Bucket, id: &Value) {
    let unit = 1.0 / bucket.token() as f64;
    let close = (ours - theirs).abs() <= 1e-6 * theirs.abs().max(1.0) + unit;
    assert!(close, "line {id}: value {ours}, recorded {theirs}");
}

#[track_caller]
fn assert_wait(ours: Duration, theirs: &Value, id: &Value) {
    let Some(theirs) = theirs.as_f64() else {
        return assert_eq!(ours, Duration::ZERO, "line {id}");
    };
    let ours = ours.as_secs_f64() * 1e3;
    assert!((ours - theirs).abs() <= 1e-6 * theirs + 1e-3, "line {id}: {ours} ms, {theirs} ms");
}
