//! Layers in the wrong order: the log tells once which one has to run first, and does not tell of the
//! set-ups next to it that are meant so. Over a real server, but for thousands of requests.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::{get, post};
use http::StatusCode;
use tollgate::key::{ClientIp, KeyExtractor, extension, global, header};
use tollgate::middleware::{Admission, Meter};
use tollgate::{Limit, MINUTE, Quota, RateLimitExt, Rule};
use tollgate_testing::web::{self, serve};
use tower::ServiceExt;

use super::mistakes::{API, assert_one, fixed, get_ok, hello, told};

/// The first request to a route says it. Both are told once in a process, so one test has all.
#[test]
fn an_admission_or_a_meter_that_is_taken_outside_of_its_layer_is_told_once() {
    async fn looks(_: Admission, request: Request, next: Next) -> Response {
        next.run(request).await
    }
    async fn counts(_: Meter, request: Request, next: Next) -> Response {
        next.run(request).await
    }
    let routes = || {
        let layer = fixed().layer(&API).expose().settle();
        (Router::new().route("/", get(hello)), layer)
    };
    let statuses = |app: Router, status: StatusCode| {
        told(async || {
            let to = serve(app).await;
            for _ in 0..3 {
                assert_eq!(web::get(to, "/").await.status, status);
            }
        })
    };
    // axum runs the last `.layer(..)` first: before the limit.
    let (app, layer) = routes();
    let lines = statuses(app.layer(layer).layer(from_fn(looks)), StatusCode::INTERNAL_SERVER_ERROR);
    assert_one(
        &lines,
        &["ERROR", "no admission", "`.expose()`", "the last `.layer(..)` runs first"],
    );
    let (app, layer) = routes();
    let lines =
        statuses(app.layer(layer).layer(from_fn(counts)), StatusCode::INTERNAL_SERVER_ERROR);
    assert_one(&lines, &["ERROR", "no meter", "`.settle()`", "the last `.layer(..)` runs first"]);
    let (app, layer) = routes();
    let lines =
        statuses(app.layer(from_fn(looks)).layer(from_fn(counts)).layer(layer), StatusCode::OK);
    assert_eq!(lines, [""; 0]);
}

#[derive(Clone)]
struct User(&'static str);

/// Inserts a user if the client signed in.
async fn authenticate(mut request: Request, next: Next) -> Response {
    if request.headers().contains_key("authorization") {
        request.extensions_mut().insert(User("alice"));
    }
    next.run(request).await
}

/// What the log is told of this many requests, of which these have signed in.
fn told_of(
    app: Router,
    requests: u32,
    status: u16,
    signed_in: impl Fn(u32) -> bool,
) -> Vec<String> {
    told(async || {
        for n in 0..requests {
            let mut request = Request::new(Body::empty());
            request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([192, 0, 2, 1], 5123))));
            if signed_in(n) {
                request.headers_mut().insert("authorization", "yes".parse().unwrap());
            }
            assert_eq!(app.clone().oneshot(request).await.unwrap().status(), status, "{n}");
        }
    })
}

fn by_user() -> impl KeyExtractor {
    extension(|user: &User| user.0)
}

#[test]
fn an_extension_that_is_inserted_inside_of_the_limit_is_told_once() {
    let layer = || fixed().layer(&API).key(by_user());
    let app = Router::new().route("/", get(hello)).layer(from_fn(authenticate)).layer(layer());
    let lines = told_of(app, 3, 500, |_| true);
    assert_one(&lines, &["ERROR", "User`", "in axum, by a `.layer(..)` after this one's"]);
    let app = Router::new().route("/", get(hello)).layer(layer()).layer(from_fn(authenticate));
    assert_eq!(told_of(app, 3, 200, |_| true), [""; 0]);
}

