//! A mistake in how a limit is set up says what is missing and the way out, where a developer reads
//! it: in a panic, in an error, in the log, and in the response of a debug build.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::connect_info::MockConnectInfo;
use axum::response::Response;
use axum::routing::{
    MethodFilter, MethodRouter, any, any_service, get, get_service, on, on_service,
};
use http::{Method, Request, StatusCode};
use tollgate::clock::ManualClock;
use tollgate::key::{ClientIp, header};
use tollgate::middleware::OnRefusal;
use tollgate::{
    HOUR, Limit, MINUTE, Quota, RateLimitExt, RateLimitLayer, RateLimiter, Rule, SECOND,
};
use tollgate_testing::limiter;
use tower::ServiceExt;

static ONE: Limit = Limit::new("one", Quota::token_bucket(1, HOUR));
static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(10, SECOND).capacity(0));
static SHARDED: Limit =
    Limit::new("sharded", Quota::token_bucket(10, SECOND).capacity(0).shards(2));

async fn send(app: &Router, method: Method) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri("/").body(Body::empty()).unwrap();
    let response: Response = app.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), 10_000).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn panic_message<T>(panics: impl FnOnce() -> T) -> String {
    let payload = catch_unwind(AssertUnwindSafe(panics)).err().expect("it panics");
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().expect("a text")).to_owned(),
    }
}

// A limit without capacity and without a queue.

