//! Clients that try to get more than their limit by how they write a request: each attack is played
//! by a real client against a real server.
//!
//! Time stands still, so each request that runs above the limit is a fault.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use axum::routing::{
    MethodFilter, MethodRouter, any, any_service, get, get_service, on, post, put,
};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode, Version};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tollgate::clock::ManualClock;
use tollgate::fields::Dialect;
use tollgate::key::{
    ClientIp, Head, Key, KeyError, KeyExtractor, Networks, api_key, bearer, cookie, header,
};
use tollgate::middleware::{Queue, ResponseHead};
use tollgate::routes::{RateLimitExt, extract};
use tollgate::{Limit, MINUTE, OnRefusal, Quota, RateLimitLayer, RateLimited, RateLimiter, Rule};
use tollgate_testing::broken::Broken;
use tollgate_testing::web::{Reply, send, send_over, serve};
use tollgate_testing::{START, limiter};
use tower::ServiceExt;

static TWO: Limit = Limit::new("two", Quota::token_bucket(2, MINUTE));

// Blanks around the value of a field. Parsers of HTTP/1 strip them. HTTP/2 forbids them (RFC 9113,
// section 8.2.1), and the `h2` crate passes them on.

/// What a client can write in front of a value and behind it.
const BLANKS: [(&str, &str); 9] = [
    ("", ""),
    (" ", ""),
    ("\t", ""),
    ("", " "),
    ("", "\t"),
    (" ", "\t"),
    ("\t \t", ""),
    ("", "     "),
    ("\t", " \t "),
];

fn by(key: impl KeyExtractor) -> Rule {
    Rule::new(&TWO).key(key)
}

fn this_machine() -> Networks {
    Networks::new(["127.0.0.1"])
}

/// The statuses of requests over HTTP/2 with these values of a field.
async fn statuses(rule: Rule, field: &str, values: impl IntoIterator<Item = String>) -> Vec<u16> {
    let layer = limiter(&ManualClock::new(START)).layer(rule);
    let server = serve(Router::new().route("/", get(async || "hello")).layer(layer)).await;
    let mut statuses = Vec::new();
    for value in values {
        let fields = [(field, &*value)];
        let reply = send_over(Version::HTTP_2, server, Method::GET, "/", &fields).await;
        statuses.push(reply.status.as_u16());
    }
    statuses
}

#[tokio::test]
async fn a_server_of_http_2_passes_blanks_on() {
    let echo = async |headers: HeaderMap| headers["x-key"].as_bytes().to_vec();
    let server = serve(Router::new().route("/", get(echo))).await;
    for (before, after) in BLANKS {
        let value = format!("{before}sesame{after}");
        let fields = [("x-key", &*value)];
        let reply = send_over(Version::HTTP_2, server, Method::GET, "/", &fields).await;
        assert_eq!(reply.body, value);
    }
}

/// Each spelling had a bucket of its own: 9 of 9 requests ran under a limit of 2.
#[tokio::test]
async fn blanks_around_a_value_make_no_new_key() {
    let mut admitted = Vec::new();
    for (name, rule, field, value) in [
        ("header", by(header("x-key")), "x-key", "sesame"),
        ("header, no case", by(header("x-key").ignore_case()), "x-key", "Sesame"),
        ("header, length", by(header("x-key").max_len(6)), "x-key", "sesame"),
        ("header and peer", by((header("x-key"), ClientIp::peer())), "x-key", "sesame"),
        ("header or peer", by(header("x-key").or(ClientIp::peer())), "x-key", "sesame"),
        ("api_key", by(api_key("x-key")), "x-key", "sesame"),
        ("api_key, length", by(api_key("x-key").max_len(6)), "x-key", "sesame"),
        ("bearer", by(bearer()), "authorization", "Bearer sesame"),
        ("bearer, length", by(bearer().max_len(13)), "authorization", "Bearer sesame"),
        ("cookie", by(cookie("session")), "cookie", "session=sesame"),
        ("one of two cookies", by(cookie("session")), "cookie", "a=b; session=sesame"),
        ("address", by(ClientIp::header("x-ip", this_machine())), "x-ip", "203.0.113.7"),
        (
            "x-forwarded-for",
            by(ClientIp::x_forwarded_for(this_machine())),
            "x-forwarded-for",
            "203.0.113.7",
        ),
        ("forwarded", by(ClientIp::forwarded(this_machine())), "forwarded", "for=203.0.113.7"),
    ] {
        let values = BLANKS.map(|(before, after)| format!("{before}{value}{after}"));
        let statuses = statuses(rule, field, values).await;
        admitted.push((name, statuses.iter().filter(|&&status| status == 200).count()));
        assert_eq!(statuses.len(), BLANKS.len());
    }
    assert!(admitted.iter().all(|&(_, count)| count == 2), "of nine requests: {admitted:?}");
}

