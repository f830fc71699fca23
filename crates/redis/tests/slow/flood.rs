//! A flood of one client that is late: what it gains, and what it costs other clients. The test waits
//! for answers that take 0.3 seconds, and for the deadline of 3 seconds.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, StatusCode};
use tokio::task::{JoinSet, yield_now};
use tollgate::key::header;
use tollgate::{DAY, Limit, OnFailure, Quota, RateLimiter, Timestamp};
use tollgate_redis::Redis;
use tollgate_testing::redis::{Mode, Proxy, Server};
use tower::ServiceExt;

/// Nothing comes back during a test: a window of a hundred years, counted from 1970.
static MANY: Limit = Limit::new(
    "many",
    Quota::fixed_window(1_000_000, DAY.saturating_mul(36_525)).start(Timestamp::UNIX_EPOCH),
);

/// Requests that were late before they were sent ran uncharged, as if Redis had been down: 1,700 of
/// 3,000 did here. The requests of another client waited behind all of them.
#[tokio::test]
async fn a_flood_runs_nothing_uncharged_and_delays_no_other_client() {
    let server = Server::start();
    let proxy = Proxy::before(server.port());
    let connect = |url: String| Redis::at(url).deadline(Duration::from_secs(3)).connect();
    let limiter = RateLimiter::new(connect(proxy.url()).await.unwrap());
    let layer = limiter.layer(&MANY).key(header("x-user")).on_failure(OnFailure::Admit);
    let app = Router::new().route("/", get(async || "hello")).layer(layer);
    let send = |user: &'static str| {
        let request = Request::get("/").header("x-user", user).body(Body::empty()).unwrap();
        let answer = app.clone().oneshot(request);
        async move { answer.await.unwrap().status() }
    };
    assert_eq!(send("attacker").await, StatusCode::OK);
    // Not all of 3,000 fit into the calls of three seconds.
    proxy.set(Mode::Delay(Duration::from_millis(300), Duration::from_millis(300)));
    let flood: JoinSet<_> = (0..3_000).map(|_| send("attacker")).collect();
    yield_now().await;
    for nth in 0..4 {
        assert_eq!(send("other").await, StatusCode::OK, "{nth}");
    }
    let answers = flood.join_all().await;
    let ran = 1 + answers.iter().filter(|status| **status == StatusCode::OK).count();
    let late = answers.iter().filter(|status| **status == StatusCode::SERVICE_UNAVAILABLE).count();
    assert_eq!(ran + late, 3_001);
    assert!(late > 0, "the flood was not late");

    let direct = RateLimiter::new(connect(server.url()).await.unwrap());
    let left = async |user: &str| direct.peek(&MANY).key(user).await.unwrap().remaining();
    let taken = 1_000_000 - left("attacker").await;
    assert!(ran as u64 <= taken, "{ran} ran, and {taken} were charged");
    assert_eq!(left("other").await, 999_996);
}