#[tokio::test]
async fn the_error_of_a_capacity_of_0_names_the_queue_as_the_fix() {
    let limiter = RateLimiter::in_memory();
    for limit in [&SPACED, &SHARDED] {
        let error = limiter.limit(limit).await.unwrap_err();
        assert!(error.is_too_large());
        assert_eq!(
            error.to_string(),
            format!(
                "cost of 1 can never fit limit `{}` (its capacity is 0, so each request has to wait \
                 for its tokens: use `queue` on the layer or `reserve` on the call, or raise its \
                 capacity)",
                limit.name()
            )
        );
        // The way out works.
        assert!(limiter.limit(limit).reserve().await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_capacity_0_runs_in_a_layer_with_a_queue() {
    let limiter = RateLimiter::in_memory();
    let app = |layer: RateLimitLayer<Vec<Rule>>| {
        Router::new().route("/", get(async || "hello").rate_limit(layer))
    };
    assert_eq!(send(&app(limiter.layer(&SPACED).into()), Method::GET).await.0, 413);
    let queued = limiter.layer(&SPACED).queue(Duration::from_secs(1));
    assert_eq!(send(&app(queued.into()), Method::GET).await.0, 200);
}

// Routes that a limit does not fit.

#[test]
fn a_limit_on_a_route_without_a_handler_panics_with_the_way_out() {
    let layer = RateLimiter::in_memory().layer(&ONE);
    let of_route = layer.clone();
    let told = panic_message(move || MethodRouter::<()>::new().rate_limit(of_route));
    assert_eq!(
        told,
        "this route has no method and no fallback yet, so `rate_limit` would limit nothing (add the \
         handler first, as in `get(handler).rate_limit(..)`)"
    );
    let told = panic_message(move || Router::<()>::new().rate_limit(layer));
    assert_eq!(
        told,
        "this router has no routes yet, so `rate_limit` would limit nothing (add the routes first, \
         or use `.layer(..)`, which limits the router's fallback)"
    );
}

#[tokio::test]
async fn a_router_of_a_fallback_alone_is_limited_by_layer() {
    let fallback = || Router::<()>::new().fallback(async || "hello");
    let layer = RateLimiter::in_memory().layer(&ONE);
    let of_panic = layer.clone();
    let told = panic_message(move || fallback().rate_limit(of_panic));
    assert!(told.contains("use `.layer(..)`"), "{told}");
    let app = fallback().layer(layer);
    assert_eq!(send(&app, Method::GET).await.0, 200);
    assert_eq!(send(&app, Method::GET).await.0, 429);
}

/// Each shape of a route that axum has, with a method that it answers. `any(..)` was a panic in axum's
/// words once, and of `any(..).get(..)` the handler of `any` was not limited.
#[tokio::test]
async fn every_shape_of_a_route_is_limited() {
    let hello = async || "hello";
    let service = || {
        tower::service_fn(async |_: Request<Body>| {
            Ok::<_, std::convert::Infallible>(Response::new(Body::from("hello")))
        })
    };
    let shapes: [(&str, Method, MethodRouter); 12] = [
        ("get", Method::GET, get(hello)),
        ("get, by HEAD", Method::HEAD, get(hello)),
        ("get.post, by POST", Method::POST, get(hello).post(hello)),
        ("any", Method::DELETE, any(hello)),
        ("any.get, by GET", Method::GET, any(hello).get(hello)),
        ("any.get, by PUT", Method::PUT, any(hello).get(hello)),
        ("any_service", Method::PATCH, any_service(service())),
        ("get_service", Method::GET, get_service(service())),
        ("on", Method::PUT, on(MethodFilter::PUT, hello)),
        ("on_service", Method::GET, on_service(MethodFilter::GET, service())),
        ("get.fallback", Method::PUT, get(hello).fallback(hello)),
        ("fallback alone", Method::GET, MethodRouter::new().fallback(hello)),
    ];
    for (shape, method, route) in shapes {
        let clock = ManualClock::default();
        let app = Router::new().route("/", route.rate_limit(limiter(&clock).layer(&ONE)));
        assert_eq!(send(&app, method.clone()).await.0, 200, "{shape}");
        assert_eq!(send(&app, method).await.0, 429, "{shape}");
    }
}

// Keys that are missing in a test, where no log is read.

fn app(layer: impl Into<RateLimitLayer<Vec<Rule>>>) -> Router {
    Router::new().route("/", get(async || "hello")).layer(layer.into())
}

const NO_ADDRESS: &str = "no client address: `ConnectInfo` is missing (serve the router with \
                          `into_make_service_with_connect_info::<SocketAddr>()`, add a layer of \
                          `MockConnectInfo` in tests, or insert a `SocketAddr` as a request \
                          extension; tonic: `ClientIp::peer_from`; behind a proxy on a Unix socket, \
                          which has no address: `ClientIp::x_forwarded_for(1)`)";

/// What a debug build adds to a body, and a release build does not.
fn of_debug(text: String) -> String {
    if cfg!(debug_assertions) { text } else { String::new() }
}

#[tokio::test]
async fn a_test_without_a_peer_address_reads_the_way_out_in_the_response() {
    let by_client = || RateLimiter::in_memory().layer(&ONE).key(ClientIp::peer());
    let (status, body) = send(&app(by_client()), Method::GET).await;
    let detail = of_debug(format!(",\"detail\":\"{NO_ADDRESS}\""));
    assert_eq!(status, 500);
    assert_eq!(body, format!("{{\"title\":\"Internal Server Error\",\"status\":500{detail}}}"));
    // The way out works.
    let mock = MockConnectInfo(SocketAddr::from(([192, 0, 2, 1], 5123)));
    assert_eq!(send(&app(by_client()).layer(mock), Method::GET).await.0, 200);
}

/// The text advised the setting that the layer already had.
#[tokio::test]
async fn a_proxy_on_a_unix_socket_that_writes_no_field_is_named_as_the_cause() {
    let by_client = RateLimiter::in_memory().layer(&ONE).key(ClientIp::x_forwarded_for(1));
    let (status, body) = send(&app(by_client), Method::GET).await;
    let detail = of_debug(
        ",\"detail\":\"no client address: none can be read from `x-forwarded-for`, and the peer has \
         none (have the proxy write the field, as by `proxy_set_header` of nginx; on a TCP socket, \
         serve the router with `into_make_service_with_connect_info::<SocketAddr>()`)\""
            .to_owned(),
    );
    assert_eq!(status, 500);
    assert_eq!(body, format!("{{\"title\":\"Internal Server Error\",\"status\":500{detail}}}"));
}

/// As the table of the guide on layers says.
#[tokio::test]
async fn a_method_that_is_added_after_the_limit_is_not_limited() {
    let hello = async || "hello";
    let limit = RateLimiter::in_memory().layer(&ONE).key(tollgate::key::global());
    let app = Router::new().route("/", get(hello).rate_limit(limit).post(hello));
    for (method, second) in [(Method::GET, 429), (Method::POST, 200)] {
        assert_eq!(send(&app, method.clone()).await.0, 200, "{method}");
        assert_eq!(send(&app, method.clone()).await.0, second, "{method}");
    }
}

#[tokio::test]
async fn any_missing_key_is_explained_in_the_response_of_the_layer() {
    let limiter = RateLimiter::in_memory();
    let by_user = || limiter.layer(&ONE).key(header("x-user"));
    let (status, body) =
        send(&app(by_user().on_refusal(OnRefusal::plain_text())), Method::GET).await;
    let detail = of_debug(
        ": no key: the request has no `x-user` header (send it, or choose by `missing_key` what \
         happens without it)"
            .to_owned(),
    );
    assert_eq!((status.as_u16(), body), (400, format!("Bad Request{detail}\n")));
    // Behind a rule of another key, too, and as one rule of several.
    let (status, body) = send(&app(by_user().and(Rule::new(&SPACED))), Method::GET).await;
    assert_eq!(status, 400);
    assert_eq!(
        body.contains("no key: the request has no `x-user` header"),
        cfg!(debug_assertions),
        "{body}"
    );
}

/// A status that the layer was told to answer with is meant for clients.
#[tokio::test]
async fn a_key_that_clients_may_leave_out_is_answered_as_in_production() {
    let by_user = RateLimiter::in_memory()
        .layer(Rule::new(&ONE).key(header("x-user")).missing_key(StatusCode::UNAUTHORIZED));
    let (status, body) = send(&app(by_user), Method::GET).await;
    assert_eq!(
        (status.as_u16(), body.as_str()),
        (401, "{\"title\":\"Unauthorized\",\"status\":401}")
    );
}

/// Nor is what a handler of refusals answers.
#[tokio::test]
async fn a_handler_of_refusals_replaces_the_detail() {
    let by_client =
        RateLimiter::in_memory().layer(&ONE).key(ClientIp::peer()).on_refusal(OnRefusal::handler(
            |refused| Response::builder().status(refused.status()).body("sorry").unwrap(),
        ));
    let (status, body) = send(&app(by_client), Method::GET).await;
    assert_eq!((status.as_u16(), body.as_str()), (500, "sorry"));
}

/// A shadow rule without a key adds nothing to the response: the request goes on.
#[tokio::test]
async fn a_shadow_without_a_key_changes_no_response() {
    let shadow = Rule::new(&ONE).key(ClientIp::peer()).shadow();
    let per_minute = Limit::new("all", Quota::token_bucket(5, MINUTE));
    let layer = RateLimiter::in_memory().layer(shadow).and(&per_minute);
    assert_eq!(send(&app(layer), Method::GET).await, (StatusCode::OK, "hello".to_owned()));
}
