//! Defaults of a limiter, which its layers and the calls in handlers share: header fields, the
//! wording of refusals, what happens while the store fails, and switching it off.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;
use tollgate::backend::{CircuitBreaker, Fallback, Memory};
use tollgate::clock::ManualClock;
use tollgate::fields::{Dialect, ExactWait};
use tollgate::key::header;
use tollgate::middleware::{Admission, Queue};
use tollgate::{
    HOUR, Limit, MINUTE, OnFailure, OnRefusal, Permit, Quota, RateLimitExt, RateLimited,
    RateLimiter, Rule, SECOND, Snapshot,
};
use tollgate_testing::broken::Broken;
use tollgate_testing::web::{Reply, get as ask, serve};
use tollgate_testing::{START, at_once, limiter};
use tower::ServiceExt;

static TWO: Limit = Limit::new("two", Quota::token_bucket(2, MINUTE));
static TEN: Limit = Limit::new("ten", Quota::token_bucket(10, MINUTE));
static EIGHTH: Limit = Limit::new("eighth", Quota::token_bucket(8, SECOND).initial(0));
static QUEUE_ONLY: Limit = Limit::new("queue", Quota::token_bucket(1, HOUR).capacity(0));

/// A handler that asks a limit itself, and shows how it stands.
async fn call(State(limiter): State<RateLimiter>) -> Result<(Snapshot, String), RateLimited> {
    let permit = limiter.limit(&TWO).await?;
    Ok((permit.snapshot(), format!("decided: {}", permit.is_decided())))
}

async fn call_two(
    State(limiter): State<RateLimiter>,
) -> Result<(Permit<'static>, &'static str), RateLimited> {
    Ok((limiter.limit(&TWO).and(&TEN).cost(3).await?.into_owned(), "both"))
}

async fn call_too_much(State(limiter): State<RateLimiter>) -> Result<&'static str, RateLimited> {
    limiter.limit(&TWO).cost(3).await?;
    Ok("too much")
}

fn app(limiter: &RateLimiter) -> Router {
    let routes = Router::new().route("/", get(call)).route("/two", get(call_two));
    routes.route("/large", get(call_too_much)).with_state(limiter.clone())
}

fn seen(reply: &Reply) -> (u16, Option<&str>, Option<&str>) {
    (reply.status.as_u16(), reply.field("ratelimit"), reply.field("retry-after"))
}

#[tokio::test]
async fn a_handler_that_asks_shows_how_its_limits_stand() {
    let server = serve(app(&limiter(&ManualClock::new(START)))).await;
    let first = ask(server, "/").await;
    assert_eq!(seen(&first), (200, Some("\"two\";r=1;t=30"), None));
    assert_eq!(first.field("ratelimit-policy"), Some("\"two\";q=2;w=60"));
    assert_eq!(first.body, "decided: true");

    let both = ask(server, "/two").await;
    assert_eq!(seen(&both), (200, Some("\"two\";r=0;t=30, \"ten\";r=7;t=42"), None));

    let refused = ask(server, "/").await;
    assert_eq!(seen(&refused), (429, Some("\"two\";r=0;t=30"), Some("30")));
    assert!(refused.body.contains("\"violated-policies\":[\"two\"]"), "{}", refused.body);
}

