//! The routes for operators.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use http::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tollgate::algebra::State;
use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BackendError, BucketId, Charge, Debtor, DebtorQuery,
    DebtorReport, Memory,
};
use tollgate::clock::ManualClock;
use tollgate::{DAY, HOUR, Key, Limit, MINUTE, OnFailure, Quota, RateLimiter};
use tollgate_admin::admin;
use tollgate_testing::web::{Reply, send, serve};
use tollgate_testing::{START, at_once, limiter};
use tower::ServiceExt;

static LOGIN: Limit =
    Limit::new("login", Quota::token_bucket(5, HOUR)).on_failure(OnFailure::Refuse);
static API: Limit =
    Limit::new("api/v1 50%", Quota::fixed_window(100, DAY).start(START).max_reserved(7));
static SHARDS: Limit = Limit::new("shards", Quota::token_bucket(100, DAY).shards(4));

fn app(limiter: &RateLimiter) -> Router {
    let limits = admin(limiter, [&LOGIN, &API, &SHARDS]).without_authentication();
    Router::new().nest("/admin/limits", limits)
}

/// An app, its limiter, and its clock.
fn begin() -> (Router, RateLimiter, ManualClock) {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    (app(&limiter), limiter, clock)
}

async fn ask(app: &Router, request: Request) -> Reply {
    Reply::read(app.clone().oneshot(request).await.unwrap()).await
}

async fn get(app: &Router, path: &str) -> Reply {
    let uri = format!("/admin/limits{path}");
    ask(app, Request::get(uri).body(Body::empty()).unwrap()).await
}

async fn post(app: &Router, path: &str, body: &str) -> Reply {
    let request = Request::post(format!("/admin/limits{path}"));
    let request = request.header(CONTENT_TYPE, "application/json");
    ask(app, request.body(Body::from(body.to_owned())).unwrap()).await
}

async fn delete(app: &Router, path: &str) -> Reply {
    let request = Request::delete(format!("/admin/limits{path}"));
    ask(app, request.body(Body::empty()).unwrap()).await
}

#[track_caller]
fn read(reply: &Reply) -> Value {
    assert_eq!(reply.field("content-type"), Some("application/json"), "{reply:?}");
    serde_json::from_str(&reply.body).unwrap()
}

