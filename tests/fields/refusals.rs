//! How the layer answers a request that does not run: in its own words, or in those of a handler.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tollgate::clock::ManualClock;
use tollgate::fields::Dialect;
use tollgate::key::{Head, header};
use tollgate::middleware::{Queue, RefusedRequest};
use tollgate::{
    Limit, MINUTE, OnRefusal, Quota, RateLimitLayer, RateLimiter, Rule, SECOND, Snapshot,
};
use tollgate_testing::broken::Broken;
use tollgate_testing::queue::Late;
use tollgate_testing::web::{Reply, grpc_call};
use tollgate_testing::{START, limiter};
use tower::{Layer, ServiceExt, service_fn};

static TWO: Limit = Limit::new("two", Quota::token_bucket(2, MINUTE));
static SLOW: Limit = Limit::new("slow", Quota::token_bucket(1, MINUTE));

fn cost(head: &Head<'_>) -> u64 {
    head.headers().get("x-cost").map_or(1, |cost| cost.to_str().unwrap().parse().unwrap())
}

async fn ask<N>(layer: &RateLimitLayer<N>, path: &str, fields: &[(&str, &str)]) -> Reply {
    let request =
        fields.iter().fold(Request::builder().uri(path), |all, one| all.header(one.0, one.1));
    answer(layer, request.body(()).unwrap()).await
}

async fn answer<N>(layer: &RateLimitLayer<N>, request: Request<()>) -> Reply {
    let inner = service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello")))
    });
    Reply::read(layer.layer(inner).oneshot(request).await.unwrap()).await
}

#[tokio::test]
async fn plain_text_names_the_limit_and_the_wait() {
    let in_memory = || limiter(&ManualClock::new(START));
    let plain = |layer: RateLimitLayer| layer.on_refusal(OnRefusal::plain_text());
    let by_cost = Rule::new(&TWO).cost_with(cost);
    let layer = plain(in_memory().layer(by_cost.clone()));
    let both: RateLimitLayer<Vec<Rule>> = plain(in_memory().layer(&SLOW)).and(by_cost.clone());
    let second = Limit::new("second", Quota::token_bucket(1, SECOND));
    let second = plain(in_memory().layer(second));
    let (layer, second) = (&layer.into(), &second.into());
    for layer in [layer, &both, second] {
        assert_eq!(ask(layer, "/", &[("x-cost", "1")]).await.body, "hello");
    }
    for (layer, cost, wanted) in [
        (layer, "2", "refused by `two`, try again in 30 seconds"),
        (&both, "1", "refused by `slow`, try again in 60 seconds"),
        (second, "1", "refused by `second`, try again in 1 second"),
        (layer, "3", "the request costs more than the limit can ever grant (`two`)"),
    ] {
        let reply = ask(layer, "/", &[("x-cost", cost)]).await;
        let (status, title) = match cost {
            "3" => (StatusCode::PAYLOAD_TOO_LARGE, "Payload Too Large"),
            _ => (StatusCode::TOO_MANY_REQUESTS, "Too Many Requests"),
        };
        assert_eq!((reply.status, reply.body.clone()), (status, format!("{title}: {wanted}\n")));
        assert_eq!(reply.field("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(reply.field("cache-control"), Some("no-store"));
        assert!(reply.field("ratelimit-policy").is_some());
    }
    let by_user = plain(in_memory().layer(by_cost.key(header("x-user"))));
    // A debug build adds what is missing.
    assert!(ask(&by_user, "/", &[]).await.body.starts_with("Bad Request"));
    let broken = RateLimiter::new(Broken { later: true }).layer(&TWO);
    let reply = ask(&plain(broken), "/", &[]).await;
    assert_eq!((reply.status.as_u16(), reply.body.as_str()), (503, "Service Unavailable\n"));
}

/// Notes what a handler was told, and answers with that.
fn noting() -> (OnRefusal, Arc<Mutex<Vec<String>>>) {
    let notes = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&notes);
    let handler = OnRefusal::handler(move |refused: &RefusedRequest<'_>| {
        let snapshot = |one: &Snapshot| {
            let wait = one.wait().expect("a wait helps");
            format!("{} {} {wait:?}", one.limit().name(), one.remaining())
        };
        let snapshots: Vec<_> = refused.snapshots().iter().map(snapshot).collect();
        let note = format!(
            "{} {} [{}] after {:?}{}",
            refused.head().expect("a layer has the head").uri(),
            refused.status().as_u16(),
            snapshots.join(", "),
            refused.retry_after(),
            refused.error().map_or(String::new(), |error| format!(" {error}")),
        );
        noted.lock().unwrap().push(note);
        let mut response = Response::new("sorry");
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        response
    });
    (handler, notes)
}