#[tokio::test]
async fn calls_and_layers_of_a_limiter_speak_alike() {
    let plain = limiter(&ManualClock::new(START));
    let limiter = plain
        .clone()
        .dialects([Dialect::Draft7, Dialect::XRateLimit])
        .on_refusal(OnRefusal::plain_text());
    let layered = get(async || "hello").rate_limit(limiter.layer(&TEN).cost(6));
    let server = serve(app(&limiter).route("/layer", layered)).await;

    let first = ask(server, "/").await;
    assert_eq!(first.field("ratelimit"), Some("limit=2, remaining=1, reset=30"));
    assert_eq!(first.field("x-ratelimit-remaining"), Some("1"));
    let layer = ask(server, "/layer").await;
    assert_eq!(layer.field("ratelimit"), Some("limit=10, remaining=4, reset=24"));
    assert_eq!(layer.field("x-ratelimit-remaining"), Some("4"));

    ask(server, "/").await;
    for (path, line) in [
        ("/", "Too Many Requests: refused by `two`, try again in 30 seconds"),
        ("/layer", "Too Many Requests: refused by `ten`, try again in 12 seconds"),
    ] {
        let refused = ask(server, path).await;
        assert_eq!((refused.status.as_u16(), &*refused.body.replace('\n', "")), (429, line));
        assert_eq!(refused.field("content-type"), Some("text/plain; charset=utf-8"));
        assert!(refused.field("x-ratelimit-remaining").is_some(), "{refused:?}");
    }
    let large = ask(server, "/large").await;
    assert_eq!((large.status.as_u16(), large.field("retry-after")), (413, None));
    assert!(large.field("ratelimit-policy").is_some(), "{large:?}");

    // Another handle on the same buckets keeps its own defaults.
    let server = serve(app(&plain)).await;
    let refused = ask(server, "/").await;
    assert_eq!(seen(&refused), (429, Some("\"two\";r=0;t=30"), Some("30")));
}

/// A handler may count what it words, so it is asked once for each response.
#[tokio::test]
async fn a_refusal_of_a_handler_speaks_as_its_limiter_within_any_layer() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let style = |name: &'static str| {
        let log = Arc::clone(&told);
        OnRefusal::handler(move |refused| {
            let error = refused.error().map(|error| error.limit().name().to_owned());
            log.lock().unwrap().push((name, error, refused.retry_after()));
            let mut response = Response::new(name);
            *response.status_mut() = StatusCode::IM_A_TEAPOT;
            response
        })
    };
    let limiter = limiter(&ManualClock::new(START)).on_refusal(style("limiter"));
    let layer = limiter.layer(&TEN).on_refusal(style("layer")).retry_after_date();
    // A middleware between the layer and the handler.
    let trace = from_fn(async |request, next: Next| {
        let mut response = next.run(request).await;
        response.headers_mut().insert("x-trace", HeaderValue::from_static("abc"));
        response
    });
    let server = serve(app(&limiter).layer(trace).layer(layer)).await;

    for _ in 0..2 {
        let admitted = ask(server, "/").await;
        assert_eq!((admitted.status.as_u16(), admitted.field("x-trace")), (200, Some("abc")));
    }
    let refused = ask(server, "/").await;
    assert_eq!((refused.status.as_u16(), &*refused.body), (418, "limiter"));
    assert_eq!((refused.field("x-trace"), refused.field("retry-after")), (Some("abc"), Some("30")));
    // First the member of the layer, then that of the handler.
    assert_eq!(refused.field("ratelimit"), Some("\"ten\";r=7;t=42, \"two\";r=0;t=30"));

    let large = ask(server, "/large").await;
    assert_eq!((large.status.as_u16(), large.field("retry-after")), (418, None));
    let two = || Some("two".to_owned());
    let of_calls = [("limiter", two(), Some(MINUTE / 2)), ("limiter", two(), None)];
    assert_eq!(*told.lock().unwrap(), of_calls);
    // The layer words its own refusals.
    for _ in 0..6 {
        ask(server, "/large").await;
    }
    let of_layer = ask(server, "/").await;
    assert_eq!((of_layer.status.as_u16(), &*of_layer.body), (418, "layer"));
}

/// Routes that speak otherwise than others have a handle of their own.
#[tokio::test]
async fn two_handles_of_a_limiter_word_their_routes_and_share_its_buckets() {
    let limiter = limiter(&ManualClock::new(START));
    let plain = limiter.clone().on_refusal(OnRefusal::plain_text());
    let routes = |limiter| Router::new().nest("/api", app(limiter));
    let server = serve(routes(&limiter).merge(app(&plain))).await;
    assert_eq!([ask(server, "/").await.status, ask(server, "/api").await.status], [200; 2]);
    for (path, content_type) in
        [("/", "text/plain; charset=utf-8"), ("/api", "application/problem+json")]
    {
        let refused = ask(server, path).await;
        assert_eq!(
            (refused.status.as_u16(), refused.field("content-type")),
            (429, Some(content_type))
        );
    }
}