/// Servers differ in the blanks that they accept between the scheme and the token. With anything
/// but a single space, the token counted as missing, which may exempt a request.
#[tokio::test]
async fn blanks_before_a_token_do_not_change_the_key() {
    let rule = by(bearer()).missing_key_exempt();
    let between = [" ", "  ", "\t", " \t", "\t "].map(|blanks| format!("Bearer{blanks}sesame"));
    assert_eq!(statuses(rule, "authorization", between).await, [200, 200, 429, 429, 429]);
}

/// Otherwise, all clients that send blanks would share a bucket, or each length of blanks would
/// have a bucket of its own.
#[tokio::test]
async fn a_value_of_blanks_is_an_empty_one() {
    let blank = || ["", " ", "\t", " \t ", "   "].map(String::from);
    for (name, rule, field, status) in [
        ("header", by(header("x-key")), "x-key", 400),
        ("header or peer", by(header("x-key").or(ClientIp::peer())), "x-key", 400),
        ("api_key", by(api_key("x-key")), "x-key", 400),
        ("bearer", by(bearer()), "authorization", 400),
        // A line without a name and a value is no cookie, so the key is missing and the request
        // exempt.
        ("cookie", by(cookie("session")), "cookie", 200),
    ] {
        let rule = rule.missing_key_exempt();
        assert_eq!(statuses(rule, field, blank()).await, [status; 5], "{name}");
    }
    for (name, key) in [
        ("address", ClientIp::header("x-ip", this_machine())),
        ("x-forwarded-for", ClientIp::x_forwarded_for(this_machine())),
    ] {
        let field = if name == "address" { "x-ip" } else { name };
        let all = statuses(by(key), field, blank()).await;
        assert_eq!(all, [200, 200, 429, 429, 429], "{name}: the peer pays");
    }
}

// Methods.

/// How often a handler has run.
#[derive(Clone, Default)]
struct Runs(Arc<AtomicUsize>);

impl Runs {
    fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How often since it was asked last.
    fn take(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }
}

/// axum answers HEAD by the handler of GET: a client that sent HEAD had the work of GET done
/// without a limit, 7 of 7 times.
#[tokio::test]
async fn a_limit_on_get_holds_head() {
    let (get_, head, post) = (Method::GET, Method::HEAD, Method::POST);
    for (methods, sent, wanted) in [
        (vec![get_.clone()], [&head; 7], 2),
        (vec![get_.clone()], [&get_, &head, &head, &get_, &head, &get_, &head], 2),
        (vec![post.clone(), get_.clone()], [&head; 7], 2),
        // No other method is answered by the handler of another one.
        (vec![head.clone()], [&head; 7], 2),
        (vec![head.clone()], [&get_; 7], 7),
        (vec![post.clone()], [&head; 7], 7),
    ] {
        let rule = Rule::new(&TWO).only_methods(methods.clone());
        let layer = limiter(&ManualClock::new(START)).layer(rule);
        let runs = Runs::default();
        let handler = {
            let runs = runs.clone();
            async move || runs.count()
        };
        let server = serve(Router::new().route("/", get(handler)).layer(layer)).await;
        for method in sent {
            send(server, method.clone(), "/", &[]).await;
        }
        assert_eq!(runs.take(), wanted, "{methods:?}: {sent:?}");
    }
}

// A field that makes a request look like one of gRPC, where refusals have status 200.

const GRPC: &str = "application/grpc";

/// A limiter with a frozen clock, and nothing left of `TWO`.
async fn spent() -> RateLimiter {
    let limiter = limiter(&ManualClock::new(START));
    limiter.limit(&TWO).cost(2).await.unwrap();
    limiter
}