/// Whether the store answers at once or later, the handler sees the head and what has refused.
#[tokio::test(start_paused = true)]
async fn a_handler_sees_the_head_and_every_limit_that_has_refused() {
    let (_late, at_once, later) = {
        let (late, later, at_once) = Late::new();
        (late, at_once, later)
    };
    for (limiter, name) in [(at_once, "at-once"), (later, "later")] {
        let (handler, notes) = noting();
        let layer = limiter
            .layer(Rule::new(&TWO).key_with(move |_| name).cost_with(cost))
            .and(Rule::new(&SLOW).key_with(move |_| name))
            .on_refusal(handler);
        assert_eq!(ask(&layer, "/first", &[]).await.status, 200);
        let reply = ask(&layer, "/second", &[("x-cost", "2")]).await;
        assert_eq!((reply.status, reply.body.as_str()), (StatusCode::IM_A_TEAPOT, "sorry"));
        assert_eq!(reply.field("retry-after"), Some("60"));
        assert_eq!(reply.field("ratelimit"), Some("\"two\";r=1;t=30, \"slow\";r=0;t=60"));
        assert_eq!(reply.field("ratelimit-policy"), Some("\"two\";q=2;w=60, \"slow\";q=1;w=60"));
        let reply = ask(&layer, "/third", &[("x-cost", "3")]).await;
        assert_eq!((reply.status, reply.field("retry-after")), (StatusCode::IM_A_TEAPOT, None));
        assert_eq!(reply.field("ratelimit-policy"), Some("\"two\";q=2;w=60"));
        let notes = notes.lock().unwrap();
        assert_eq!(notes.len(), 2);
        assert_eq!(notes[0], "/second 429 [two 1 30s, slow 0 60s] after Some(60s)");
        let (told, error) = notes[1].split_at("/third 413 [] after None ".len());
        assert_eq!(told, "/third 413 [] after None ");
        assert!(error.contains("limit `two`"), "{error}");
    }
}

#[tokio::test]
async fn a_handler_words_every_answer_of_the_layer() {
    let (handler, notes) = noting();
    let by_user = Rule::new(&TWO).key(header("x-user"));
    let unauthorized = by_user.clone().missing_key(StatusCode::UNAUTHORIZED);
    let layers = [
        limiter(&ManualClock::new(START)).layer(by_user),
        limiter(&ManualClock::new(START)).layer(unauthorized),
        RateLimiter::new(Broken { later: false }).layer(&TWO),
        RateLimiter::new(Broken { later: true }).layer(&TWO),
        limiter(&ManualClock::new(START))
            .layer(&TWO)
            .cost(2)
            .queue(Queue::new(MINUTE).max_waiters(0)),
    ];
    for layer in layers {
        let layer = layer.on_refusal(handler.clone());
        let _ = ask(&layer, "/first", &[]).await;
        let reply = ask(&layer, "/", &[("x-user", "")]).await;
        assert_eq!(reply.body, "sorry");
    }
    let notes = notes.lock().unwrap();
    let seen: Vec<_> = notes.iter().filter_map(|note| note.strip_prefix("/ ")).collect();
    let failed = "503 [] after Some(1s)";
    let full = "503 [two 0 60s] after Some(60s)";
    assert_eq!(seen, ["400 [] after None", "400 [] after None", failed, failed, full]);
    let first = |note: &str| notes.contains(&format!("/first {note}"));
    assert!(first("400 [] after None") && first("401 [] after None"), "{notes:?}");
}

#[tokio::test]
async fn fields_that_a_handler_has_set_stay() {
    let handler = OnRefusal::handler(|_| {
        let response = Response::builder().status(429).header("retry-after", "soon");
        let response = response.header("ratelimit", "mine").header("x-ratelimit-limit", "7");
        response.header("cache-control", "private").body(String::from("mine")).unwrap()
    });
    let layer = limiter(&ManualClock::new(START)).layer(&TWO).cost(2).on_refusal(handler);
    let layer = layer.dialects([Dialect::Draft11, Dialect::XRateLimit]);
    assert_eq!(ask(&layer, "/", &[]).await.status, 200);
    let reply = ask(&layer, "/", &[]).await;
    assert_eq!(reply.field("retry-after"), Some("soon"));
    assert_eq!(reply.field("ratelimit"), Some("mine"));
    assert_eq!(reply.field("ratelimit-policy"), Some("\"two\";q=2;w=60"));
    assert_eq!(reply.field("x-ratelimit-limit"), Some("7"));
    assert_eq!(reply.field("x-ratelimit-remaining"), Some("0"));
    assert_eq!(reply.field("cache-control"), Some("private"));
    assert_eq!(reply.field("content-type"), None);
}

/// A 503 without a decision has a date as well, by the clock of this machine.
#[tokio::test]
async fn a_failing_store_is_answered_with_a_retry_date_too() {
    let layer = RateLimiter::new(Broken { later: false }).layer(&TWO);
    let before = std::time::SystemTime::now();
    let reply = ask(&layer.retry_after_date(), "/", &[]).await;
    let told = httpdate::parse_http_date(reply.field("retry-after").unwrap()).unwrap();
    assert!(told.duration_since(before).unwrap() >= Duration::from_secs(1));
    let after = std::time::SystemTime::now() + Duration::from_secs(2);
    assert!(told <= after);
}

