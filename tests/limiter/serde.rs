//! Limits in configurations, and snapshots as JSON.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tollgate::clock::ManualClock;
use tollgate::{HOUR, Limit, MINUTE, Quota, Timestamp};
use tollgate_testing::{START, at_once, limiter};

const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));

#[track_caller]
fn error_of<'de, T: serde::Deserialize<'de>>(json: &'de str) -> String {
    let Err(error) = serde_json::from_str::<T>(json) else { panic!("{json} was read") };
    // Without the place in the text, which is serde_json's.
    error.to_string().split(" at line ").next().unwrap().to_owned()
}

#[test]
fn a_limit_is_read_back_as_it_was_written() {
    let text = r#"{"name":"login","quota":"5 per hour"}"#;
    assert_eq!(serde_json::to_string(&LOGIN).unwrap(), text);
    assert_eq!(serde_json::from_str::<Limit>(text).unwrap(), LOGIN);
    assert_eq!(
        serde_json::from_value::<Limit>(serde_json::to_value(&LOGIN).unwrap()).unwrap(),
        LOGIN
    );
    let longest = "x".repeat(64);
    let quota = Quota::fixed_window(3, MINUTE).capacity(7).max_reserved(2).start(START);
    let limit = Limit::try_new(longest, quota).unwrap();
    let json = serde_json::to_string(&limit).unwrap();
    assert_eq!(serde_json::from_str::<Limit>(&json).unwrap(), limit, "{json}");
}

#[test]
fn a_limit_that_is_wrong_is_an_error_that_says_what_is() {
    for (json, wanted) in [
        (r#"{"quota": "5 per hour"}"#, "missing field `name`"),
        (r#"{"name": "login"}"#, "missing field `quota`"),
        (r#"{"name": "a", "name": "b", "quota": "5 per hour"}"#, "duplicate field `name`"),
        (
            r#"{"quota": "5 per hour", "quota": "6 per hour", "name": "a"}"#,
            "duplicate field `quota`",
        ),
        (
            r#"{"name": "login", "quotas": "5 per hour"}"#,
            "unknown field `quotas`, expected `name` or `quota`",
        ),
        (
            r#"{"name": "", "quota": "5 per hour"}"#,
            "limit \"\" has an invalid name of 0 bytes (use 1 to 64 printable ASCII characters)",
        ),
        (
            "5",
            "invalid type: integer `5`, expected a limit like {name = \"login\", quota = \"5 per \
             hour\"}",
        ),
    ] {
        assert_eq!(error_of::<Limit>(json), wanted, "{json}");
    }
    let error = error_of::<Limit>(r#"{"name": "login", "quota": "5 per fortnight"}"#);
    assert!(error.starts_with("`5 per fortnight` is not a quota: "), "{error}");
}

#[test]
fn a_limit_that_was_read_has_the_buckets_of_one_in_the_code() {
    let table: BTreeMap<String, Quota> =
        serde_json::from_str(r#"{"login": "5 per hour"}"#).unwrap();
    let login = Limit::try_new("login", table["login"]).unwrap();
    let limiter = limiter(&ManualClock::new(START));
    at_once(limiter.limit(&login).cost(3)).unwrap();
    assert_eq!(at_once(limiter.peek(&LOGIN)).unwrap().remaining(), 2);
}

#[test]
fn a_snapshot_tells_what_is_left_and_the_wait() {
    let clock = ManualClock::new(Timestamp::from_unix_seconds(1_700_000_000));
    let limiter = limiter(&clock);
    let told = |cost| -> Value {
        let snapshot = at_once(limiter.peek(&LOGIN).cost(cost)).unwrap();
        serde_json::to_value(&snapshot).unwrap()
    };
    at_once(limiter.limit(&LOGIN).cost(4)).unwrap();
    let (at, full_at) = ("2023-11-14T22:13:20Z", "2023-11-14T23:01:20Z");
    let wanted = |remaining: u64, cost: u64, wait_ms: Value| {
        json!({
            "limit": "login", "remaining": remaining, "capacity": 5, "cost": cost,
            "wait_ms": wait_ms, "at": at, "full_at": full_at, "resets_at": full_at,
            "window_end": null, "blocked_until": null,
        })
    };
    assert_eq!(told(1), wanted(1, 1, json!(0)));
    assert_eq!(told(2), wanted(1, 2, json!(720_000)));
    assert_eq!(told(6), wanted(1, 6, Value::Null));
    // Rounded up: a client that comes back then is not early.
    clock.advance(std::time::Duration::from_micros(1));
    assert_eq!(told(2)["wait_ms"], 720_000);
    clock.advance(std::time::Duration::from_micros(999));
    assert_eq!(told(2)["wait_ms"], 719_999);
    at_once(limiter.block(&LOGIN, HOUR)).unwrap();
    assert_eq!(told(1)["blocked_until"], "2023-11-14T23:13:20.001000Z");
}
