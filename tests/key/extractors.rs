//! Keys from axum's extractors: an extractor that waits runs before the limit decides.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::response::Response;
use axum::routing::get;
use http::request::Parts;
use http::{HeaderName, Request, StatusCode};
use tollgate::clock::ManualClock;
use tollgate::key::{self, KeyExtractor, extension, header};
use tollgate::routes::extract;
use tollgate::{Limit, MINUTE, Quota, RateLimitLayer, Rule};
use tollgate_testing::web::Reply;
use tollgate_testing::{START, limiter};
use tower::{Layer, Service, ServiceExt};

static TWO: Limit = Limit::new("two", Quota::token_bucket(2, MINUTE));

fn two(key: impl KeyExtractor) -> RateLimitLayer {
    two_by(Rule::new(&TWO).key(key).missing_key(StatusCode::INTERNAL_SERVER_ERROR))
}

fn two_by(rule: Rule) -> RateLimitLayer {
    limiter(&ManualClock::new(START)).layer(rule)
}

fn hello() -> Router {
    Router::new().route("/", get(async || "hello"))
}

async fn ask(app: &Router, fields: &[(&str, &str)]) -> Reply {
    let mut request = Request::get("/");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let Ok(response) = app.clone().oneshot(request.body(Body::empty()).unwrap()).await;
    Reply::read(response).await
}

async fn statuses<const N: usize>(app: &Router, fields: [&[(&str, &str)]; N]) -> [u16; N] {
    let mut statuses = [0; N];
    for (status, fields) in statuses.iter_mut().zip(fields) {
        *status = ask(app, fields).await.status.as_u16();
    }
    statuses
}

/// Users that are looked up, which takes a moment.
#[derive(Clone, Debug, Default)]
struct Users {
    asked: Arc<AtomicU32>,
}

/// Not `Clone`, as a connection might not be.
struct User {
    id: u64,
}

impl FromRequestParts<Users> for User {
    type Rejection = (StatusCode, [(HeaderName, &'static str); 1], &'static str);

    async fn from_request_parts(parts: &mut Parts, users: &Users) -> Result<Self, Self::Rejection> {
        tokio::task::yield_now().await;
        users.asked.fetch_add(1, Ordering::Relaxed);
        let id = parts.headers.get("x-user").and_then(|id| id.to_str().ok()?.parse().ok());
        let scheme = (http::header::WWW_AUTHENTICATE, "Basic");
        id.map(|id| User { id }).ok_or((StatusCode::UNAUTHORIZED, [scheme], "who are you?"))
    }
}

#[derive(Clone)]
struct UserId(u64);

#[tokio::test]
async fn an_extractor_that_waits_finds_the_key() {
    let users = Users::default();
    let app = hello()
        .layer(two(extension(|user: &UserId| user.0)))
        .layer(extract(|user: User| UserId(user.id)).state(users.clone()));
    let (alice, bob) = (&[("x-user", "1")][..], &[("x-user", "2")][..]);
    assert_eq!(statuses(&app, [alice, alice, alice, bob, alice]).await, [200, 200, 429, 200, 429]);
    assert_eq!(users.asked.load(Ordering::Relaxed), 5);
    assert_eq!(ask(&app, bob).await.body, "hello");
}

#[tokio::test]
async fn a_rejection_is_the_answer_and_takes_nothing() {
    let app = hello()
        .layer(two(key::global()))
        .layer(extract(|user: User| UserId(user.id)).state(Users::default()));
    for _ in 0..5 {
        let reply = ask(&app, &[]).await;
        assert_eq!((reply.status.as_u16(), reply.body.as_str()), (401, "who are you?"));
        assert_eq!(reply.field("www-authenticate"), Some("Basic"));
        assert_eq!(reply.field("ratelimit"), None);
    }
    let alice = &[("x-user", "1")][..];
    assert_eq!(statuses(&app, [alice, alice, alice]).await, [200, 200, 429]);
}

#[tokio::test]
async fn a_request_that_is_rejected_may_go_on_without_a_key() {
    let find = || extract(|user: User| UserId(user.id)).state(Users::default()).optional();
    let key = || extension(|user: &UserId| user.0);
    let (alice, anonymous) = (&[("x-user", "1")][..], &[][..]);
    let refused = hello().layer(two(key())).layer(find());
    assert_eq!(statuses(&refused, [alice, anonymous]).await, [200, 500]);
    let exempt =
        hello().layer(two_by(Rule::new(&TWO).key(key()).missing_key_exempt())).layer(find());
    assert_eq!(statuses(&exempt, [anonymous; 4]).await, [200; 4]);
    let or_all = hello().layer(two(key().or(key::global()))).layer(find());
    assert_eq!(
        statuses(&or_all, [anonymous, anonymous, anonymous, alice]).await,
        [200, 200, 429, 200]
    );
}

#[tokio::test]
async fn extractors_of_axum_itself_will_do() {
    let by_query = |query: axum::extract::RawQuery| query.0.unwrap_or_default();
    let app =
        hello().layer(two(extension(|tenant: &String| tenant.clone()))).layer(extract(by_query));
    let ask = async |uri: &str| {
        let Ok(response) =
            app.clone().oneshot(Request::get(uri).body(Body::empty()).unwrap()).await;
        response.status().as_u16()
    };
    let asked = [ask("/?a").await, ask("/?a").await, ask("/?a").await, ask("/?b").await];
    assert_eq!(asked, [200, 200, 429, 200]);
    // An empty one is none.
    assert_eq!(ask("/").await, 400);
}

#[tokio::test]
async fn extractors_can_be_put_on_a_route_and_be_several() {
    #[derive(Clone)]
    struct Language(Option<String>);

    let language = extract(|headers: http::HeaderMap| {
        Language(headers.get("accept-language").and_then(|value| Some(value.to_str().ok()?.into())))
    });
    let key = (
        extension(|user: &UserId| user.0),
        extension(|language: &Language| language.0.clone().unwrap_or("en".into())),
    );
    let user = extract(|user: User| UserId(user.id)).state(Users::default());
    let app = hello().route_layer(two(key)).route_layer(language).route_layer(user);
    let german = &[("x-user", "1"), ("accept-language", "de")][..];
    let english = &[("x-user", "1")][..];
    assert_eq!(statuses(&app, [german, german, german, english]).await, [200, 200, 429, 200]);
}

/// Refuses to be called unless this very copy was made ready.
#[derive(Debug)]
struct Strict {
    is_ready: bool,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { is_ready: false }
    }
}

impl Service<Request<Body>> for Strict {
    type Response = Response;
    type Error = Infallible;
    type Future = Ready<Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        assert!(mem::take(&mut self.is_ready), "called without having been made ready");
        ready(Ok(Response::new(Body::empty())))
    }
}

