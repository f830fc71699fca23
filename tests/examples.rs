//! The examples do what they say.

mod support;

#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../examples/custom_key.rs"]
mod custom_key;
#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../examples/failed_logins.rs"]
mod failed_logins;
#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../examples/global_signups.rs"]
mod global_signups;
#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../examples/outbound_client.rs"]
mod outbound_client;
#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../examples/quickstart.rs"]
mod quickstart;

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Method;
use support::web::{get, send, serve};
use support::{START, limiter};
use tollgate::clock::ManualClock;
use tollgate::{HOUR, RateLimiter};

#[tokio::test]
async fn quickstart_counts_down_refuses_and_admits_again_in_time() {
    let clock = ManualClock::new(START);
    let server = serve(quickstart::app(&limiter(&clock))).await;
    for left in (0..20).rev() {
        let reply = get(server, "/").await;
        assert_eq!((reply.status.as_u16(), reply.body.as_str()), (200, "hello\n"));
        let told = reply.field("ratelimit").unwrap();
        assert!(told.starts_with(&format!("\"per-client\";r={left};")), "{told}");
    }
    let refused = get(server, "/").await;
    assert_eq!(refused.status, 429);
    let wait: u64 = refused.field("retry-after").unwrap().parse().unwrap();
    clock.advance(Duration::from_secs(wait));
    assert_eq!(get(server, "/").await.status, 200);
}

#[tokio::test]
async fn quickstart_is_stricter_with_log_ins_of_one_name() {
    let server = serve(quickstart::app(&limiter(&ManualClock::new(START)))).await;
    let login = async |user| send(server, Method::POST, "/login", &[("x-user", user)]).await;
    for _ in 0..3 {
        assert_eq!(login("alice").await.status, 200);
    }
    let refused = login("alice").await;
    assert_eq!((refused.status.as_u16(), refused.field("retry-after")), (429, Some("20")));
    assert!(refused.body.contains("\"violated-policies\":[\"login\"]"), "{}", refused.body);
    assert_eq!(login("bob").await.status, 200);
    assert_eq!(send(server, Method::POST, "/login", &[]).await.status, 401);
    assert_eq!(get(server, "/").await.status, 200);
}

#[tokio::test]
async fn custom_key_gives_each_tenant_a_bucket_and_health_checks_none() {
    let app = custom_key::app(&limiter(&ManualClock::new(START)));
    for (host, status) in
        [("acme.x", 200), ("ACME.x", 200), ("acme.y", 429), ("zenith.x", 200), ("local", 400)]
    {
        assert_eq!(custom_key::ask(&app, host, "/").await, status, "{host}");
    }
    for _ in 0..5 {
        assert_eq!(custom_key::ask(&app, "acme.x", "/health").await, 200);
    }
}

#[tokio::test]
async fn failed_logins_counts_failures_only_and_forgets_them_after_a_success() {
    let app = failed_logins::app(limiter(&ManualClock::new(START)));
    let attempt = async |password| failed_logins::attempt(&app, "alice", password).await;
    for _ in 0..10 {
        assert_eq!(attempt("correct horse").await, 200);
    }
    assert_eq!([attempt("a").await, attempt("b").await], [401, 401]);
    assert_eq!(attempt("correct horse").await, 200);
    assert_eq!([attempt("a").await, attempt("b").await, attempt("c").await], [401, 401, 401]);
    // Even the right password does not help now, or guessing would go on unseen.
    assert_eq!(attempt("correct horse").await, 429);
    assert_eq!(failed_logins::attempt(&app, "bob", "a").await, 401);
}

#[tokio::test]
async fn global_signups_are_limited_for_all_together() {
    let clock = ManualClock::new(START);
    let app = global_signups::app(limiter(&clock));
    for left in [2, 1, 0] {
        let welcome = format!("welcome ({left} more this hour)");
        assert_eq!(global_signups::ask(&app).await, (200, welcome));
    }
    assert_eq!(global_signups::ask(&app).await.0, 429);
    clock.advance(HOUR);
    assert_eq!(global_signups::ask(&app).await.0, 200);
}

#[tokio::test]
async fn outbound_client_keeps_their_quota() {
    let limiter: RateLimiter = limiter(&ManualClock::new(START));
    let (them, asked) = outbound_client::them().await.unwrap();
    let statuses = outbound_client::call_them(&limiter, them, 5).await;
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    assert_eq!(asked.load(Ordering::Relaxed), 3);
    // Another host has a quota of its own.
    let (others, _) = outbound_client::them().await.unwrap();
    assert_eq!(outbound_client::call_them(&limiter, others, 1).await, [200]);
}
