//! Reads the recorded vectors in `tests/data`.

use std::time::Duration;

use serde_json::Value;
use tollgate::algebra::{Bucket, State};
use tollgate::quota::Kind;
use tollgate::{Quota, Timestamp};

/// The quota of a line, and whether its max_reserved had to be made to fit.
pub fn quota(line: &Value) -> (Quota, bool) {
    let (rate, period) =
        (line["rate"].as_u64().unwrap(), Duration::from_millis(line["period"].as_u64().unwrap()));
    let mut quota = match line["kind"].as_str().unwrap() {
        "token bucket" => Quota::token_bucket(rate, period),
        "fixed window" => Quota::fixed_window(rate, period),
        other => panic!("{other} is not a kind"),
    };
    if let Some(capacity) = line["capacity"].as_u64() {
        quota = quota.capacity(capacity);
    }
    if quota.kind() == Kind::FixedWindow && !line["start"].is_null() {
        quota = quota.start(millis(&line["start"]));
    }
    let Some(max_reserved) = line["maxReserved"].as_u64() else { return (quota, false) };
    match quota.max_reserved(max_reserved).validated() {
        Ok(quota) => (quota, false),
        Err(error) => {
            let message = error.to_string();
            let (_, named) = message.split_once("use a max_reserved of at most ").unwrap();
            let fits = named.trim_end_matches(')').parse().unwrap();
            (quota.max_reserved(fits).validated().unwrap(), true)
        }
    }
}

/// A stored row: tokens, rounded down to units, and a time.
pub fn state(bucket: &Bucket, row: &Value) -> Option<State> {
    if row.is_null() {
        return None;
    }
    // Recorded values like 4.666666666666667 stand for a whole number of units below them.
    let units = (number(&row["value"]) * bucket.token() as f64).floor();
    Some(State { value: units as i64, ts: millis(&row["ts"]) })
}

/// A number of a line.
pub fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

/// A time of a line.
pub fn millis(value: &Value) -> Timestamp {
    let millis = value.as_i64().expect("recorded times are whole milliseconds");
    Timestamp::from_micros(millis * 1_000)
}
