//! Limits for visitors who have not logged in, in three ways: by a session alone, by a session that is
//! tied to an address, and by a session that was unlocked by a challenge.
//!
//! Run it with `cargo run --example anonymous_sessions --features credentials`.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::MockConnectInfo;
use axum::routing::{get, post};
use http::{Request, StatusCode};
use tollgate::key::{ClientIp, Extracted, Head, Key, KeyExtractor, cookie, from_fn, global};
use tollgate::{Limit, MINUTE, Quota, RateLimitExt, RateLimiter, Rule};
use tower::ServiceExt;

/// Weak: a client that drops the cookie, or makes one up, starts with a full bucket. This limit
/// only tells honest clients apart.
const SESSION: Limit = Limit::new("session", Quota::token_bucket(3, MINUTE));

/// Tied to an address: each session has its own limit, and all sessions of an address share another.
const TIED: Limit = Limit::new("tied-session", Quota::token_bucket(3, MINUTE));
const ADDRESS: Limit = Limit::new("address", Quota::token_bucket(6, MINUTE));

/// Unlocked: more for a session that has solved a challenge, little for each address that has not.
static UNLOCKED: Limit = Limit::new("unlocked", Quota::token_bucket(10, MINUTE));
static LOCKED: Limit = Limit::new("locked", Quota::token_bucket(1, MINUTE));
/// Verifying an answer costs the server something as well.
const ATTEMPTS: Limit = Limit::new("attempts", Quota::token_bucket(2, MINUTE));

/// The sessions that have solved a challenge, by their digests. In production they are stored, and
/// expire.
type Solved = Arc<Mutex<HashSet<Key>>>;

fn session(head: &Head<'_>) -> Option<Key> {
    let Ok(Extracted::Key(session)) = cookie("session").extract(head) else { return None };
    Some(session)
}

fn unlocked(solved: &Solved, head: &Head<'_>) -> Option<Key> {
    let solved = solved.lock().unwrap_or_else(PoisonError::into_inner);
    session(head).filter(|session| solved.contains(session))
}

pub(crate) fn app(limiter: &RateLimiter) -> Router {
    let solved = Solved::default();
    let address = ClientIp::peer; // behind a proxy, name the trusted proxies here

    let alone = limiter.layer(&SESSION).key(cookie("session").or(address()));
    let both = (cookie("session").or(global()), address());
    let tied = limiter.layer(Rule::new(&TIED).key(both)).and(Rule::new(&ADDRESS).key(address()));

    let (for_limit, for_key) = (Arc::clone(&solved), Arc::clone(&solved));
    let challenge = Rule::new(&LOCKED)
        .limit_with(move |head| unlocked(&for_limit, head).map_or(&LOCKED, |_| &UNLOCKED))
        .key(from_fn(move |head| unlocked(&for_key, head)).or(address()));
    let challenge = limiter.layer(challenge);

    // A stand-in for a puzzle or a proof of work, whose answer the server verifies.
    let verify = async move |request: Request<Body>| {
        let head = Head::new(&request);
        let is_right = head.headers().get("x-answer").is_some_and(|answer| answer == "42");
        let Some(session) = session(&head).filter(|_| is_right) else {
            return StatusCode::FORBIDDEN;
        };
        solved.lock().unwrap_or_else(PoisonError::into_inner).insert(session);
        StatusCode::NO_CONTENT
    };
    Router::new()
        .route("/alone", get(async || "hello").rate_limit(alone))
        .route("/tied", get(async || "hello").rate_limit(tied))
        .route("/challenge", get(async || "hello").rate_limit(challenge))
        .route("/solve", post(verify).rate_limit(limiter.layer(&ATTEMPTS).key(address())))
}

pub(crate) async fn ask(app: &Router, address: [u8; 4], session: &str, path: &str) -> u16 {
    let method = if path == "/solve" { "POST" } else { "GET" };
    let request = Request::builder().method(method).uri(path).header("x-answer", "42");
    let request = request.header("cookie", format!("session={session}")).body(Body::empty());
    let app = app.clone().layer(MockConnectInfo(SocketAddr::from((address, 5123))));
    let Ok(response) = app.oneshot(request.expect("a path and a name make a request")).await;
    response.status().as_u16()
}

#[tokio::main]
async fn main() {
    let app = app(&RateLimiter::in_memory());
    for path in ["/alone", "/tied", "/challenge", "/solve", "/challenge"] {
        for session in ["alice", "alice", "alice", "alice", "made-up-1", "made-up-2"] {
            println!("{path} as {session}: {}", ask(&app, [192, 0, 2, 1], session, path).await);
        }
    }
}