#[tokio::test]
async fn calls_are_admitted_in_an_outage_if_the_limiter_says_so() {
    for later in [false, true] {
        let strict = RateLimiter::new(Broken { later });
        let lenient = strict.clone().on_failure(OnFailure::Admit);
        let layered = get(async || "hello").rate_limit(lenient.layer(&TEN));
        let server = serve(app(&lenient).route("/layer", layered)).await;
        for path in ["/", "/two", "/layer"] {
            let reply = ask(server, path).await;
            assert_eq!(seen(&reply), (200, None, None), "{path}: {}", reply.body);
        }
        // A cost that can never fit is refused without the store.
        assert_eq!(ask(server, "/large").await.status, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(ask(server, "/").await.body, "decided: false");
        let server = serve(app(&strict)).await;
        assert_eq!(seen(&ask(server, "/").await), (503, None, Some("1")));

        let permit = lenient.limit(&TWO).cost(2).await.unwrap();
        assert!(!permit.is_decided());
        assert_eq!(permit.settle(1).await.unwrap().limit().name(), "two");
        let reservation = lenient.limit(&QUEUE_ONLY).cost(500).reserve().await.unwrap();
        assert_eq!(reservation.wait(), std::time::Duration::ZERO);
        assert!(!reservation.ready().await.is_decided());
        // What looks or gives back cannot be answered without the store.
        assert!(lenient.peek(&TWO).await.unwrap_err().is_unavailable());
        assert!(lenient.reset(&TWO).await.unwrap_err().is_unavailable());
    }
}

/// Handlers and layers name the time at which the circuit breaker asks the store again.
#[tokio::test]
async fn an_open_circuit_says_when_to_come_back() {
    let clock = ManualClock::new(START);
    let breaker = CircuitBreaker::new(Broken { later: true }).failures(1);
    let breaker = breaker.pause(SECOND * 7).max_pause(MINUTE).clock(clock.clone());
    let limiter = RateLimiter::new(breaker);
    let layered = |limiter: &RateLimiter| get(async || "hello").rate_limit(limiter.layer(&TEN));
    let plain = limiter.clone().on_refusal(OnRefusal::plain_text());
    let own = OnRefusal::handler(|refused| {
        let text = format!("{:?}", refused.retry_after());
        Response::builder().status(refused.status()).body(text).unwrap()
    });
    let own = limiter.clone().on_refusal(own);
    let routes = app(&limiter).route("/layer", layered(&limiter));
    let routes = routes.route("/plain", layered(&plain)).route("/own", layered(&own));
    let server = serve(routes).await;
    assert_eq!(seen(&ask(server, "/").await), (503, None, Some("1")), "the store was asked");
    clock.advance(SECOND / 2);
    for path in ["/", "/layer", "/plain", "/own"] {
        assert_eq!(seen(&ask(server, path).await), (503, None, Some("7")), "{path}");
    }
    assert_eq!(ask(server, "/own").await.body, "Some(6.5s)");
    let error = limiter.limit(&TWO).await.unwrap_err();
    assert!(error.is_outage() && error.retry_after() == Some(SECOND * 13 / 2));
    clock.advance(SECOND * 7);
    assert_eq!(seen(&ask(server, "/layer").await), (503, None, Some("1")), "a probe");
    assert_eq!(seen(&ask(server, "/layer").await), (503, None, Some("14")));
}

/// Layers charge, queue and give back in the local store, and each limit has its own policy.
#[tokio::test]
async fn layers_go_on_by_a_fallback() {
    static CLOSED: Limit = Limit::new("closed", QUOTA).on_failure(OnFailure::Refuse);
    static OPEN: Limit = Limit::new("open", QUOTA).on_failure(OnFailure::Admit);
    static WAITS: Limit = Limit::new("waits", QUOTA.max_reserved(100));
    const QUOTA: Quota = Quota::token_bucket(4, MINUTE);
    for later in [false, true] {
        let clock = ManualClock::new(START);
        let local = Memory::new().clock(clock.clone());
        let limiter = RateLimiter::new(Fallback::new(Broken { later }, local).nodes(2));
        let hello = || get(async || "hello");
        let app = Router::new()
            .route("/closed", hello().rate_limit(limiter.layer(&CLOSED)))
            .route("/open", hello().rate_limit(limiter.layer(&OPEN)))
            .route("/waits", hello().rate_limit(limiter.layer(&WAITS).queue(Queue::new(MINUTE))))
            .route("/ten", hello().rate_limit(limiter.layer(&TEN)))
            .route("/free", hello().rate_limit(limiter.layer(Rule::new(&TWO).refund_if(|_| true))));
        let server = serve(app).await;
        for _ in 0..5 {
            assert_eq!(seen(&ask(server, "/closed").await), (503, None, Some("1")));
            assert_eq!(seen(&ask(server, "/open").await), (200, None, None));
            assert_eq!(ask(server, "/free").await.status, 200, "it gets its token back");
        }
        assert_eq!(limiter.passed_uncounted(), 5);
        let reply = ask(server, "/ten").await;
        assert_eq!(seen(&reply), (200, Some("\"ten\";r=4;t=24"), None));
        // Two at once, and then no place to wait in.
        let waits = [ask(server, "/waits").await, ask(server, "/waits").await];
        assert!(waits.iter().all(|reply| reply.status == 200));
        let refused = ask(server, "/waits").await;
        assert_eq!((refused.status.as_u16(), refused.field("retry-after")), (429, Some("30")));
        clock.advance(MINUTE / 2);
        assert_eq!(ask(server, "/waits").await.status, 200);
    }
}

#[tokio::test]
async fn a_limiter_that_is_switched_off_limits_nothing_and_shows_nothing() {
    let on = limiter(&ManualClock::new(START));
    let off = on.clone().enabled(false);
    let queued = off.layer(&QUEUE_ONLY).key(header("x-user")).queue(Queue::new(SECOND)).expose();
    let left = async |admission: Admission| format!("{} limits", admission.snapshots().len());
    let app = app(&off).route("/queued", get(left).rate_limit(queued));
    let server = serve(app).await;
    for _ in 0..20 {
        for path in ["/", "/two", "/large", "/queued"] {
            let reply = ask(server, path).await;
            assert_eq!(seen(&reply), (200, None, None), "{path}: {}", reply.body);
            assert_eq!(reply.field("ratelimit-policy"), None);
        }
    }
    // Nor does it count: another handle finds the bucket full.
    assert_eq!(at_once(on.peek(&TWO)).unwrap().remaining(), 2);
    assert_eq!(at_once(on.clone().enabled(true).limit(&TWO)).unwrap().remaining(), 1);
    assert_eq!(at_once(on.limit(&TWO)).unwrap().remaining(), 0);

    let permit = at_once(off.limit(&TWO).cost(1_000)).unwrap();
    assert!(!permit.is_decided());
    at_once(permit.refund()).unwrap();
    let reservation = at_once(off.limit(&TWO).and(&QUEUE_ONLY).cost(9).reserve()).unwrap();
    assert!(!at_once(reservation.ready()).is_decided());
    assert_eq!(at_once(off.peek(&TWO)).unwrap().remaining(), 2);
    at_once(off.reset(&TWO)).unwrap();
    at_once(off.block(&TWO, HOUR)).unwrap();
    at_once(off.penalize(&TWO, 5)).unwrap();
    assert_eq!(at_once(on.peek(&TWO)).unwrap().remaining(), 0);
}

/// A handle that was switched off before it got its fields showed limits that nothing holds to.
#[tokio::test]
async fn a_limiter_that_is_switched_off_shows_nothing_in_any_dialect() {
    let off = limiter(&ManualClock::new(START)).enabled(false);
    for off in [
        off.clone().dialects(Dialect::Draft11),
        off.clone().on_refusal(OnRefusal::plain_text()).dialects(Dialect::XRateLimit),
        off.dialects([Dialect::Draft7, Dialect::XRateLimit]).on_failure(OnFailure::Admit),
    ] {
        let layered = get(async || "hello").rate_limit(off.layer(&TEN));
        let peeked = get(async |State(limiter): State<RateLimiter>| {
            limiter.peek(&TWO).await.map(|snapshot| (snapshot, "peeked"))
        });
        let app = app(&off).route("/layer", layered);
        let server = serve(app.route("/peek", peeked.with_state(off))).await;
        for path in ["/", "/two", "/layer", "/peek"] {
            let reply = ask(server, path).await;
            let shown = reply.headers.keys().filter(|name| name.as_str().contains("ratelimit"));
            assert_eq!((reply.status.as_u16(), shown.count()), (200, 0), "{path}: {reply:?}");
        }
    }
}

#[tokio::test]
async fn a_layer_that_is_switched_off_lets_all_through_and_its_neighbours_count() {
    let limiter = limiter(&ManualClock::new(START));
    let layered = |on| get(async || "hello").rate_limit(limiter.layer(&TWO).enabled(on));
    let app = Router::new().route("/on", layered(true)).route("/off", layered(false));
    let server = serve(app.layer(limiter.layer(&TEN))).await;
    for left in (0..5).rev() {
        let off = ask(server, "/off").await;
        let told = format!("\"ten\";r={};t={}", left + 5, 6 * (left + 5));
        assert_eq!(seen(&off), (200, Some(told.as_str()), None));
    }
    let first = ask(server, "/on").await;
    assert_eq!(seen(&first), (200, Some("\"ten\";r=4;t=24, \"two\";r=1;t=30"), None));
}

/// A `RetryLayer` in the same process came back up to a second late.
#[tokio::test]
async fn a_refusal_of_a_handler_has_the_exact_wait() {
    let limiter = limiter(&ManualClock::new(START));
    let routes = |limiter: &RateLimiter| {
        let handler =
            async |State(limiter): State<RateLimiter>| limiter.limit(&EIGHTH).await.map(drop);
        Router::new().route("/", get(handler)).with_state(limiter.clone())
    };
    let exact = async |app: Router| {
        let response = app.oneshot(Request::new(Body::empty())).await.unwrap();
        assert!(response.headers().contains_key("retry-after"));
        response.extensions().get().map(ExactWait::wait)
    };
    assert_eq!(exact(routes(&limiter)).await, Some(SECOND / 8));
    let plain = limiter.clone().on_refusal(OnRefusal::plain_text());
    assert_eq!(exact(routes(&plain).layer(plain.layer(&TEN))).await, Some(SECOND / 8));
    // A style that names a time of its own means that time.
    let own = OnRefusal::handler(|_| {
        http::Response::builder().status(429).header("retry-after", "9").body("").unwrap()
    });
    assert_eq!(exact(routes(&limiter.on_refusal(own))).await, None);
}

/// What `into_response` makes is sent as it is; a stream that has to be waited for is not.
#[tokio::test]
async fn a_handler_may_return_what_axum_makes_of_a_value() {
    let limiter = limiter(&ManualClock::new(START));
    let json = OnRefusal::handler(|refused| {
        (refused.status(), Json(json!({ "left": refused.snapshots()[0].remaining() })))
            .into_response()
    });
    let stream = OnRefusal::handler(|refused| {
        let never = futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>();
        (refused.status(), Body::from_stream(never)).into_response()
    });
    let bytes = OnRefusal::handler(|_| Response::new(b"busy".to_vec()));
    let layered =
        |words| get(async || "hello").rate_limit(limiter.layer(&EIGHTH).on_refusal(words));
    let routes = Router::new().route("/json", layered(json)).route("/stream", layered(stream));
    let server = serve(routes.route("/bytes", layered(bytes))).await;
    let reply = ask(server, "/json").await;
    assert_eq!(seen(&reply), (429, Some("\"eighth\";r=0;t=1"), Some("1")));
    assert_eq!(reply.field("content-type"), Some("application/json"));
    assert_eq!(reply.body, r#"{"left":0}"#);
    let reply = ask(server, "/stream").await;
    assert_eq!((reply.status.as_u16(), reply.body.as_str()), (429, ""));
    assert_eq!(ask(server, "/bytes").await.body, "busy");
}