/// Any client can send the field, but the server answers in gRPC only if the client may speak gRPC.
/// Otherwise a cache would store a refusal as the answer to a GET, and the handler for refusals
/// would be skipped.
#[tokio::test]
async fn only_a_post_over_http_2_is_refused_in_grpc() {
    let sorry = OnRefusal::handler(|refused| {
        let response = Response::builder().status(refused.status());
        response.body("sorry").unwrap()
    });
    let layer = spent().await.layer(&TWO).on_refusal(sorry);
    let server = serve(Router::new().route("/", any(async || "hello")).layer(layer)).await;
    let (first, second) = (Version::HTTP_11, Version::HTTP_2);
    for (version, method, content_type, is_grpc) in [
        (first, Method::GET, GRPC, false),
        (first, Method::POST, GRPC, false),
        (second, Method::GET, GRPC, false),
        (second, Method::PUT, GRPC, false),
        (second, Method::POST, "application/grpc-web", false),
        (second, Method::POST, "application/grpc-web+proto", false),
        (second, Method::POST, "application/json", false),
        (second, Method::POST, GRPC, true),
        (second, Method::POST, "application/grpc+proto", true),
        (second, Method::POST, "application/grpc; charset=utf-8", true),
        (second, Method::POST, " application/grpc\t", true),
    ] {
        let fields = [("content-type", content_type)];
        let reply = send_over(version, server, method.clone(), "/", &fields).await;
        let row = (reply.status.as_u16(), reply.body.as_str(), reply.field("grpc-status"));
        let wanted = if is_grpc { (200, "", Some("8")) } else { (429, "sorry", None) };
        assert_eq!(row, wanted, "{version:?} {method} {content_type}");
        assert_eq!(reply.field("cache-control"), Some("no-store"), "{version:?} {method}");
    }
}

/// A refusal with status 200 counted as a success, and the outer limit refunded it: 6 of 6 requests
/// got past a limit of 3 failures.
#[tokio::test]
async fn a_refusal_is_a_failure_to_the_layers_around_it_however_it_is_worded() {
    static FAILURES: Limit = Limit::new("failures", Quota::token_bucket(3, MINUTE));
    let predicates: [fn(&ResponseHead<'_>) -> bool; 4] = [
        |response| response.is_success(),
        |response| response.status().is_success(),
        |response| !response.is_client_error(),
        |response| response.status() != StatusCode::TOO_MANY_REQUESTS,
    ];
    let mut past = Vec::new();
    for (index, predicate) in predicates.into_iter().enumerate() {
        for (version, method) in [
            (Version::HTTP_11, Method::GET),
            (Version::HTTP_11, Method::POST),
            (Version::HTTP_2, Method::GET),
            (Version::HTTP_2, Method::POST),
        ] {
            let (limiter, runs) = (spent().await, Runs::default());
            let counted = runs.clone();
            let count = from_fn(move |request: Request, next: Next| {
                counted.count();
                next.run(request)
            });
            let app = Router::new()
                .route("/", any(async || "hello"))
                .layer(limiter.layer(&TWO))
                .layer(count)
                .layer(limiter.layer(Rule::new(&FAILURES).refund_if(predicate)));
            let server = serve(app).await;
            for _ in 0..6 {
                let fields = [("content-type", GRPC)];
                send_over(version, server, method.clone(), "/", &fields).await;
            }
            past.push((index, version, method, runs.take()));
        }
    }
    assert!(past.iter().all(|&(.., count)| count == 3), "of six requests: {past:?}");
}

/// A layer for each way in which a request is not run, and the status that answers it.
async fn refusing_layers() -> [(u16, RateLimitLayer); 11] {
    let broken = |later| RateLimiter::new(Broken { later }).layer(&TWO);
    let by_user = || Rule::new(&TWO).key(header("x-user"));
    let nonsense = |_: &Head<'_>| Err::<Key, _>(KeyError::invalid("nonsense"));
    let unauthorized = StatusCode::UNAUTHORIZED;
    let limiter = spent().await;
    let drained = spent().await;
    drained.drain(std::time::Duration::ZERO);
    [
        (429, limiter.layer(&TWO)),
        (413, limiter.layer(&TWO).cost(3)),
        (429, limiter.layer(&TWO).queue(std::time::Duration::ZERO)),
        (429, limiter.layer(&TWO).dialects([Dialect::Draft11, Dialect::XRateLimit])),
        (503, limiter.layer(&TWO).queue(Queue::new(MINUTE).max_waiters(0))),
        (503, drained.layer(&TWO).queue(MINUTE)),
        (503, broken(false)),
        (503, broken(true)),
        (400, limiter.layer(by_user())),
        (401, limiter.layer(by_user().missing_key(unauthorized))),
        (400, limiter.layer(Rule::new(&TWO).key_with(nonsense))),
    ]
}

/// A cache that keeps a refusal answers other clients by it.
#[tokio::test]
async fn no_refusal_may_be_stored() {
    let handler = |cache_control: Option<&'static str>| {
        OnRefusal::handler(move |refused| {
            let response = Response::builder().status(refused.status());
            let response = match cache_control {
                Some(value) => response.header("cache-control", value),
                None => response,
            };
            response.body("sorry").unwrap()
        })
    };
    let grpc = [("content-type", GRPC)];
    for (status, layer) in refusing_layers().await {
        for (words, on_refusal, wanted) in [
            ("problem details", OnRefusal::problem_details(), "no-store"),
            ("plain text", OnRefusal::plain_text(), "no-store"),
            ("handler", handler(None), "no-store"),
            ("handler with its own", handler(Some("private")), "private"),
        ] {
            let layer = layer.clone().on_refusal(on_refusal);
            let server = serve(Router::new().route("/", any(async || "hello")).layer(layer)).await;
            let reply = send(server, Method::GET, "/", &[]).await;
            let row = (reply.status.as_u16(), reply.field("cache-control"));
            assert_eq!(row, (status, Some(wanted)), "{words}");
            let reply = send_over(Version::HTTP_2, server, Method::POST, "/", &grpc).await;
            let row = (reply.status.as_u16(), reply.field("cache-control"));
            assert_eq!(row, (200, Some("no-store")), "{status} in gRPC");
        }
    }
}