/// The detail of an error, after all that holds for each of them was checked.
#[track_caller]
fn detail(reply: &Reply, status: u16) -> String {
    assert_eq!(reply.status, status, "{}", reply.body);
    assert_eq!(reply.field("content-type"), Some("application/problem+json"));
    assert_eq!(reply.field("cache-control"), Some("no-store"));
    assert_eq!(reply.field("x-content-type-options"), Some("nosniff"));
    let problem: Value = serde_json::from_str(&reply.body).unwrap();
    assert_eq!(problem["status"], status);
    problem["detail"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_limits_are_shown_with_their_numbers() {
    let (app, limiter, _) = begin();
    let root = admin(&limiter, [&LOGIN, &API, &SHARDS]).without_authentication();
    for (app, path, slash) in [(app, "/admin/limits", "limits/"), (root, "/", "")] {
        let reply = ask(&app, Request::get(path).body(Body::empty()).unwrap()).await;
        let page = read(&reply);
        assert_eq!(reply.field("cache-control"), Some("no-store"));
        assert_eq!(reply.field("x-content-type-options"), Some("nosniff"));
        assert_eq!(reply.field("cross-origin-resource-policy"), Some("same-origin"));
        assert_eq!(
            page["limits"][0],
            json!({
                "name": "login",
                "href": format!("{slash}login"),
                "quota": "5 per hour",
                "replaced_quota": null,
                "kind": "token bucket",
                "rate": 5,
                "period_us": 3_600_000_000_u64,
                "capacity": 5,
                "initial": 5,
                "max_reserved": null,
                "start": null,
                "shards": 1,
                "on_failure": "refuse",
                "bucket": {
                    "step_us": 1, "gain": 1, "token": 720_000_000, "capacity": 3_600_000_000_u64,
                },
            })
        );
        let api = &page["limits"][1];
        assert_eq!(api["href"], format!("{slash}api%2Fv1%2050%25"));
        assert_eq!((&api["kind"], &api["max_reserved"]), (&json!("fixed window"), &json!(7)));
        assert_eq!(api["start"], json!(START));
        assert_eq!(page["limits"][2]["shards"], 4);
    }
}

/// A limit that is paused can be looked into and its keys changed; one that is made with nothing has
/// no bucket.
#[tokio::test]
async fn a_limit_that_grants_nothing_is_shown_as_such() {
    static PAUSED: Limit = Limit::new("paused", Quota::none());
    let (app, limiter, _) = begin();
    at_once(limiter.limit(&LOGIN).key("alice").cost(4)).unwrap();
    limiter.replace(&LOGIN, Quota::none()).unwrap();
    let shown = &read(&get(&app, "").await)["limits"][0];
    assert_eq!(
        [&shown["quota"], &shown["replaced_quota"], &shown["rate"], &shown["capacity"]],
        [&json!("0 per day"), &json!("5 per hour"), &json!(0), &json!(0)]
    );
    let alice = read(&get(&app, "/login/alice").await);
    assert_eq!((&alice["remaining"], &alice["fits"]), (&json!(0), &json!(false)));
    assert_eq!((&alice["wait_ms"], &alice["resets_at"]), (&Value::Null, &Value::Null));
    let owes = read(&post(&app, "/login/alice/penalize", r#"{"tokens": 3}"#).await);
    assert_eq!((&owes["tokens"], &owes["capacity"]), (&json!("-2"), &json!(5)));
    assert_eq!(read(&get(&app, "/login").await)["count"], json!({ "blocked": 0, "debt": 1 }));
    assert_eq!(delete(&app, "/login/alice").await.status, 204);
    limiter.replace(&LOGIN, *LOGIN.quota()).unwrap();
    assert_eq!(read(&get(&app, "/login/alice").await)["remaining"], 5);

    let limits = admin(&limiter, [&PAUSED]).without_authentication();
    let app = Router::new().nest("/admin/limits", limits);
    let said = "refused by limit `paused` (it grants nothing: 0 per day)";
    for path in ["/paused/alice/penalize", "/paused/alice/block"] {
        let body = if path.ends_with("block") { r#"{"seconds": 5}"# } else { r#"{"tokens": 3}"# };
        assert_eq!(detail(&post(&app, path, body).await, 409), said);
    }
    assert_eq!(detail(&get(&app, "/paused").await, 409), said);
    assert_eq!(read(&get(&app, "/paused/alice").await)["remaining"], 0);
    assert_eq!(delete(&app, "/paused/alice").await.status, 204);
}

/// The routes name a limit by what it was made with, and show what decides.
#[tokio::test]
async fn replaced_numbers_are_shown_as_they_are_in_force() {
    let (app, limiter, _) = begin();
    at_once(limiter.limit(&LOGIN).key("alice").cost(5)).unwrap();
    limiter.replace(&LOGIN, Quota::token_bucket(3, HOUR)).unwrap();
    let shown = &read(&get(&app, "").await)["limits"][0];
    assert_eq!(
        [&shown["quota"], &shown["replaced_quota"], &shown["rate"], &shown["on_failure"]],
        [&json!("3 per hour"), &json!("5 per hour"), &json!(3), &json!("refuse")]
    );
    let alice = read(&get(&app, "/login/alice").await);
    assert_eq!((&alice["capacity"], &alice["tokens"]), (&json!(3), &json!("-2")));
    // Those that were replaced are no limit of this name whose replacement counts.
    limiter.replace(&LOGIN, Quota::token_bucket(6, HOUR).capacity(4)).unwrap();
    // A faster quota counts from its first request on.
    assert!(at_once(limiter.limit(&LOGIN).key("alice")).is_err());
    let penalized = post(&app, "/login/alice/penalize", r#"{"tokens": 5}"#).await;
    let penalized = read(&penalized);
    assert_eq!((&penalized["capacity"], &penalized["tokens"]), (&json!(4), &json!("-6")));
    let list = read(&get(&app, "/login").await);
    assert_eq!(list["count"], json!({ "blocked": 0, "debt": 1 }));
    assert!(
        list["detail"].as_str().unwrap().contains("the numbers `6 per hour, capacity 4`"),
        "{list}"
    );
    assert_eq!(delete(&app, "/login/alice").await.status, 204);
    limiter.replace(&LOGIN, *LOGIN.quota()).unwrap();
    assert_eq!(read(&get(&app, "").await)["limits"][0]["replaced_quota"], Value::Null);
}

#[tokio::test]
async fn a_key_is_shown_as_it_stands_now() {
    let (app, limiter, clock) = begin();
    at_once(limiter.limit(&LOGIN).key("alice").cost(4)).unwrap();
    clock.advance(6 * MINUTE);
    let page = read(&get(&app, "/login/alice?cost=3").await);
    assert_eq!(
        page,
        json!({
            "limit": "login",
            "key": "alice",
            "remaining": 1,
            "tokens": "1.5",
            "value": 1_080_000_000,
            "token": 720_000_000,
            "ts": START + 6 * MINUTE,
            "capacity": 5,
            "cost": 3,
            "fits": false,
            "wait_ms": 18 * 60 * 1_000,
            "at": START + 6 * MINUTE,
            "full_at": START + 48 * MINUTE,
            "resets_at": START + 48 * MINUTE,
            "window_start": null,
            "window_end": null,
            "blocked_until": null,
        })
    );
    let page = read(&get(&app, "/login/bob").await);
    assert_eq!(
        (&page["tokens"], &page["cost"], &page["fits"]),
        (&json!("5"), &json!(1), &json!(true))
    );
    let page = read(&get(&app, "/login/bob?cost=6").await);
    assert_eq!((&page["fits"], &page["wait_ms"]), (&json!(false), &json!(null)));
    let page = read(&get(&app, "/api%2Fv1%2050%25/bob").await);
    assert_eq!(page["window_start"], json!(START));
    let end = json!(START + DAY);
    assert_eq!(
        (&page["window_end"], &page["resets_at"], &page["full_at"]),
        (&end, &end, &page["at"])
    );
    // Looking takes nothing.
    assert_eq!(at_once(limiter.peek(&LOGIN).key("bob")).unwrap().remaining(), 5);
}

#[tokio::test]
async fn a_key_is_penalized_blocked_and_reset() {
    let (app, limiter, clock) = begin();
    let page = read(&post(&app, "/login/mallory/penalize", r#"{"tokens": 7}"#).await);
    assert_eq!((&page["tokens"], &page["blocked_until"]), (&json!("-2"), &json!(null)));
    let page = read(&post(&app, "/login/mallory/block", r#"{"seconds": 3600}"#).await);
    assert_eq!(page["blocked_until"], json!(START + HOUR));
    assert!(at_once(limiter.limit(&LOGIN).key("mallory")).unwrap_err().is_refused());
    let page = read(&post(&app, "/login/mallory/block", r#"{"time": "1 day"}"#).await);
    assert_eq!(page["blocked_until"], json!(START + DAY));
    let reply = delete(&app, "/login/mallory").await;
    assert_eq!((reply.status.as_u16(), reply.body.as_str()), (204, ""));
    assert_eq!(reply.field("cache-control"), Some("no-store"));
    assert_eq!(at_once(limiter.peek(&LOGIN).key("mallory")).unwrap().remaining(), 5);
    clock.advance(HOUR);
}

/// Each key is named exactly, whatever its type, and the answer shows it in the same form.
#[tokio::test]
async fn every_type_of_key_can_be_named() {
    let (app, limiter, _) = begin();
    let keys = [
        ("alice%40example.com", Key::from("alice@example.com")),
        ("alice@example.com", Key::from("alice@example.com")),
        ("7", Key::from("7")),
        ("n=7", Key::from(7)),
        ("n%3D-7", Key::from(-7)),
        ("n=340282366920938463463374607431768211455", Key::from(u128::MAX)),
        ("bool=true", Key::from(true)),
        ("b=00ff", Key::from([0_u8, 255])),
        ("ip=192.0.2.1", Key::from(std::net::Ipv4Addr::new(192, 0, 2, 1))),
        ("ip=2001:db8::%2F64", Key::network("2001:db8::1".parse().unwrap(), 64)),
        ("ip=::1", Key::from(std::net::Ipv6Addr::LOCALHOST)),
        ("*", Key::GLOBAL),
        ("%252A", Key::from("*")),
        ("text=", Key::from("")),
        ("acme%7Cn=7", Key::from(("acme", 7))),
        ("acme|n=7", Key::from(("acme", 7))),
        ("acme%257Cn%253D7", Key::from("acme|n=7")),
        ("else=%7Calice", Key::from("alice").fallback()),
        ("a%2Fb", Key::from("a/b")),
        ("Zo%C3%AB", Key::from("Zoë")),
        ("Zo%25C3%25AB", Key::from("Zoë")),
        ("100%2525", Key::from("100%")),
        ("%3Cscript%3Ealert(1)%3C%2Fscript%3E", Key::from("<script>alert(1)</script>")),
    ];
    for (segment, key) in keys {
        at_once(limiter.limit(&LOGIN).key(&key).cost(3)).unwrap();
        let page = read(&get(&app, &format!("/login/{segment}")).await);
        assert_eq!(
            (&page["remaining"], &page["key"]),
            (&json!(2), &json!(key.to_text())),
            "{segment}"
        );
        let reply = delete(&app, &format!("/login/{segment}")).await;
        assert_eq!(reply.status, 204, "{segment}");
        assert_eq!(at_once(limiter.peek(&LOGIN).key(&key)).unwrap().remaining(), 5, "{segment}");
    }
}

#[tokio::test]
async fn what_does_not_exist_is_answered_with_what_does() {
    let (app, ..) = begin();
    let there = "(there are `login`, `api/v1 50%`, `shards`)";
    for path in ["/logins", "/logins/alice"] {
        assert_eq!(
            detail(&get(&app, path).await, 404),
            format!("there is no limit `logins` {there}")
        );
    }
    let hostile = detail(&get(&app, "/%3Cscript%3E%0A%22").await, 404);
    assert_eq!(hostile, format!("there is no limit `<script>\\n\"` {there}"));
    let long = detail(&get(&app, &format!("/{}", "x".repeat(5_000))).await, 404);
    assert!(long.len() < 200, "{long}");
    for path in ["/login/alice/praise", "/login/alice/block/x", "/login//alice/"] {
        let told = detail(&get(&app, path).await, 404);
        assert!(
            told.starts_with("there is nothing at this path (there are `/`, "),
            "{path}: {told}"
        );
    }
    for (method, path) in [
        (Method::POST, ""),
        (Method::DELETE, "/login"),
        (Method::PUT, "/login/alice"),
        (Method::POST, "/login/alice"),
        (Method::GET, "/login/alice/block"),
        (Method::GET, "/login/alice/penalize"),
    ] {
        let request = Request::builder().method(method).uri(format!("/admin/limits{path}"));
        let reply = ask(&app, request.body(Body::empty()).unwrap()).await;
        let told = detail(&reply, 405);
        assert!(told.contains("DELETE to reset a key"), "{told}");
        assert!(reply.headers.contains_key(ALLOW), "{path}");
    }
}

#[tokio::test]
async fn what_is_malformed_is_answered_with_the_way_out() {
    let (app, limiter, _) = begin();
    for (path, told) in [
        ("/login/id=7", "`id` is not a type (there are `n=7`"),
        ("/login/n=x", "`x` is not a whole number"),
        ("/login/hmac=9486dee870413ee96e370a8f3def234a", "name the key itself"),
        ("/login/a%7C", "a part is empty"),
        ("/login/100%25", "write `%` of text as `%25`"),
        ("/login/%FF", "the decoded path is not UTF-8"),
        ("/login/alice?cost=-1", "cost `-1` is not a whole number from 0 to"),
        (
            "/login/alice?cost=1&price=2",
            "`price` is not a parameter of this path (there are `cost`)",
        ),
        ("/login?state=odd", "state `odd` is unknown (use `blocked` or `debt`,"),
        ("/login?max=0", "max `0` is not a whole number from 1 to 1000"),
        ("/login?max=1001", "max `1001` is not a whole number from 1 to 1000"),
        ("/login?order=up", "(there are `state`, `max` and `after`)"),
        ("/login?after=x", "`x` is not a cursor of this list"),
        ("?page=2", "`page` is not a parameter of this path"),
        // The last one counted in silence.
        ("/login?max=5&state=debt&max=6", "`max` is there twice (give it once)"),
        ("/login/alice?cost=1&cost=1", "`cost` is there twice (give it once)"),
    ] {
        let found = detail(&get(&app, path).await, 400);
        assert!(found.contains(told), "{path}: {found}");
    }
    for (operation, body, status, told) in [
        ("penalize", "", 400, "the body is not JSON: EOF while parsing"),
        ("penalize", "{", 400, "the body is not JSON"),
        ("penalize", "[5]", 422, "the body is not an object"),
        ("penalize", "{}", 422, "the body has 0 fields (write `{\"tokens\": 5}`)"),
        ("penalize", r#"{"tokens": 5, "seconds": 5}"#, 422, "the body has 2 fields"),
        (
            "penalize",
            r#"{"tokens": 1, "tokens": 500}"#,
            400,
            "the body has `tokens` twice (give it",
        ),
        (
            "block",
            r#"{"time": "1 hour", "time": "1 s"}"#,
            400,
            "the body has `time` twice (give it",
        ),
        ("penalize", r#"{"seconds": 5}"#, 422, "`seconds` is not a field here"),
        ("penalize", r#"{"tokens": 0}"#, 422, "tokens `0` is not a whole number from 1 to"),
        ("penalize", r#"{"tokens": -5}"#, 422, "tokens `-5` is not a whole number"),
        ("penalize", r#"{"tokens": 1.5}"#, 422, "tokens `1.5` is not a whole number"),
        ("penalize", r#"{"tokens": "5"}"#, 422, "tokens `\"5\"` is not a whole number"),
        ("penalize", r#"{"tokens": 18446744073709551616}"#, 422, "is not a whole number"),
        (
            "block",
            r#"{"tokens": 5}"#,
            422,
            "`tokens` is not a field here (write `{\"seconds\": 3600}`",
        ),
        ("block", r#"{"seconds": 0}"#, 422, "seconds `0` is not a whole number from 1"),
        ("block", r#"{"time": 5}"#, 422, "time 5 is not a time (write `\"1 hour\"`"),
        ("block", r#"{"time": "soon"}"#, 422, "time \"soon\" is not a time"),
        ("block", r#"{"time": "0 seconds"}"#, 422, "is not a time"),
        ("block", "{\"time\": \"\u{1}\"}", 400, "the body is not JSON"),
        ("block", &format!("{{\"time\": \"{}\"}}", "x".repeat(5_000)), 413, "more than 4096 bytes"),
        ("block", &format!("{{\"time\": \"{}\"}}", "x".repeat(4_000)), 422, "is not a time"),
        ("block", &"[".repeat(4_000), 400, "the body is not JSON: recursion limit exceeded"),
    ] {
        let reply = post(&app, &format!("/login/alice/{operation}"), body).await;
        let found = detail(&reply, status);
        assert!(found.contains(told) && found.len() < 300, "{body}: {found}");
    }
    assert_eq!(at_once(limiter.peek(&LOGIN).key("alice")).unwrap().remaining(), 5);
}

/// No page of another site can make the browser of an operator send a change.
#[tokio::test]
async fn a_request_that_a_form_of_another_site_can_send_changes_nothing() {
    let (app, limiter, _) = begin();
    at_once(limiter.limit(&LOGIN).key("alice")).unwrap();
    let send = async |method: Method, path: &str, fields: &[(&str, &str)]| {
        let mut request = Request::builder().method(method).uri(format!("/admin/limits{path}"));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        ask(&app, request.body(Body::from(r#"{"tokens": 5}"#)).unwrap()).await
    };
    let json = ("content-type", "application/json");
    for content_type in [
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain",
        "text/plain; application/json",
        "application/jsonp",
        "",
    ] {
        let fields = [("content-type", content_type)];
        let reply = send(Method::POST, "/login/alice/penalize", &fields).await;
        assert!(detail(&reply, 415).contains("send `Content-Type: application/json`"));
    }
    let reply = send(Method::POST, "/login/alice/penalize", &[]).await;
    assert!(detail(&reply, 415).starts_with("content type `` is not JSON"));
    for site in ["cross-site", "same-site", ""] {
        let other = ("sec-fetch-site", site);
        for reply in [
            send(Method::POST, "/login/alice/penalize", &[json, other]).await,
            send(Method::POST, "/login/alice/block", &[json, other]).await,
            send(Method::DELETE, "/login/alice", &[other]).await,
        ] {
            assert!(detail(&reply, 403).contains("Sec-Fetch-Site"), "{site}");
        }
    }
    assert_eq!(at_once(limiter.peek(&LOGIN).key("alice")).unwrap().remaining(), 4);
    for site in ["same-origin", "none"] {
        let fields =
            [("content-type", "Application/JSON; charset=utf-8"), ("sec-fetch-site", site)];
        assert_eq!(send(Method::POST, "/login/alice/penalize", &fields).await.status, 200);
    }
    assert_eq!(
        send(Method::DELETE, "/login/alice", &[("sec-fetch-site", "none")]).await.status,
        204
    );
}

/// The guard stands before all that the routes answer: limits, keys, errors and paths without a route.
#[tokio::test]
async fn nothing_is_answered_without_the_guard() {
    async fn operators_only(request: Request, next: Next) -> Result<Response, StatusCode> {
        match request.headers().get(AUTHORIZATION) {
            Some(given) if given == "Bearer right" => Ok(next.run(request).await),
            _ => Err(StatusCode::UNAUTHORIZED),
        }
    }
    let limiter = RateLimiter::in_memory();
    let routes = admin(&limiter, [&LOGIN]).guard(from_fn(operators_only));
    let app = Router::new().nest("/admin/limits", routes.clone()).merge(routes);
    let server = serve(app).await;
    let json = ("content-type", "application/json");
    for mount in ["/admin/limits", ""] {
        for (method, path) in [
            (Method::GET, "/"),
            (Method::GET, "/login"),
            (Method::GET, "/login/alice"),
            (Method::HEAD, "/login/alice"),
            (Method::DELETE, "/login/alice"),
            (Method::POST, "/login/alice/block"),
            (Method::POST, "/login/alice/penalize"),
            (Method::GET, "/none"),
            (Method::GET, "/none/of/these/at/all"),
            (Method::PUT, "/login/alice"),
            (Method::OPTIONS, "/login/alice"),
        ] {
            let path = format!("{mount}{path}");
            for fields in [&[json][..], &[json, ("authorization", "Bearer wrong")]] {
                let reply = send(server, method.clone(), &path, fields).await;
                assert_eq!(
                    (reply.status.as_u16(), reply.body.as_str()),
                    (401, ""),
                    "{method} {path}"
                );
            }
        }
        let right = [json, ("authorization", "Bearer right")];
        let reply = send(server, Method::GET, &format!("{mount}/login/alice"), &right).await;
        assert_eq!(read(&reply)["remaining"], 5);
        let reply = send(server, Method::GET, &format!("{mount}/none"), &right).await;
        assert!(detail(&reply, 404).contains("there is no limit `none`"));
    }
}

/// The list of a store without keys is no empty list.
#[tokio::test]
async fn memory_answers_a_count_in_place_of_keys() {
    let (app, limiter, _) = begin();
    at_once(limiter.block(&LOGIN, DAY).key("mallory")).unwrap();
    at_once(limiter.penalize(&LOGIN, 9).key("eve")).unwrap();
    let page = read(&get(&app, "/login").await);
    assert_eq!(
        page,
        json!({
            "limit": "login",
            "at": START,
            "debtors": null,
            "count": { "blocked": 1, "debt": 1 },
            "detail": "the store keeps no keys, so it counts all buckets with the numbers `5 per hour` \
                       (look at a key by its name: `login/{key}`; a store made by \
                       `Memory::new().keep_keys()` lists them)",
        })
    );
    let page = read(&get(&app, "/login?state=blocked").await);
    assert_eq!(page["count"], json!({ "blocked": 1 }));
    // Of 70,000 buckets, the store counts some at a time.
    let large = RateLimiter::new(Memory::new().clock(ManualClock::new(START)));
    for key in 0..150_000_u64 {
        at_once(large.limit(&LOGIN).key(key)).unwrap();
        if key % 1_000 == 0 {
            at_once(large.penalize(&LOGIN, 10).key(key)).unwrap();
        }
    }
    let page = read(&get(&self::app(&large), "/login").await);
    assert_eq!(page["count"], json!({ "blocked": 0, "debt": 150 }));
}

/// A store that does not list, and fails when it is told to.
#[derive(Debug)]
struct Plain(Memory, bool);

impl Plain {
    fn ask<T>(&self, answer: Answer<T>) -> Answer<T> {
        let failure = BackendError::unavailable("plain", "its disk is gone");
        if self.1 { Answer::Ready(Err(failure)) } else { answer }
    }
}

impl Backend for Plain {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        self.ask(self.0.apply(charges))
    }
    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        self.ask(self.0.adjust(adjustments))
    }
    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.ask(self.0.reset(ids))
    }
}

#[tokio::test]
async fn a_store_that_cannot_list_or_does_not_answer_says_so() {
    let app = self::app(&RateLimiter::new(Plain(Memory::new(), false)));
    let told = detail(&get(&app, "/login").await, 501);
    assert_eq!(told, "the store of this limiter cannot list keys (look at a key by its name)");
    assert_eq!(get(&app, "/login/alice").await.status, 200);
    let app = self::app(&RateLimiter::new(Plain(Memory::new(), true)));
    for reply in [
        get(&app, "/login/alice").await,
        delete(&app, "/login/alice").await,
        post(&app, "/login/alice/block", r#"{"seconds": 1}"#).await,
    ] {
        let told = detail(&reply, 503);
        assert_eq!(told, "plain backend could not decide: its disk is gone");
        assert_eq!(reply.field("retry-after"), Some("1"));
    }
}

/// A store that lists these keys, each with a debt.
#[derive(Debug)]
struct Listing(Memory, &'static [&'static str]);

impl Backend for Listing {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        self.0.apply(charges)
    }
    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        self.0.adjust(adjustments)
    }
    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.0.reset(ids)
    }
    fn debtors(&self, query: &DebtorQuery) -> Answer<DebtorReport> {
        let debt = State { value: -1, ts: START };
        let debtor = |key: &&str| Debtor::new(Key::from(*key), 0, query.bucket(), debt, START);
        let debtors = self.1.iter().map(debtor).collect();
        Answer::Ready(Ok(DebtorReport::Page { at: START, debtors, next: None }))
    }
}

/// Clients choose keys. A link never becomes a step of a path or the address of another place.
#[tokio::test]
async fn a_link_leads_to_its_key_whatever_that_is() {
    static COLON: Limit = Limit::new("http://x", Quota::token_bucket(5, HOUR));
    static KEYS: [&str; 4] = [".", "..", "a:b", "..x"];
    let limiter = RateLimiter::new(Listing(Memory::new(), &KEYS));
    let app = Router::new().nest("/a:b", admin(&limiter, [&COLON]).without_authentication());
    let find =
        async |path: &str| read(&ask(&app, Request::get(path).body(Body::empty()).unwrap()).await);
    let page = find("/a:b").await;
    assert_eq!(page["limits"][0]["href"], "a%3Ab/http%3A%2F%2Fx");
    let page = find("/a:b/http:%2F%2Fx").await;
    let links: Vec<_> = page["debtors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["href"].as_str().unwrap())
        .collect();
    let wanted = ["%252E", "%252E%252E", "a%253Ab", "..x"];
    assert_eq!(links, wanted.map(|key| format!("http%3A%2F%2Fx/{key}")));
    for (link, key) in links.iter().zip(KEYS) {
        assert_eq!(find(&format!("/a:b/{link}")).await["key"], Key::from(key).to_text());
    }
}

#[tokio::test]
async fn memory_lists_the_keys_that_it_was_told_to_keep() {
    let limiter = RateLimiter::new(Memory::new().keep_keys());
    let server = serve(app(&limiter)).await;
    limiter.block(&LOGIN, DAY).key("mallory").await.unwrap();
    limiter.penalize(&LOGIN, 20).key(("acme", 7)).await.unwrap();
    let list = async || {
        let reply = send(server, Method::GET, "/admin/limits/login", &[]).await;
        let page = read(&reply);
        let key = |one: &Value| format!("{} {}", one["key"], one["href"]).replace('"', "");
        let mut keys: Vec<_> = page["debtors"].as_array().unwrap().iter().map(key).collect();
        keys.sort_unstable();
        keys
    };
    assert_eq!(list().await, ["acme|n=7 login/acme%7Cn%3D7", "mallory login/mallory"]);
    let reply = send(server, Method::DELETE, "/admin/limits/login/mallory", &[]).await;
    assert_eq!(reply.status, 204);
    assert_eq!(list().await, ["acme|n=7 login/acme%7Cn%3D7"]);
}

/// A gateway that passes `/admin/` never passes `/admin`, where `nest("/admin", ..)` would have the
/// first page.
#[tokio::test]
async fn each_page_is_found_behind_a_gateway_that_passes_a_path_with_a_slash() {
    static KEYS: [&str; 1] = ["alice"];
    let limiter = RateLimiter::new(Listing(Memory::new(), &KEYS));
    let routes = || admin(&limiter, [&LOGIN]).without_authentication();
    // Where it is mounted, where it is found, and what the gateway takes off.
    for (app, first, taken_off) in [
        (Router::new().nest("/admin/", routes()), "/admin/", ""),
        (Router::new().nest("/admin/limits", routes()), "/admin/limits", ""),
        (routes(), "/admin/", "/admin"),
        (Router::new().nest("/limits", routes()), "/admin/limits", "/admin"),
    ] {
        let server = serve(app).await;
        let get = async |path: &str| {
            assert!(path.starts_with("/admin/"), "{path} is not passed");
            let path = path.strip_prefix(taken_off).unwrap();
            let reply = send(server, Method::GET, path, &[]).await;
            assert_eq!(reply.status, 200, "{path}: {}", reply.body);
            read(&reply)
        };
        // As a browser follows a relative link.
        let follow = |from: &str, page: &Value| {
            let (folder, _) = from.rsplit_once('/').unwrap();
            format!("{folder}/{}", page["href"].as_str().unwrap())
        };
        let limit = follow(first, &get(first).await["limits"][0]);
        let key = follow(&limit, &get(&limit).await["debtors"][0]);
        assert_eq!(get(&key).await["key"], "alice", "{key}");
    }
}

#[test]
#[should_panic = "two limits have the name `login`"]
fn two_limits_of_one_name_are_a_mistake() {
    static PRO: Limit = Limit::new("login", Quota::token_bucket(500, HOUR));
    drop(admin(&RateLimiter::in_memory(), [&LOGIN, &PRO]));
}

/// Limits come from constants, values, and configurations.
#[tokio::test]
async fn the_limits_of_a_configuration_can_be_given() {
    let limiter = RateLimiter::in_memory();
    let table: std::collections::BTreeMap<String, Quota> =
        serde_json::from_str(r#"{"api": "10 per second"}"#).unwrap();
    let limits = table.iter().map(|(name, quota)| Limit::try_new(&**name, *quota).unwrap());
    let app: Router = admin(&limiter, limits).without_authentication();
    let reply = ask(&app, Request::get("/").body(Body::empty()).unwrap()).await;
    assert_eq!(read(&reply)["limits"][0]["href"], "api");
    assert_eq!(reply.headers[CACHE_CONTROL], "no-store");
    let routes = admin(&limiter, [LOGIN.clone(), API.clone()]);
    assert_eq!(format!("{routes:?}"), r#"UnguardedRoutes { limits: ["login", "api/v1 50%"], .. }"#);
    let limits = vec![&LOGIN, &API];
    assert_eq!(format!("{routes:?}"), format!("{:?}", admin(&limiter, &limits)));
    let none: [Limit; 0] = [];
    let app: Router = admin(&limiter, none).without_authentication();
    let reply = ask(&app, Request::get("/x").body(Body::empty()).unwrap()).await;
    assert!(detail(&reply, 404).ends_with("(none was given to these routes)"));
}
