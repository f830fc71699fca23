//! The example does what it says.

use http::Request;
use tollgate::clock::ManualClock;
use tollgate_config::Config;
use tollgate_testing::{START, limiter};

#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../examples/config.rs"]
mod example;

#[tokio::test]
async fn config_limits_by_its_file_and_names_what_is_missing() {
    let text = include_str!("../../examples/limits.toml");
    let file = Config::from_text("limits.toml", text).unwrap();
    let clock = ManualClock::new(START);
    let app = example::app(&file, limiter(&clock)).unwrap();
    let login = || Request::post("/login").header("x-user", "alice");
    let ask = async |request| example::ask(&app, request).await;
    for status in [200, 200, 200, 429] {
        assert_eq!(ask(login()).await.0, status);
    }
    let (_, refusal) = ask(login()).await;
    assert_eq!(refusal, "Too Many Requests: refused by `login`, try again in 1200 seconds\n");
    for status in [200, 200, 200, 429] {
        assert_eq!(ask(Request::post("/guess")).await.0, status);
    }
    // A shadow refuses nothing.
    for _ in 0..4 {
        assert_eq!(ask(Request::get("/searches")).await.0, 200);
    }
    assert_eq!(ask(Request::get("/exports")).await.0, 401);
    for _ in 0..2 {
        assert_eq!(ask(Request::get("/exports").header("x-tenant", "acme")).await.0, 200);
    }
    // 16 of 20 are used: refusals cost nothing, and health checks neither.
    assert_eq!(ask(Request::get("/health")).await.0, 200);

    let missing =
        Config::from_text("limits.toml", &text.replace("[limits.exports]", "[limits.export]"));
    let error = example::app(&missing.unwrap(), limiter(&clock)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "limits.toml: there is no limit \"exports\" (did you mean \"export\"?)"
    );
    let other =
        Config::from_text("limits.toml", &format!("{text}\n[limits.other]\nquota = '5/h'\n"));
    let error = example::app(&other.unwrap(), limiter(&clock)).unwrap_err().to_string();
    assert!(error.starts_with("limits.toml:33:9: limit \"other\": it has no effect"), "{error}");
}