/// Nor may a cache store a refusal that a handler returns.
#[tokio::test]
async fn no_refusal_of_a_handler_may_be_stored() {
    let ask = |limiter: RateLimiter, cost: u64| {
        get(async move || -> Result<&str, RateLimited> {
            limiter.limit(&TWO).cost(cost).await?;
            Ok("hello")
        })
    };
    let broken = RateLimiter::new(Broken { later: true });
    for (route, status) in
        [(ask(spent().await, 1), 429), (ask(spent().await, 3), 413), (ask(broken, 1), 503)]
    {
        let server = serve(Router::new().route("/", route)).await;
        // A handler that leaves by `?` answers in problem details, whatever the request says.
        for (version, fields) in
            [(Version::HTTP_11, &[][..]), (Version::HTTP_2, &[("content-type", GRPC)])]
        {
            let reply = send_over(version, server, Method::GET, "/", fields).await;
            let row = (reply.status.as_u16(), reply.field("cache-control"));
            assert_eq!(row, (status, Some("no-store")));
        }
    }
}

// HEAD: its answers have no body (RFC 9110, section 9.3.2).

/// In HTTP/2, a body in the answer to HEAD is a protocol error. axum removes the bodies that its
/// handlers return, but not those of a layer around a service.
#[tokio::test]
async fn an_answer_to_head_has_the_fields_of_get_and_no_body() {
    let sorry = OnRefusal::handler(|refused| {
        Response::builder().status(refused.status()).body("sorry").unwrap()
    });
    let unlike = OnRefusal::handler(|_| {
        Response::builder().status(429).header("content-length", "5").body("sorry").unwrap()
    });
    let nothing = OnRefusal::handler(|_| Response::builder().status(204).body("").unwrap());
    let hello = || any(async || "hello");
    for (status, layer) in refusing_layers().await {
        for (words, on_refusal, has_length) in [
            ("problem details", OnRefusal::problem_details(), true),
            ("plain text", OnRefusal::plain_text(), true),
            ("handler", sorry.clone(), true),
            ("handler that says its length", unlike.clone(), true),
            ("handler of no content", nothing.clone(), false),
        ] {
            let layer = layer.clone().on_refusal(on_refusal);
            let app = Router::new()
                .route_service("/service", hello())
                .nest_service("/nest", hello())
                .route("/route", hello());
            let server = serve(app.layer(layer)).await;
            // With 204, axum itself sends a length of 0 for its own routes.
            let paths = ["/service", "/nest/x", "/route"];
            for path in paths.into_iter().take(if has_length { 3 } else { 2 }) {
                for version in [Version::HTTP_11, Version::HTTP_2] {
                    let send = |method| send_over(version, server, method, path, &[]);
                    let [got, head] = [send(Method::GET).await, send(Method::HEAD).await];
                    let row = format!("{status} {words} {path} {version:?}");
                    assert_eq!((head.status, head.body.as_str()), (got.status, ""), "{row}");
                    assert_eq!(head.status != 204, has_length, "{row}");
                    let fields = |reply: &Reply| {
                        let fields = reply.headers.iter().filter(|(name, _)| *name != "date");
                        fields.map(|(name, value)| format!("{name}: {value:?}")).collect()
                    };
                    let [got_fields, fields]: [BTreeSet<_>; 2] = [fields(&got), fields(&head)];
                    assert_eq!(fields, got_fields, "{row}");
                    let length = has_length.then(|| got.body.len().to_string());
                    assert_eq!(head.field("content-length"), length.as_deref(), "{row}");
                }
            }
        }
    }
}

