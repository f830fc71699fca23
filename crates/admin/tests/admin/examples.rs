//! The example does what it says.

use http::Method;
use tollgate::clock::ManualClock;
use tollgate_testing::{START, limiter};

#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../examples/admin.rs"]
mod example;

#[tokio::test]
async fn admin_shows_and_lifts_a_block_for_the_right_token_alone() {
    let limiter = limiter(&ManualClock::new(START));
    let app = example::app(&limiter, "right");
    let ask = async |token: &str, method: Method, path: &str, body: &'static str| {
        example::ask(&app, token, (method, path), body).await.unwrap()
    };
    let (login, key) = ("/login", "/admin/limits/login/mallory");
    for status in [200, 200, 200, 200, 200, 429] {
        assert_eq!(ask("none", Method::POST, login, "").await.0, status);
    }
    for token in ["", "wrong", "right ", "Bearer right"] {
        assert_eq!(ask(token, Method::DELETE, key, "").await, (403, String::new()), "{token}");
    }
    let (status, shown) = ask("right", Method::GET, key, "").await;
    assert!(status == 200 && shown.contains("\"wait_ms\":720000"), "{shown}");
    let (status, shown) =
        ask("right", Method::POST, "/admin/limits/login/mallory/block", r#"{"time": "1 day"}"#)
            .await;
    assert!(status == 200 && shown.contains("\"blocked_until\":\"2023-11-15T"), "{shown}");
    assert_eq!(ask("right", Method::DELETE, key, "").await.0, 204);
    assert_eq!(ask("none", Method::POST, login, "").await.0, 200);
}
