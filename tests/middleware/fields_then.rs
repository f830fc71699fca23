//! The header fields of a response show how the limits stand when it is sent: after refunds, resets
//! and settlements, and after what its handler has charged.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::post;
use http::{Method, StatusCode};
use tollgate::clock::ManualClock;
use tollgate::fields::Dialect;
use tollgate::key::ClientIp;
use tollgate::middleware::{ActualCost, Admission, Meter};
use tollgate::routes::RateLimitExt;
use tollgate::{DAY, HOUR, Limit, MINUTE, Quota, RateLimitLayer, RateLimited, Rule};
use tollgate_testing::web::{Reply, send, serve};
use tollgate_testing::{START, limiter};

static FAILURES: Limit = Limit::new("failures", Quota::token_bucket(5, HOUR));
static REQUESTS: Limit = Limit::new("requests", Quota::token_bucket(10, MINUTE));
static LLM: Limit = Limit::new("llm", Quota::fixed_window(1_000, DAY).start(START));

/// Answers with the status that the query names, such as `/?401`.
async fn log_in(uri: http::Uri) -> StatusCode {
    uri.query().unwrap().parse().unwrap()
}

async fn ask(server: SocketAddr, path: &str) -> Reply {
    send(server, Method::POST, path, &[]).await
}

#[track_caller]
fn told(reply: &Reply) -> &str {
    reply.field("ratelimit").unwrap()
}

/// A log-in that succeeded at the fifth try said `r=0`, of an account that was just reset.
#[tokio::test]
async fn after_a_reset_the_limit_is_told_as_full() {
    let rule = Rule::new(&FAILURES).key(ClientIp::peer()).reset_if(|reply| reply.is_success());
    let layer = limiter(&ManualClock::new(START)).layer(rule).and(&REQUESTS);
    let server = serve(Router::new().route("/", post(log_in)).rate_limit(layer)).await;
    for left in [4, 3, 2, 1] {
        let reply = ask(server, "/?401").await;
        assert!(told(&reply).starts_with(&format!("\"failures\";r={left};")), "{reply:?}");
    }
    let reply = ask(server, "/?200").await;
    assert_eq!(told(&reply), "\"failures\";r=5;t=3600, \"requests\";r=5;t=30");
    assert_eq!(told(&ask(server, "/?401").await), "\"failures\";r=4;t=2880, \"requests\";r=4;t=24");
}

#[tokio::test]
async fn after_a_refund_the_tokens_are_told_as_left() {
    let rule = Rule::new(&FAILURES).refund_if(|reply| reply.status() != StatusCode::UNAUTHORIZED);
    let layer = limiter(&ManualClock::new(START)).layer(rule).and(Rule::new(&REQUESTS).shadow());
    let layer = layer.dialects([Dialect::Draft11, Dialect::Draft6]);
    let server = serve(Router::new().route("/", post(log_in)).rate_limit(layer)).await;
    assert_eq!(told(&ask(server, "/?401").await), "\"failures\";r=4;t=2880");
    let reply = ask(server, "/?200").await;
    assert_eq!(told(&reply), "\"failures\";r=4;t=2880");
    assert_eq!(reply.field("ratelimit-remaining"), Some("4"));
}

/// A settling layer of 100 tokens, with handlers that settle in each way.
async fn settling(layer: RateLimitLayer) -> SocketAddr {
    let metered = async |meter: Meter| meter.add(30);
    let set = async || axum::Extension(ActualCost::new(40));
    let by_hand = async |admission: Admission| admission.settle(50).await;
    let reset = async |admission: Admission| admission.reset().await;
    let more = async |admission: Admission| {
        admission.charge(20).await?;
        ActualCost::metered().1.settle(0);
        Ok::<_, RateLimited>(())
    };
    let layer = layer.cost(100).settle().expose();
    let app = Router::new()
        .route("/metered", post(metered))
        .route("/set", post(set))
        .route("/by-hand", post(by_hand))
        .route("/more", post(more))
        .route("/reset", post(reset));
    serve(app.rate_limit(layer)).await
}