/// The answer of an extractor in a layer of its own.
#[tokio::test]
async fn the_rejection_of_an_extractor_has_no_body_for_head() {
    struct AlwaysMissing;

    impl FromRequestParts<()> for AlwaysMissing {
        type Rejection = (StatusCode, &'static str);

        async fn from_request_parts(_: &mut Parts, (): &()) -> Result<Self, Self::Rejection> {
            Err((StatusCode::FORBIDDEN, "not you"))
        }
    }

    let app = Router::new().route_service("/", any(async || "hello"));
    let server = serve(app.layer(extract(|_: AlwaysMissing| ()))).await;
    for (method, body) in [(Method::GET, "not you"), (Method::HEAD, "")] {
        let reply = send_over(Version::HTTP_2, server, method, "/", &[]).await;
        assert_eq!((reply.status.as_u16(), reply.body.as_str()), (403, body));
        assert_eq!(reply.field("content-length"), Some("7"));
    }
}

/// An HTTP/2 client closes a connection after some 1,000 protocol errors. One client could cause
/// them through a proxy, and so end the connection that the proxy's other clients shared.
#[tokio::test]
async fn refused_heads_leave_a_shared_connection_alone() {
    let layer = limiter(&ManualClock::new(START)).layer(&TWO).key(header("x-user"));
    let app = Router::new().route_service("/", any(async || "hello"));
    let server = serve(app.layer(layer)).await;
    let stream = tokio::net::TcpStream::connect(server).await.unwrap();
    let (executor, io) = (TokioExecutor::new(), TokioIo::new(stream));
    let (mut proxy, connection) =
        hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut ask = async |method: Method, user: &str| {
        let request = Request::builder().method(method).uri(format!("http://{server}/"));
        let request = request.header("x-user", user).body(Body::empty()).unwrap();
        let response = proxy.send_request(request).await.map_err(|error| format!("{error:?}"))?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await;
        body.map(|_| status).map_err(|error| format!("{error:?}"))
    };
    let mut answers = BTreeMap::<_, u32>::new();
    for _ in 0..1_500 {
        *answers.entry(ask(Method::HEAD, "mallory").await).or_default() += 1;
    }
    assert_eq!(answers, BTreeMap::from([(Ok(200), 2), (Ok(429), 1_498)]));
    assert_eq!(ask(Method::GET, "alice").await, Ok(200));
    assert!(!connection.is_finished());
}

// Routes that find their handlers in other ways than by a method.

/// Methods of HTTP, and one that a client made up.
const METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"];

/// How often each method is sent.
const TIMES: usize = 3;

/// Serves this router and sends it each method, the rarest first. Returns how often a handler ran,
/// and how often the answer was 405.
async fn played(app: Router, runs: &Runs) -> (usize, usize) {
    let server = serve(app).await;
    let mut not_allowed = 0;
    for _ in 0..TIMES {
        for name in METHODS.into_iter().rev() {
            let reply = send(server, name.parse().unwrap(), "/", &[]).await;
            not_allowed += usize::from(reply.status == StatusCode::METHOD_NOT_ALLOWED);
        }
    }
    (runs.take(), not_allowed)
}

/// The handler of `any` and a fallback ran 23 of 27 times under a limit of 2 if the route also had
/// a handler for one method.
#[tokio::test]
async fn a_route_of_any_shape_is_held_to_its_limit() {
    let runs = Runs::default();
    let counted = runs.clone();
    let h = move || {
        counted.count();
        std::future::ready("hello")
    };
    let counted = runs.clone();
    let service = tower::service_fn(move |_: Request| {
        counted.count();
        std::future::ready(Ok::<_, Infallible>(Response::new(Body::empty())))
    });
    let h = || h.clone();
    let service = || service.clone();
    // A route with its own answer to a missing method, like that of a CORS layer.
    let options = from_fn(async |request: Request, next: Next| match *request.method() {
        Method::OPTIONS => StatusCode::NO_CONTENT.into_response(),
        _ => next.run(request).await,
    });
    let filter = MethodFilter::PUT.or(MethodFilter::DELETE);
    let rows: [(&str, MethodRouter, usize); 17] = [
        ("get", get(h()), 2),
        ("post", post(h()), 1),
        ("get and post", get(h()).post(h()), 3),
        ("get and head", get(h()).head(h()), 2),
        ("on", on(filter, h()), 2),
        ("get_service", get_service(service()), 2),
        ("get, merged with put", get(h()).merge(put(h())), 3),
        ("get and a layer that answers OPTIONS", get(h()).layer(options), 3),
        ("get and fallback", get(h()).fallback(h()), 9),
        ("fallback and get", MethodRouter::new().fallback(h()).get(h()), 9),
        ("get and fallback_service", get(h()).fallback_service(service()), 9),
        ("fallback", MethodRouter::new().fallback(h()), 9),
        ("any", any(h()), 9),
        ("any_service", any_service(service()), 9),
        ("any and get", any(h()).get(h()), 9),
        ("get, merged with any", get(h()).merge(any(h())), 9),
        ("get and any in a layer", any(h()).get(h()).layer(from_fn(pass_on)), 9),
    ];
    let (mut found, mut wanted) = (Vec::new(), Vec::new());
    for (name, route, methods) in rows {
        let layer = || limiter(&ManualClock::new(START)).layer(&TWO);
        let app = Router::new().route("/", route.clone().rate_limit(layer()));
        let (ran, not_allowed) = played(app, &runs).await;
        found.push((name, ran, not_allowed));
        wanted.push((name, 2, (METHODS.len() - methods) * TIMES));
        // The same in a router, where 405 pays as well.
        let router = Router::new().route("/", route);
        for router in [router.clone(), router.clone().method_not_allowed_fallback(h())] {
            let (ran, _) = played(router.rate_limit(layer()), &runs).await;
            assert!(ran <= 2, "{name} in a router: {ran} ran");
        }
    }
    assert_eq!(found, wanted, "how many of 27 requests ran, and how many were answered by 405");
}

async fn pass_on(request: Request, next: Next) -> impl IntoResponse {
    next.run(request).await
}

/// A router with a state makes its routes only when the state is set.
#[tokio::test]
async fn a_route_with_a_state_is_held_to_its_limit() {
    let runs = Runs::default();
    let h = async |State(runs): State<Runs>| runs.count();
    for route in [any(h).get(h), get(h).fallback(h), any(h)] {
        let layer = limiter(&ManualClock::new(START)).layer(&TWO);
        let app = Router::new().route("/", route.rate_limit(layer)).with_state(runs.clone());
        assert_eq!(played(app, &runs).await, (2, 0));
    }
}

/// As the documentation of `rate_limit` says: the fallback of a router takes the layer of the router.
#[tokio::test]
async fn a_limit_on_the_routes_of_a_router_leaves_its_fallback_out() {
    let hello = async || "hello";
    let layer = || limiter(&ManualClock::new(START)).layer(&TWO);
    let app = Router::new().route("/", get(hello)).fallback(hello);
    let asked = [("PUT", "/"), ("PUT", "/"), ("GET", "/"), ("GET", "/other"), ("GET", "/other")];
    for (app, wanted) in [
        (app.clone().rate_limit(layer()), [405, 405, 429, 200, 200]),
        (app.layer(layer()), [405, 405, 429, 429, 429]),
    ] {
        let server = serve(app).await;
        for ((method, path), wanted) in asked.into_iter().zip(wanted) {
            let reply = send(server, method.parse().unwrap(), path, &[]).await;
            assert_eq!(reply.status.as_u16(), wanted, "{method} {path}");
        }
    }
}

/// Routes in routers that are nested and merged, with fallbacks, over both versions of HTTP. HEAD is
/// answered by the handler of GET.
#[tokio::test]
async fn a_route_in_any_router_is_held_to_its_limit_over_each_version() {
    let runs = Runs::default();
    let counted = runs.clone();
    let h = move || {
        counted.count();
        std::future::ready("hello")
    };
    let h = || h.clone();
    let (all, some) = (["GET", "HEAD", "POST", "OPTIONS"], ["GET", "HEAD"]);
    let routes = |path: &str, route: MethodRouter| Router::new().route(path, route);
    let rows: [(&str, &str, Router, &[&str]); 14] = [
        ("any", "/", routes("/", any(h())), &all),
        ("get", "/", routes("/", get(h())), &some),
        ("any and get", "/", routes("/", any(h()).get(h())), &all),
        ("get and fallback", "/", routes("/", get(h()).fallback(h())), &all),
        ("on", "/", routes("/", on(MethodFilter::GET, h())), &some),
        ("on HEAD", "/", routes("/", on(MethodFilter::HEAD, h())), &["HEAD"]),
        ("options", "/", routes("/", on(MethodFilter::OPTIONS, h())), &["OPTIONS"]),
        ("route_service", "/", Router::new().route_service("/", any(h())), &all),
        ("nest_service", "/nest/x", Router::new().nest_service("/nest", any(h())), &all),
        ("nest", "/nest/x", Router::new().nest("/nest", routes("/x", any(h()))), &all),
        ("nest of get", "/nest/x", Router::new().nest("/nest", routes("/x", get(h()))), &some),
        ("merge", "/x", routes("/", any(h())).merge(routes("/x", any(h()))), &all),
        (
            "merge of methods",
            "/",
            routes("/", get(h())).merge(routes("/", on(MethodFilter::OPTIONS, h()))),
            &["GET", "HEAD", "OPTIONS"],
        ),
        (
            "get and a fallback for other methods",
            "/",
            routes("/", get(h())).method_not_allowed_fallback(h()),
            &all,
        ),
    ];
    // Each way to limit each router, each with a bucket for each method and version.
    let (mut apps, mut cases) = (Vec::new(), Vec::new());
    for (name, path, router, methods) in rows {
        for (version, method) in [Version::HTTP_11, Version::HTTP_2]
            .into_iter()
            .flat_map(|version| all.map(|method| (version, method)))
        {
            let layer = || limiter(&ManualClock::new(START)).layer(&TWO);
            let status = if methods.contains(&method) { 200 } else { 405 };
            for (way, app) in [
                ("layer", router.clone().layer(layer())),
                ("rate_limit", router.clone().rate_limit(layer())),
                ("a layer for the method", {
                    let rule = Rule::new(&TWO).only_methods([method.parse().unwrap()]);
                    router.clone().layer(limiter(&ManualClock::new(START)).layer(rule))
                }),
            ] {
                apps.push(app);
                cases.push((format!("{name}, {way}"), version, method, path, status));
            }
        }
    }
    // One server for all of them, and one connection of each version: a field says which is asked.
    let apps = Arc::new(apps);
    let service = tower::service_fn(move |request: Request| {
        let nth: usize = request.headers()["x-app"].to_str().unwrap().parse().unwrap();
        apps[nth].clone().oneshot(request)
    });
    let server = serve(Router::new().fallback_service(service)).await;
    let [http_1, http_2] = [false, true].map(|http_2| {
        Client::builder(TokioExecutor::new()).http2_only(http_2).build_http::<Body>()
    });
    let mut found = Vec::new();
    for (nth, (app, version, method, path, status)) in cases.into_iter().enumerate() {
        let mut statuses = Vec::new();
        let client = if version == Version::HTTP_2 { &http_2 } else { &http_1 };
        for _ in 0..4 {
            let uri = format!("http://{server}{path}");
            let request = Request::builder().version(version).method(method).uri(uri);
            let request = request.header("x-app", nth).body(Body::empty()).unwrap();
            let reply = Reply::read(client.request(request).await.unwrap()).await;
            statuses.push(reply.status.as_u16());
        }
        let (ran, wanted) = (runs.take(), if status == 200 { 2 } else { 0 });
        if (ran, &*statuses) != (wanted, &[status, status, 429, 429]) {
            found.push(format!("{app}, {version:?} {method}: {ran}, {statuses:?}"));
        }
    }
    assert!(found.is_empty(), "not two of four: {found:#?}");
}
