//! What recorded servers refuse with, and what becomes of a request where they name no wait.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use http::{Method, Request, Response, StatusCode};
use retry_policies::policies::ExponentialBackoff;
use retry_policies::{Jitter, RetryDecision, RetryPolicy};
use tokio::time::Instant;
use tollgate::{HOUR, SECOND};
use tollgate_client::Unreadable;
use tollgate_client::retry::RetryLayer;
use tower::retry::budget::{Budget, TpsBudget};
use tower::{Layer, ServiceExt, service_fn};

/// What is sent with a request: its method, and its `Idempotency-Key`.
type Sent = Arc<Mutex<Vec<(Method, Option<String>)>>>;

/// Sends a request to a server that gives these answers, and then 200. Returns the last status, how
/// many milliseconds that took, and what was sent.
async fn ask(
    layer: &RetryLayer,
    request: Request<()>,
    answers: &[&str],
) -> (u16, u128, Vec<(Method, Option<String>)>) {
    let sent = Sent::default();
    let log = Arc::clone(&sent);
    let answers: Vec<String> = answers.iter().map(|answer| answer.to_string()).collect();
    let server = service_fn(move |request: Request<()>| {
        let mut log = log.lock().unwrap();
        let mut response = Response::builder();
        for line in answers.get(log.len()).map_or("", String::as_str).lines() {
            let (name, value) = line.trim().split_once(": ").unwrap();
            response = match name {
                ":status" => response.status(value),
                _ => response.header(name, value),
            };
        }
        let key = request.headers().get("idempotency-key");
        log.push((request.method().clone(), key.map(|key| key.to_str().unwrap().to_owned())));
        std::future::ready(Ok::<_, Infallible>(response.body(()).unwrap()))
    });
    let start = Instant::now();
    let response = layer.layer(server).oneshot(request).await.unwrap();
    let sent = std::mem::take(&mut *sent.lock().unwrap());
    (response.status().as_u16(), start.elapsed().as_millis(), sent)
}

/// The status, the milliseconds, and how often it was sent.
async fn get(layer: &RetryLayer, answer: &str) -> (u16, u128, usize) {
    let (status, millis, sent) = ask(layer, Request::new(()), &[answer]).await;
    (status, millis, sent.len())
}