#[tokio::test]
async fn after_a_settlement_what_it_left_is_told() {
    let clock = ManualClock::new(START);
    let server = settling(limiter(&clock).layer(&LLM)).await;
    assert_eq!(told(&ask(server, "/metered").await), "\"llm\";r=970;t=86400");
    assert_eq!(told(&ask(server, "/set").await), "\"llm\";r=930;t=86400");
    assert_eq!(told(&ask(server, "/by-hand").await), "\"llm\";r=880;t=86400");
    assert_eq!(told(&ask(server, "/more").await), "\"llm\";r=760;t=86400");
    assert_eq!(told(&ask(server, "/reset").await), "\"llm\";r=1000;t=86400");
}

#[tokio::test]
async fn a_request_that_has_waited_tells_what_it_gave_back() {
    let empty = Limit::new("empty", Quota::token_bucket(100_000, MINUTE).capacity(0));
    let layer = tollgate::RateLimiter::in_memory().layer(empty).queue(MINUTE);
    let server = settling(layer).await;
    let reply = ask(server, "/set").await;
    assert!(reply.field("server-timing").is_some());
    // The capacity is zero, so nothing is left all the same.
    assert!(told(&reply).starts_with("\"empty\";r=0;"), "{reply:?}");
}

/// Clients that were written for these fields take the reset as the time when all is there again.
#[tokio::test]
async fn the_reset_of_older_dialects_is_when_the_limit_is_whole_again() {
    let clock = ManualClock::new(START);
    let layer = |limit: &Limit| {
        let layer = limiter(&clock).layer(limit).key(ClientIp::peer());
        layer.dialects([Dialect::Draft6, Dialect::XRateLimit])
    };
    let app = Router::new()
        .route("/bucket", post(async || "hello").rate_limit(layer(&REQUESTS)))
        .route("/window", post(async || "hello").rate_limit(layer(&LLM)));
    let server = serve(app).await;
    let in_seconds = |seconds: i64| (START.as_micros() + seconds * 1_000_000 + 999_999) / 1_000_000;
    for (path, left, resets) in [("/bucket", 9, [6, 12]), ("/window", 999, [86_400, 86_400])] {
        for (left, reset) in [left, left - 1].into_iter().zip(resets) {
            let reply = ask(server, path).await;
            assert_eq!(reply.field("ratelimit-remaining"), Some(left.to_string().as_str()));
            assert_eq!(reply.field("ratelimit-reset"), Some(reset.to_string().as_str()));
            let epoch = in_seconds(reset).to_string();
            assert_eq!(reply.field("x-ratelimit-reset"), Some(epoch.as_str()));
        }
    }
    // A refusal names the time at which the request would be admitted.
    for _ in 0..8 {
        assert_eq!(ask(server, "/bucket").await.status, StatusCode::OK);
    }
    let refused = ask(server, "/bucket").await;
    assert_eq!((refused.status.as_u16(), refused.field("ratelimit-reset")), (429, Some("6")));
}

/// It said `t=6`, the time of the one token that is left, beside a `Retry-After` of 36 s.
#[tokio::test]
async fn a_charge_that_is_refused_tells_when_it_would_be_admitted() {
    let charge = async |admission: Admission| admission.charge(7).await;
    let layer = limiter(&ManualClock::new(START)).layer(&REQUESTS).expose();
    let server = serve(Router::new().route("/", post(charge)).rate_limit(layer)).await;
    assert_eq!(told(&ask(server, "/").await), "\"requests\";r=2;t=12");
    let refused = ask(server, "/").await;
    assert_eq!((refused.status.as_u16(), refused.field("retry-after")), (429, Some("36")));
    assert_eq!(told(&refused), "\"requests\";r=1;t=36");
}
