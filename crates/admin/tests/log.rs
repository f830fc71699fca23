//! What operators do is in the log, and the keys that they do it to are not.

#![cfg(feature = "tracing")]

use std::io;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use http::header::CONTENT_TYPE;
use tollgate::{HOUR, Limit, Quota, RateLimiter};
use tollgate_admin::admin;
use tollgate_testing::at_once;
use tower::ServiceExt;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));

#[test]
fn each_change_of_an_operator_is_logged_without_its_key() {
    let app: Router = admin(&RateLimiter::in_memory(), [&LOGIN]).without_authentication();
    let ask = |request: Request| at_once(app.clone().oneshot(request)).unwrap().status().as_u16();
    let post = |path: &str, body: &'static str| {
        let request = Request::post(path).header(CONTENT_TYPE, "application/json");
        ask(request.body(Body::from(body)).unwrap())
    };
    let bare = |request: http::request::Builder| ask(request.body(Body::empty()).unwrap());
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_ansi(false)
        .with_writer(move || writer.clone());
    // The only test of its process, so that no other thread decides what is logged.
    tracing::subscriber::with_default(subscriber.finish(), || {
        assert_eq!(post("/login/mallory/penalize", r#"{"tokens": 5}"#), 200);
        assert_eq!(post("/login/mallory/block", r#"{"time": "1 hour"}"#), 200);
        assert_eq!(bare(Request::delete("/login/mallory")), 204);
        // These change nothing.
        assert_eq!(bare(Request::get("/login/mallory")), 200);
        assert_eq!(bare(Request::get("/login")), 200);
        assert_eq!(post("/login/mallory/penalize", r#"{"tokens": -5}"#), 422);
        let foreign = Request::delete("/login/mallory").header("sec-fetch-site", "cross-site");
        assert_eq!(bare(foreign), 403);
    });
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<_> = log.lines().collect();
    let told = [
        r#"limit="login" operation="penalize" tokens=5"#,
        r#"limit="login" operation="block" time=3600s"#,
        r#"limit="login" operation="reset""#,
    ];
    assert_eq!(lines.len(), told.len(), "{lines:#?}");
    for (line, told) in lines.iter().zip(told) {
        assert!(line.contains("INFO") && line.contains("an operator changes a key"), "{line}");
        assert!(line.contains(told) && !line.contains("mallory"), "{line}");
    }
}