/// GitHub refuses by 403 and was never waited for.
#[tokio::test(start_paused = true)]
async fn a_403_is_waited_for_only_if_it_names_a_wait() {
    let layer = RetryLayer::new().max_wait(HOUR);
    let nothing_left = ":status: 403\ndate: Tue, 14 Nov 2023 22:13:20 GMT\n\
                        x-ratelimit-remaining: 0\nx-ratelimit-reset: 1700000060";
    for (answer, wanted) in [
        (":status: 403\nretry-after: 60", (200, 60_000, 2)),
        (nothing_left, (200, 60_000, 2)),
        (":status: 403\nx-ratelimit-remaining: 4987\nx-ratelimit-reset: 60", (403, 0, 1)),
        (":status: 403\nx-ratelimit-remaining: 0", (403, 0, 1)),
        (":status: 403", (403, 0, 1)),
    ] {
        assert_eq!(get(&layer, answer).await, wanted, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_statuses_that_refuse_can_be_named() {
    let named = [420, 430, 529].map(|status| StatusCode::from_u16(status).unwrap());
    let layer = RetryLayer::new().statuses(named);
    for status in [420, 430, 529] {
        let answer = format!(":status: {status}\nretry-after: 7");
        assert_eq!(get(&layer, &answer).await, (200, 7_000, 2));
        assert_eq!(get(&RetryLayer::new(), &answer).await, (status, 0, 1));
    }
    assert_eq!(get(&layer, ":status: 429\nretry-after: 7").await, (429, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn what_a_server_asks_not_to_send_again_is_returned() {
    for field in ["x-should-retry", "stripe-should-retry"] {
        let answer = |says: &str| format!(":status: 429\nretry-after: 7\n{field}: {says}");
        assert_eq!(get(&RetryLayer::new(), &answer("false")).await, (429, 0, 1));
        assert_eq!(get(&RetryLayer::new(), &answer("true")).await, (200, 7_000, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_grpc_refusal_in_the_head_is_waited_for() {
    let refusal = ":status: 200\ngrpc-status: 8\ngrpc-retry-pushback-ms: ";
    assert_eq!(get(&RetryLayer::new(), &format!("{refusal}4321")).await, (200, 4_321, 2));
    assert_eq!(get(&RetryLayer::new(), &format!("{refusal}-1")).await, (200, 0, 1));
}

/// A policy that says so, in place of random waits.
#[derive(Clone, Copy)]
struct Every(Duration);

impl RetryPolicy for Every {
    fn should_retry(&self, _: SystemTime, past: u32) -> RetryDecision {
        match past {
            0..9 => RetryDecision::Retry { execute_after: SystemTime::now() + self.0 * (past + 1) },
            _ => RetryDecision::DoNotRetry,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_wait_the_policy_decides() {
    let bare = [":status: 429"; 20];
    let layer = RetryLayer::new().backoff(Every(SECOND)).tries(20);
    let ask = async |layer: &RetryLayer, answers: &[&str]| {
        let (status, millis, sent) = ask(layer, Request::new(()), answers).await;
        (status, (millis + 500) / 1_000, sent.len())
    };
    assert_eq!(ask(&RetryLayer::new(), &bare).await, (429, 0, 1));
    // Waits of 1, 2 and 3 seconds.
    assert_eq!(ask(&layer, &bare[..3]).await, (200, 6, 4));
    // Nine retries, if they fit.
    assert_eq!(ask(&layer.clone().max_wait(HOUR), &bare).await, (429, 45, 10));
    assert_eq!(ask(&layer.clone().tries(3), &bare).await, (429, 3, 3));
    assert_eq!(ask(&layer.clone().max_wait(5 * SECOND), &bare).await, (429, 3, 3));
    // A wait that the server names is waited for instead.
    assert_eq!(ask(&layer, &[":status: 429\nretry-after: 7"]).await, (200, 7, 2));
    assert_eq!(ask(&layer, &[":status: 500", ":status: 500"]).await, (500, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn full_jitter_spreads_the_waits_below_the_exponential_bound() {
    let backoff = ExponentialBackoff::builder()
        .retry_bounds(SECOND, 8 * SECOND)
        .jitter(Jitter::Full)
        .build_with_max_retries(1);
    let layer = RetryLayer::new().backoff(backoff);
    let mut waits = Vec::new();
    for _ in 0..100 {
        waits.push(get(&layer, ":status: 429").await.1);
    }
    // Alike by chance: one in a thousand to the power of 99.
    assert!(waits.iter().all(|wait| *wait <= 1_001), "{waits:?}");
    assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
}

/// After a 503 the work may have been done.
#[tokio::test(start_paused = true)]
async fn without_a_wait_no_work_is_done_twice_that_must_not_be() {
    let layer = RetryLayer::new().backoff(Every(SECOND));
    let overloaded = StatusCode::from_u16(529).unwrap();
    let all = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE, overloaded];
    let layer = layer.statuses(all);
    for (method, key, status, sends) in [
        (Method::GET, None, 503, 2),
        (Method::PUT, None, 529, 2),
        (Method::POST, None, 503, 1),
        (Method::POST, None, 529, 1),
        (Method::PATCH, None, 503, 1),
        (Method::POST, Some("a-key"), 503, 2),
        (Method::POST, None, 429, 2),
    ] {
        let mut request = Request::builder().method(method.clone());
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let request = request.body(()).unwrap();
        let (_, _, sent) = ask(&layer, request, &[&format!(":status: {status}")]).await;
        // Each time with the same key.
        let wanted = vec![(method, key.map(str::to_owned)); sends];
        assert_eq!(sent, wanted, "{status}");
    }
    // With a wait, it was not done.
    let post = Request::post("/").body(()).unwrap();
    let (status, _, sent) = ask(&layer, post, &[":status: 503\nretry-after: 1"]).await;
    assert_eq!((status, sent.len()), (200, 2));
    // A limit with nothing left says nothing of what a 503 is about.
    let post = Request::post("/").body(()).unwrap();
    let exhausted = ":status: 503\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 1";
    assert_eq!(ask(&layer, post, &[exhausted]).await.2.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn retries_end_with_their_budget() {
    /// Counts what is paid in.
    #[derive(Default)]
    struct Purse(Mutex<i32>);
    impl Budget for Purse {
        fn deposit(&self) {
            *self.0.lock().unwrap() += 1;
        }

        fn withdraw(&self) -> bool {
            let mut purse = self.0.lock().unwrap();
            *purse -= i32::from(*purse > 0);
            *purse > 0
        }
    }
    let refusal = ":status: 429\nretry-after: 1";
    let layer = RetryLayer::new().budget(Purse::default());
    assert_eq!(get(&layer, refusal).await, (429, 0, 1));
    for _ in 0..3 {
        assert_eq!(get(&layer, ":status: 200").await, (200, 0, 1));
    }
    // A retry takes out, and its answer pays in.
    let (status, _, sent) = ask(&layer, Request::new(()), &[refusal; 9]).await;
    assert_eq!((status, sent.len()), (429, 3));
    // The budget of tower.
    let layer = RetryLayer::new().budget(TpsBudget::new(10 * SECOND, 1, 0.1));
    let mut sends = 0;
    for _ in 0..20 {
        sends += ask(&layer, Request::new(()), &[refusal; 9]).await.2.len();
    }
    assert!((30..60).contains(&sends), "{sends} sends, and 100 without the budget");
}

#[tokio::test(start_paused = true)]
async fn a_field_that_cannot_be_read_is_told_once_for_each_host() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&told);
    let layer = RetryLayer::new().on_unreadable(move |host: &str, field: &Unreadable| {
        log.lock().unwrap().push(format!("{host}: {field}"));
    });
    for host in ["one.example", "two.example:8080", "one.example"] {
        for value in ["soon", "later"] {
            let request = Request::get(format!("http://{host}/")).body(()).unwrap();
            let answer = format!(":status: 429\nretry-after: {value}\nratelimit: ;");
            ask(&layer, request, &[&answer]).await;
        }
    }
    let of = |host| {
        [
            format!("{host}: cannot read `ratelimit: ;` (it changes nothing)"),
            format!("{host}: cannot read `retry-after: soon` (a wait of 30s is assumed)"),
        ]
    };
    assert_eq!(*told.lock().unwrap(), [of("one.example"), of("two.example")].concat());
}

/// Only a 503 was spared: a `POST` that another server error answered was carried out twice, if it
/// had used the last token of a limit.
#[tokio::test(start_paused = true)]
async fn a_limit_with_nothing_left_repeats_no_work_after_any_server_error() {
    let errors = [500, 502, 529].map(|status| StatusCode::from_u16(status).unwrap());
    let layer = RetryLayer::new().statuses(errors);
    let exhausted = "x-ratelimit-remaining: 0\nx-ratelimit-reset: 1";
    for error in [":status: 500", ":status: 502", ":status: 529", "grpc-status: 14"] {
        let post = Request::post("/").body(()).unwrap();
        let sent = ask(&layer, post, &[&format!("{error}\n{exhausted}")]).await.2;
        assert_eq!(sent.len(), 1, "{error}");
    }
    // A refusal by gRPC itself is no work that was done.
    let post = Request::post("/").body(()).unwrap();
    assert_eq!(ask(&layer, post, &[&format!("grpc-status: 8\n{exhausted}")]).await.2.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn each_line_of_a_field_counts() {
    let layer = RetryLayer::new().max_wait(HOUR);
    let says_no = ":status: 429\nretry-after: 7\nx-should-retry: true\nx-should-retry: false";
    assert_eq!(get(&layer, says_no).await, (429, 0, 1));
    let pushback = "grpc-status: 8\ngrpc-retry-pushback-ms: 5\ngrpc-retry-pushback-ms: 9000";
    assert_eq!(get(&layer, pushback).await, (200, 9_000, 2));
    let names = ":status: 429\nretry-after: 5\nx-ratelimit-retry-after: 9";
    assert_eq!(get(&layer, names).await, (200, 9_000, 2));
    // What can be read is no shorter for a line that cannot be.
    let unclear = ":status: 429\nretry-after: 100\nretry-after: soon";
    assert_eq!(get(&layer, unclear).await, (200, 100_000, 2));
}