/// A status of gRPC, whenever the store answers or fails to.
#[tokio::test(start_paused = true)]
async fn grpc_requests_get_a_grpc_status_at_once_and_later() {
    let grpc = || grpc_call("application/grpc", ());
    for later in [false, true] {
        let layer = RateLimiter::new(Broken { later }).layer(&TWO);
        let reply = answer(&layer.on_refusal(OnRefusal::plain_text()), grpc()).await;
        assert_eq!((reply.status, reply.body.as_str()), (StatusCode::OK, ""));
        assert_eq!(reply.field("grpc-status"), Some("14"));
        assert_eq!(reply.field("grpc-message"), Some("Service Unavailable"));
        assert_eq!(reply.field("retry-after"), Some("1"));
        assert!(reply.field("grpc-status-details-bin").is_some());
    }
    let (_late, later, _) = Late::new();
    let layer = later.layer(&SLOW);
    assert_eq!(answer(&layer, grpc()).await.body, "hello");
    let reply = answer(&layer, grpc()).await;
    assert_eq!((reply.status, reply.field("grpc-status")), (StatusCode::OK, Some("8")));
    assert_eq!(reply.field("ratelimit"), Some("\"slow\";r=0;t=60"));
}

#[tokio::test(start_paused = true)]
async fn the_fields_of_a_request_that_has_waited_skip_the_shadow() {
    static SHADOW: Limit = Limit::new("shadow", Quota::token_bucket(10, MINUTE));
    static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(10, SECOND).capacity(0));
    let limiter = tollgate_testing::queue::paused();
    let layer = limiter.layer(Rule::new(&SHADOW).shadow()).and(&SPACED).queue(SECOND);
    let reply = ask(&layer, "/", &[]).await;
    assert_eq!(reply.field("server-timing"), Some("queue;dur=100.000;desc=\"spaced\""));
    assert!(reply.field("ratelimit").is_some_and(|told| told.starts_with("\"spaced\";")));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_has_waited_is_told_which_of_its_limits_was_short() {
    static CLIENT: Limit = Limit::new("client", Quota::token_bucket(100, MINUTE));
    static SLOWER: Limit = Limit::new("slower", Quota::token_bucket(1, SECOND).capacity(0));
    static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(10, SECOND).capacity(0));
    for limiter in
        [tollgate_testing::queue::paused(), tollgate_testing::shared::Shared::new().limiter()]
    {
        let layer = limiter.layer(&CLIENT).and(&SPACED).and(&SLOWER).queue(SECOND);
        let reply = ask(&layer, "/", &[]).await;
        assert_eq!(reply.field("server-timing"), Some("queue;dur=1000.000;desc=\"slower\""));
        // The client's bucket paid one token at the start. The token that it has gained in the
        // second is not counted: other requests may have taken it.
        let told = reply.field("ratelimit").unwrap();
        assert!(told.starts_with("\"client\";r=99;"), "{told}");
        assert!(told.contains("\"spaced\";r=0;") && told.contains("\"slower\";r=0;"), "{told}");
    }
}

/// A map of header fields with no room for any more.
fn full() -> http::HeaderMap {
    let mut headers = http::HeaderMap::new();
    let name = |nth: u32| http::HeaderName::try_from(format!("x-{nth}")).unwrap();
    let mut nth = 0;
    while headers.try_insert(name(nth), http::HeaderValue::from(nth)).is_ok() {
        nth += 1;
    }
    headers
}

#[tokio::test(start_paused = true)]
async fn a_response_with_no_room_for_more_is_left_as_it_is() {
    let fields = full();
    let no_room = fields.clone();
    let handler = OnRefusal::handler(move |refused| {
        let mut response = Response::new("");
        *response.status_mut() = refused.status();
        *response.headers_mut() = no_room.clone();
        response
    });
    let limiter = tollgate_testing::queue::paused();
    let by_user = Rule::new(&TWO).key(header("x-user"));
    let layer = |rule: Rule| limiter.layer(rule).on_refusal(handler.clone());
    let costly = by_user.clone().cost(2);
    let rejected = costly.clone().missing_key(StatusCode::SERVICE_UNAVAILABLE);
    for rule in [rejected, costly.missing_key_shared()] {
        let reply = ask(&layer(rule), "/", &[]).await;
        assert_eq!(reply.headers.len(), if reply.status == 200 { 2 } else { fields.len() });
    }
    let reply = ask(&layer(by_user.missing_key_shared()), "/", &[]).await;
    assert_eq!((reply.status.as_u16(), reply.headers.len()), (429, fields.len()));

    static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(10, SECOND).capacity(0));
    let inner = service_fn(|_: Request<()>| {
        let mut response = Response::new(());
        *response.headers_mut() = full();
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let service = limiter.layer(&SPACED).queue(SECOND).layer(inner);
    let response = service.oneshot(Request::new(())).await.unwrap();
    assert_eq!(response.headers().len(), fields.len());
}