#[tokio::test]
async fn the_service_that_was_made_ready_is_the_one_that_is_called() {
    let layer = extract(|user: User| UserId(user.id)).state(Users::default());
    let mut service = layer.layer(Strict { is_ready: false });
    for _ in 0..3 {
        let request = Request::get("/").header("x-user", "1").body(Body::empty()).unwrap();
        let Ok(ready) = ServiceExt::<Request<Body>>::ready(&mut service).await;
        assert_eq!(ready.call(request).await.unwrap().status(), 200);
    }
    assert!(format!("{service:?} {layer:?}").contains("User"));
    service.get_mut().is_ready = true;
    assert!(service.get_ref().is_ready && service.into_inner().is_ready);
}

// One limit chosen for each request.

#[tokio::test]
async fn each_method_path_or_plan_has_its_limit() {
    static READS: Limit = Limit::new("reads", Quota::token_bucket(3, MINUTE));
    static WRITES: Limit = Limit::new("writes", Quota::token_bucket(1, MINUTE));
    static EXPORTS: Limit = Limit::new("exports", Quota::token_bucket(2, MINUTE));
    static PRO: Limit = Limit::new("exports", Quota::token_bucket(4, MINUTE));

    let choose = |head: &key::Head<'_>| {
        let is_pro = head.extensions().get().is_some_and(|plan: &Plan| plan.0 == "pro");
        match (head.method().is_safe(), head.uri().path()) {
            (_, path) if path.starts_with("/export") => {
                if is_pro {
                    &PRO
                } else {
                    &EXPORTS
                }
            }
            (true, _) => &READS,
            (false, _) => &WRITES,
        }
    };
    #[derive(Clone)]
    struct Plan(String);

    let plan = |headers: http::HeaderMap| {
        Plan(headers.get("x-plan").map_or("free", |plan| plan.to_str().unwrap()).to_owned())
    };
    let by_user = header("x-user").unless(|head| head.uri().path() == "/health");
    let rule = Rule::new(&READS).limit_with(choose).key(by_user);
    let app = Router::new()
        .route("/{*path}", axum::routing::any(async || "hello"))
        .layer(limiter(&ManualClock::new(START)).layer(rule))
        .layer(extract(plan));
    let admitted = async |method: &str, path: &str, user: &str, plan: &str| {
        let mut admitted = 0;
        for _ in 0..9 {
            let request = Request::builder().method(method).uri(path);
            let request = request.header("x-user", user).header("x-plan", plan);
            let Ok(response) = app.clone().oneshot(request.body(Body::empty()).unwrap()).await;
            admitted += u32::from(response.status() == 200);
        }
        admitted
    };
    assert_eq!(admitted("GET", "/a", "alice", "free").await, 3);
    assert_eq!(admitted("POST", "/a", "alice", "free").await, 1);
    assert_eq!(admitted("GET", "/export", "alice", "free").await, 2);
    assert_eq!(admitted("GET", "/export", "bob", "pro").await, 4);
    assert_eq!(admitted("GET", "/health", "alice", "free").await, 9);
}
