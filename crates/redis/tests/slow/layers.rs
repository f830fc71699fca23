//! Layers over a store in Redis that does not answer: 503 and when to come back, by the deadline of
//! 50 ms, for which the tests wait.

use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, Response, StatusCode};
use tokio::time::sleep;
use tollgate::{HOUR, Limit, Quota, RateLimiter, SECOND};
use tollgate_redis::Redis;
use tollgate_testing::redis::{Mode, Proxy, Server};
use tollgate_testing::traffic::{DEADLINE, NOISE, wait_until};
use tower::ServiceExt;

static PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(1_000_000, HOUR));

/// One every tenth of a second, and none in advance.
static TENTHS: Limit = Limit::new("tenths", Quota::token_bucket(10, SECOND).capacity(0));

fn limiter(url: String, deadline: Duration) -> RateLimiter {
    RateLimiter::new(Redis::at(url).deadline(deadline).connect_lazily().unwrap())
}

/// A route that refuses, and one that lets requests wait for their turn.
fn app(limiter: &RateLimiter) -> Router {
    let queued = Router::new().route("/queued", get(async || "hello"));
    Router::new()
        .route("/", get(async || "hello"))
        .layer(limiter.layer(&PER_CLIENT))
        .merge(queued.layer(limiter.layer(&TENTHS).queue(HOUR)))
}

async fn send(app: &Router, path: &str) -> Response<Body> {
    let request = Request::get(path).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap()
}

async fn is_served(app: &Router, path: &str) {
    let served = async || send(app, path).await.status() == StatusCode::OK;
    wait_until("a request is served", served).await;
}

/// Asserts that both routes answer with 503 in time.
async fn answers_503(app: &Router, what: &str) {
    for path in ["/", "/queued"] {
        let begun = Instant::now();
        // Where this thread is late, a bare timer is as well.
        let (response, timer) =
            tokio::join!(async { (send(app, path).await, begun.elapsed()) }, async {
                (sleep(DEADLINE).await, begun.elapsed())
            });
        let ((response, took), ((), most)) = (response, timer);
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE, "{path}, {what}");
        assert_eq!(response.headers()["retry-after"], "1", "{path}, {what}");
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        assert!(took < most + NOISE, "{path}, {what}: {took:?}");
    }
}

#[tokio::test]
async fn a_dead_server_is_answered_with_503_until_it_recovers() {
    let server = Server::start();
    let app = app(&limiter(server.url(), DEADLINE));
    for path in ["/", "/queued"] {
        is_served(&app, path).await;
        server.kill();
        answers_503(&app, "killed").await;
        server.restart();
    }
    is_served(&app, "/").await;
    is_served(&app, "/queued").await;
    server.stop();
    answers_503(&app, "stopped").await;
    answers_503(&app, "still stopped").await;
    server.resume();
    is_served(&app, "/queued").await;
    is_served(&app, "/").await;
}

#[tokio::test]
async fn a_server_that_is_never_reached_is_answered_with_503() {
    let server = Server::start();
    let proxy = Proxy::before(server.port());
    for mode in [Mode::Silent, Mode::Refuse, Mode::Cut, Mode::LoseAnswers] {
        proxy.set(mode);
        let app = app(&limiter(proxy.url(), DEADLINE));
        for _ in 0..3 {
            answers_503(&app, &format!("{mode:?}")).await;
        }
        proxy.set(Mode::Pass);
        is_served(&app, "/").await;
    }
}

/// It waits for its turn, a tenth of a second.
#[tokio::test]
async fn a_request_with_a_slot_needs_no_server_any_more() {
    let server = Server::start();
    let limiter = limiter(server.url(), HOUR);
    let app = app(&limiter);
    let waiting = tokio::spawn(async move { send(&app, "/queued").await.status() });
    let keys = || server.command(&["DBSIZE"]).int();
    wait_until("it has its turn", async || keys() == 1).await;
    // The answer to the next call comes after that to its reservation.
    assert!(limiter.peek(&PER_CLIENT).await.unwrap().fits());
    server.kill();
    assert_eq!(waiting.await.unwrap(), StatusCode::OK);
}
