//! Clients that try to be counted by a cookie other than the one that `tower-sessions` uses.

use axum::Router;
use axum::routing::get;
use http::header::COOKIE;
use http::{HeaderMap, Method, Version};
use proptest::prelude::*;
use tollgate::clock::ManualClock;
use tollgate::key::{self, ClientIp, Extracted, Head, KeyExtractor, cookie};
use tollgate::{Limit, MINUTE, Quota};
use tollgate_testing::fuzz::bytes::draws_each;
use tollgate_testing::fuzz::cookies::{NAME, cookie_fields, value};
use tollgate_testing::web::{send_over, serve};
use tollgate_testing::{START, limiter};
use tower_sessions::cookie::{Cookie, CookieJar};
use tower_sessions::{MemoryStore, Session, SessionManagerLayer};

static TWO: Limit = Limit::new("two", Quota::token_bucket(2, MINUTE));

/// `tower-sessions` trims all white space of Unicode around the names and the values of cookies, and the
/// key was read without that: behind a no-break space a session had no key, or a new one for each of the
/// ways to write it: 10 of 14 requests ran under a limit of 2.
#[tokio::test]
async fn white_space_around_a_cookie_is_no_other_session() {
    let limit = limiter(&ManualClock::new(START)).layer(&TWO);
    // Requests without a session are not in the buckets of sessions.
    let limit = limit.key(cookie("id").or(ClientIp::peer()));
    let sessions = SessionManagerLayer::new(MemoryStore::default()).with_secure(false);
    let log_in = async |session: Session| session.insert("user", "alice").await.unwrap();
    let user = async |session: Session| session.get::<String>("user").await.unwrap();
    let app = Router::new()
        .route("/user", get(async move |session: Session| user(session).await.unwrap_or_default()))
        .layer(limit)
        .route("/log-in", get(log_in))
        .layer(sessions);
    let server = serve(app).await;

    let logged_in = tollgate_testing::web::get(server, "/log-in").await;
    let (id, _) = logged_in.field("set-cookie").unwrap().split_once(';').unwrap();
    let (_, value) = id.split_once('=').unwrap();
    let spaces = ["", "\u{a0}", "\u{2003}", "\u{3000}", "\u{a0}\u{a0}", "\u{2028}", "\u{85}"];
    let spell = |space: &&str| [format!("{space}id={value}"), format!("id={value}{space}")];
    let mut admitted = Vec::new();
    for (nth, cookie) in spaces.iter().flat_map(spell).enumerate() {
        let version = if nth % 2 == 0 { Version::HTTP_11 } else { Version::HTTP_2 };
        let fields = [("cookie", &*cookie)];
        let reply = send_over(version, server, Method::GET, "/user", &fields).await;
        match reply.status.as_u16() {
            200 => admitted.push((cookie, reply.body)),
            status => assert_eq!(status, 429, "{cookie:?}"),
        }
    }
    assert!(admitted.iter().all(|(_, user)| user == "alice"), "{admitted:?}");
    assert_eq!(admitted.len(), 2, "of {} requests: {admitted:?}", spaces.len() * 2);
}

/// The jar as `tower-cookies` 0.11 makes it, from which `tower-sessions` takes the id of the session.
fn jar(headers: &HeaderMap) -> CookieJar {
    let mut jar = CookieJar::new();
    for line in headers.get_all(COOKIE) {
        if let Ok(text) = std::str::from_utf8(line.as_bytes()) {
            for pair in text.split(';') {
                if let Ok(cookie) = Cookie::parse_encoded(pair.to_owned()) {
                    jar.add_original(cookie);
                }
            }
        }
    }
    jar
}

#[test]
fn cookies_are_drawn_that_a_jar_finds_and_others() {
    let found = |headers: &HeaderMap| jar(headers).get(NAME).is_some();
    draws_each(&cookie_fields(), 2, |field| found(field.request("cookie").headers()));
}

proptest! {
    /// The session that the server uses is the one that is counted, or the request fails: a client
    /// cannot be counted by another cookie, or by none.
    #[test]
    fn the_cookie_that_a_jar_finds_is_the_one_that_is_counted(field in cookie_fields()) {
        let request = field.request("cookie");
        if let Some(used) = jar(request.headers()).get(NAME) {
            let used = value(used.value().as_bytes());
            match cookie(NAME).extract(&Head::new(&request)) {
                Ok(Extracted::Key(found)) => prop_assert_eq!(found, key::digest(used)),
                Ok(other) => prop_assert!(false, "a cookie exempts nothing: {:?}", other),
                Err(error) if error.is_empty() => prop_assert_eq!(used, b""),
                Err(error) => prop_assert!(!error.is_missing(), "a cookie is used that is not counted"),
            }
        }
    }
}
