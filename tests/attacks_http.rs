//! Clients that try to get more than their limit by how they write a request: each attack is played
//! by a real client against a real server.
//!
//! Time stands still, so whatever runs above the limit is a fault.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::routing::get;
use http::{HeaderMap, Method, Version};
use support::web::{send, send_over, serve};
use support::{START, limiter};
use tollgate::clock::ManualClock;
use tollgate::key::{ClientIp, KeyExtractor, Networks, api_key, bearer, cookie, header};
use tollgate::middleware::MissingKey;
use tollgate::{Limit, MINUTE, Quota, Rule};

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

/// Servers differ in which blanks they take between the scheme and the token. With another than one
/// space, the token counted as missing, which may exempt a request.
#[tokio::test]
async fn blanks_before_a_token_make_it_neither_another_one_nor_missing() {
    let rule = by(bearer()).missing_key(MissingKey::Exempt);
    let between = [" ", "  ", "\t", " \t", "\t "].map(|blanks| format!("Bearer{blanks}sesame"));
    assert_eq!(statuses(rule, "authorization", between).await, [200, 200, 429, 429, 429]);
}

/// All clients that send blanks would share a bucket otherwise, or have one for each length.
#[tokio::test]
async fn a_value_of_blanks_is_an_empty_one() {
    let blank = || ["", " ", "\t", " \t ", "   "].map(String::from);
    for (name, rule, field, status) in [
        ("header", by(header("x-key")), "x-key", 400),
        ("header or peer", by(header("x-key").or(ClientIp::peer())), "x-key", 400),
        ("api_key", by(api_key("x-key")), "x-key", 400),
        ("bearer", by(bearer()), "authorization", 400),
        // No pair of a name and a value: no such cookie, and none of them is one.
        ("cookie", by(cookie("session")), "cookie", 200),
    ] {
        let rule = rule.missing_key(MissingKey::Exempt);
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

/// A server answers HEAD by what it does for GET, axum by the handler of GET: a client that sends HEAD
/// had that work done without a limit, 7 of 7 times.
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
