//! Sessions of `tower-sessions` as keys, as the guide to keys has them.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::get;
use http::{Request, StatusCode};
use tollgate::clock::ManualClock;
use tollgate::key::{self, KeyExtractor, extension};
use tollgate::{Limit, MINUTE, Quota, RateLimitLayer, Rule};
use tollgate_testing::{START, limiter};
use tower::ServiceExt;
use tower_sessions::session::Id;
use tower_sessions::{MemoryStore, Session, SessionManagerLayer};

static TWO: Limit = Limit::new("two", Quota::token_bucket(2, MINUTE));

fn two(key: impl KeyExtractor) -> RateLimitLayer {
    let rule = Rule::new(&TWO).key(key).missing_key(StatusCode::FORBIDDEN);
    limiter(&ManualClock::new(START)).layer(rule)
}

fn hello() -> Router {
    Router::new().route("/", get(async || "hello"))
}

/// The statuses of requests with these cookies, or without one.
async fn statuses<const N: usize>(app: &Router, cookies: [&str; N]) -> [u16; N] {
    let mut statuses = [0; N];
    for (status, cookie) in statuses.iter_mut().zip(cookies) {
        let mut request = Request::get("/");
        if !cookie.is_empty() {
            request = request.header("cookie", cookie);
        }
        let Ok(response) = app.clone().oneshot(request.body(Body::empty()).unwrap()).await;
        *status = response.status().as_u16();
    }
    statuses
}

fn session() -> impl KeyExtractor {
    extension(|session: &Session| session.id().map(|id| key::digest(id.0.to_be_bytes())))
}

/// A session with something in it, as its cookie.
async fn logged_in(store: &MemoryStore) -> (Id, String) {
    let session = Session::new(None, Arc::new(store.clone()), None);
    session.insert("user", 7).await.unwrap();
    session.save().await.unwrap();
    let id = session.id().unwrap();
    (id, format!("id={id}"))
}

async fn load(session: Session, request: axum::extract::Request, next: Next) -> Response {
    session.get_value("").await.unwrap();
    next.run(request).await
}

#[tokio::test]
async fn a_session_of_tower_sessions_is_a_key() {
    let store = MemoryStore::default();
    let app = hello().layer(two(session())).layer(SessionManagerLayer::new(store.clone()));
    let ((_, alice), (_, bob)) = (logged_in(&store).await, logged_in(&store).await);
    assert_eq!(statuses(&app, [&alice, &alice, &alice, &bob]).await, [200, 200, 429, 200]);
    assert_eq!(statuses(&app, ["", "id=garbage"]).await, [403, 403]);
}

#[tokio::test]
async fn a_session_that_was_made_up_is_missing_once_it_is_loaded() {
    let store = MemoryStore::default();
    let manager = SessionManagerLayer::new(store.clone());
    let key = || session().or(key::global());
    let lazy = hello().layer(two(key())).layer(manager.clone());
    let loaded = hello().layer(two(key())).layer(from_fn(load)).layer(manager);
    let made_up = [(); 3].map(|()| format!("id={}", Id::default()));
    let made_up = made_up.each_ref().map(String::as_str);
    assert_eq!(statuses(&lazy, made_up).await, [200, 200, 200]);
    assert_eq!(statuses(&loaded, made_up).await, [200, 200, 429]);
    let (_, alice) = logged_in(&store).await;
    assert_eq!(statuses(&loaded, [&*alice]).await, [200]);
}

#[tokio::test]
async fn the_id_of_a_session_is_not_its_key() {
    let store = MemoryStore::default();
    let (id, _) = logged_in(&store).await;
    let mut request = Request::new(());
    request.extensions_mut().insert(Session::new(Some(id), Arc::new(store), None));
    let key = tollgate_testing::address::key(&session(), &request);
    assert_eq!(key, key::digest(id.0.to_be_bytes()));
    assert!(!key.as_bytes().windows(16).any(|bytes| bytes == id.0.to_be_bytes()));
}

/// As of any extension: the error names the type, and where requests without it pass, the log does.
#[test]
fn a_request_without_a_session_has_no_key_and_says_which_extension_is_missing() {
    let request = Request::new(());
    let head = key::Head::new(&request);
    let error = session().extract(&head).unwrap_err();
    assert!(error.is_missing());
    assert!(error.to_string().contains(std::any::type_name::<Session>()), "{error}");
    let warning = session().setup_warning(&head).unwrap().to_string();
    assert!(warning.contains(std::any::type_name::<Session>()), "{warning}");
    let mut request = Request::new(());
    let store = Arc::new(MemoryStore::default());
    request.extensions_mut().insert(Session::new(None, store, None));
    assert!(session().extract(&key::Head::new(&request)).unwrap_err().is_missing());
}