/// These set-ups answer 200, and each user was not limited, or all users by one bucket.
#[test]
fn an_extension_that_no_request_has_is_told_once_where_requests_pass() {
    let rule = || Rule::new(&API).key(by_user());
    let app = |rule: Rule, is_inside: bool| {
        let app = Router::new().route("/", get(hello));
        let limit = fixed().layer(rule);
        match is_inside {
            true => app.layer(from_fn(authenticate)).layer(limit),
            false => app.layer(limit).layer(from_fn(authenticate)),
        }
    };
    let rules: [fn(Rule) -> Rule; 5] = [
        |rule| rule.missing_key_exempt(),
        |rule| rule.missing_key_shared(),
        |rule| rule.shadow(),
        |rule| rule.key(by_user().or(ClientIp::peer())),
        |rule| {
            rule.key(
                extension(|user: &User| Some(user.0)).or(header("user-agent")).or(ClientIp::peer()),
            )
        },
    ];
    for change in rules {
        let lines = told_of(app(change(rule()), true), 1_002, 200, |_| true);
        let parts = ["WARN", "limit=\"api\"", "no request so far had an extension", "User`"];
        assert_one(&lines, &parts);
        assert!(lines[0].contains("in axum is by a `.layer(..)` after the limit's"), "{lines:#?}");
    }
    // With the layers in order, one client that has signed in is enough.
    let app = app(rules[3](rule()), false);
    assert_eq!(told_of(app, 1_002, 200, |n| n == 500), [""; 0]);
}

/// Requests without a key that are answered with 401 tell no more than that clients have to sign in,
/// unless no client ever had a key.
#[test]
fn an_extension_that_no_request_has_is_told_once_behind_401() {
    let unauthorized = StatusCode::UNAUTHORIZED;
    let rule = || Rule::new(&API).key(by_user()).missing_key(unauthorized);
    let routes = || Router::new().route("/", get(hello));
    let app = routes().layer(from_fn(authenticate)).layer(fixed().layer(rule()));
    assert_one(&told_of(app, 1_002, 401, |_| true), &["WARN", "User`"]);
    let app = routes().layer(fixed().layer(rule())).layer(from_fn(authenticate));
    assert_eq!(told_of(app, 900, 401, |_| false), [""; 0]);
}

// A layer around no route.

/// What axum does, which the guide to several limits describes: a layer before the routes is around
/// the 404 alone. The crate cannot tell that from a limit that is meant for 404. `rate_limit` can,
/// and panics.
#[test]
fn a_layer_before_the_routes_limits_only_404() {
    let one = Limit::new("one", Quota::token_bucket(1, MINUTE));
    let layer = || fixed().layer(&one).key(global());
    let early = Router::new().layer(layer()).route("/", get(hello));
    let late = Router::new().route("/", post(hello)).layer(layer());
    let lines = told(async || {
        let to = serve(early).await;
        for _ in 0..3 {
            assert_eq!(get_ok(to, "/").await.field("ratelimit"), None);
        }
        assert_eq!(web::get(to, "/unknown").await.status, 404);
        assert_eq!(web::get(to, "/unknown").await.status, 429);
        let to = serve(late).await;
        assert_eq!(web::send(to, http::Method::POST, "/", &[]).await.status, 200);
        assert_eq!(web::send(to, http::Method::POST, "/", &[]).await.status, 429);
    });
    assert_eq!(lines, [""; 0]);
    let panics = std::panic::catch_unwind(|| Router::<()>::new().rate_limit(fixed().layer(&API)));
    assert!(panics.is_err());
}

/// The guide to layers says what each line means, so it has to quote the lines as they are.
#[test]
fn the_guide_to_layers_quotes_the_log_as_it_is() {
    let guide = include_str!("../../docs/layers.md");
    let sources = [
        include_str!("../../src/key/client_ip/setup_warnings.rs"),
        include_str!("../../src/key/extension.rs"),
        include_str!("../../src/key/header.rs"),
        include_str!("../../src/limiter/limit_uses.rs"),
        include_str!("../../src/limiter/engine.rs"),
        include_str!("../../src/middleware/log.rs"),
        include_str!("../../src/middleware/meter.rs"),
        include_str!("../../src/routes/admission.rs"),
        include_str!("../../src/routes/meter.rs"),
    ];
    let source = sources.concat().replace("\\\n", "").replace("\", \"", "");
    let source = source.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, table) = guide.split_once("| level | line |").expect("the table of the lines");
    let rows = table.lines().skip(2).take_while(|row| row.starts_with('|'));
    let lines: Vec<_> = rows.filter_map(|row| row.split('"').nth(1)).collect();
    assert_eq!(lines.len(), 22, "{lines:?}");
    let missing: Vec<_> = lines.iter().filter(|line| !source.contains(**line)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
