//! Limits in configurations, and snapshots as JSON.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tollgate::clock::ManualClock;
use tollgate::limiter::Limits;
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
    let toml = toml::to_string(&limit).unwrap();
    assert_eq!(toml::from_str::<Limit>(&toml).unwrap(), limit, "{toml}");
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
            "limit \"\" cannot be named so: 0 bytes of name were given (use 1 to 64 printable ASCII \
             characters)",
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
fn a_table_of_quotas_becomes_limits_by_name() {
    let text = r#"{"login": "5 per hour", "api": "10 per second, capacity 20"}"#;
    let limits: Limits = serde_json::from_str(text).unwrap();
    assert_eq!(limits.get("login"), Some(&LOGIN));
    assert_eq!((limits.get("log"), limits.get("")), (None, None));
    let names: Vec<&str> = limits.iter().map(Limit::name).collect();
    assert_eq!(names, ["api", "login"]);
    assert_eq!(
        serde_json::to_string(&limits).unwrap(),
        r#"{"api":"10 per second, capacity 20","login":"5 per hour"}"#
    );
    assert_eq!(serde_json::from_str::<Limits>("{}").unwrap(), Limits::default());

    let toml = "[limits]\nlogin = \"5 per hour\"\n";
    let config: BTreeMap<String, Limits> = toml::from_str(toml).unwrap();
    assert_eq!(config["limits"].get("login"), Some(&LOGIN));
    // A limit that was read decides like one of the code: both have the same buckets.
    let limiter = limiter(&ManualClock::new(START));
    at_once(limiter.limit(config["limits"].get("login").unwrap()).cost(3)).unwrap();
    assert_eq!(at_once(limiter.peek(&LOGIN)).unwrap().remaining(), 2);
}

#[test]
fn the_error_of_a_table_names_the_entry() {
    for (json, wanted) in [
        (
            r#"{"api": "5 per hour", "login": 5}"#,
            "invalid type: integer `5`, expected for limit \"login\" a quota like \"10 per minute, \
             capacity 20\"",
        ),
        (
            r#"{"login": "5 per hour", "api": "1 per day", "login": "6 per hour"}"#,
            "limit \"login\" is given twice (leave one out)",
        ),
        (
            r#"{"log in\t": "5 per hour"}"#,
            "limit \"log in\\t\" cannot be named so: 7 bytes of name were given (use 1 to 64 printable \
             ASCII characters)",
        ),
        (
            r#"["5 per hour"]"#,
            "invalid type: sequence, expected a table of limits like login = \"5 per hour\"",
        ),
    ] {
        assert_eq!(error_of::<Limits>(json), wanted, "{json}");
    }
    for quota in [
        "5 per fortnight",
        "0 per hour, initial 1",
        "1 per day, capacity 10000000000",
        "5 per hour, shards 0",
    ] {
        let json = format!(r#"{{"api": "5 per hour", "login": "{quota}"}}"#);
        let error = error_of::<Limits>(&json);
        assert!(
            error.starts_with(&format!("limit \"login\": `{quota}` is not a quota: ")),
            "{error}"
        );
    }
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
            "window_end": null,
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
}
