//! Servers that send whatever they like: no panic, bounded waits, bounded memory.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderValue, Request, Response};
use proptest::prelude::*;
use tokio::time::Instant;
use tollgate::{HOUR, SECOND};
use tollgate_client::pacing::PacingLayer;
use tower::{Layer, Service, ServiceExt, service_fn};

const MILLI: Duration = Duration::from_millis(1);

const NAMES: [&str; 24] = [
    "ratelimit",
    "ratelimit-policy",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-resource",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-reset-after",
    "x-ratelimit-remaining-minute",
    "x-ratelimit-scope",
    "anthropic-ratelimit-requests-remaining",
    "anthropic-ratelimit-requests-reset",
    "x-shopify-shop-api-call-limit",
    "x-ratelimit",
    "grpc-status",
    "grpc-retry-pushback-ms",
    "retry-after-ms",
    "retry-after",
    "date",
];

/// Sends some requests to a server that refuses with these fields, and tells how long that takes.
async fn ask(fields: &[(&'static str, Vec<u8>)], requests: u32) -> Duration {
    ask_for(429, fields, requests, SECOND).await
}

async fn ask_for(
    status: u16,
    fields: &[(&'static str, Vec<u8>)],
    requests: u32,
    max_wait: Duration,
) -> Duration {
    let fields: Vec<_> = fields
        .iter()
        .filter_map(|(name, value)| Some((*name, HeaderValue::from_bytes(value).ok()?)))
        .collect();
    let server = service_fn(move |_: Request<()>| {
        let mut response = Response::new(());
        *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
        for (name, value) in &fields {
            response.headers_mut().append(*name, value.clone());
        }
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let start = Instant::now();
    let mut client = PacingLayer::new().max_wait(max_wait).layer(server);
    for _ in 0..requests {
        client.ready().await.unwrap().call(Request::new(())).await.unwrap();
    }
    start.elapsed()
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![
        Just(0_u64),
        Just(u64::MAX),
        Just(999_999_999_999_999),
        Just(1_000_000_000_000_000),
        Just(1_700_000_000),
        any::<u64>(),
        0..100_u64
    ];
    let text = (number.clone(), number, 0..14_u8).prop_map(|(a, b, form)| match form {
        0 => format!("{a}"),
        1 => format!("\"a\";r={a};t={b}"),
        2 => format!("\"a\";q={a};w={b}"),
        3 => format!("limit={a}, remaining={b}, reset={a}"),
        4 => format!("{a};w={b}"),
        5 => format!("{a}.{b}"),
        6 => format!("{a}h{b}m{a}.{b}s"),
        7 => format!("-{a}"),
        8 => format!("{a}/{b}"),
        9 => format!("{{\"remaining\":{a},\"period\":{b},\"until\":\"9999-12-31T23:59:59Z\"}}"),
        10 => format!("{a}, {b};w={a}"),
        11 => "9999-12-31T23:59:59.999999999-23:59".to_owned(),
        12 => "global".to_owned(),
        _ => format!("\"a\";r={a};t=-{b}, \"a\";r={b}, (\"b\");r=1"),
    });
    prop_oneof![
        4 => text.prop_map(String::into_bytes),
        1 => "[ -~]{0,40}".prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 0..40),
    ]
}

proptest! {
    #[test]
    fn any_fields_have_an_answer_within_the_longest_wait(
        fields in proptest::collection::vec((proptest::sample::select(&NAMES[..]), value()), 0..8)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let elapsed = runtime.block_on(ask(&fields, 4));
        prop_assert!(elapsed <= 3 * (SECOND + Duration::from_millis(2)), "{elapsed:?}");
    }
}

/// What could not be read was as if it was not there: a refused client went on at once.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_slows_no_admitted_request_and_pauses_after_a_refusal() {
    let longer = "\"a\";r=0;t=9, ".repeat(1_000).into_bytes();
    for (name, value) in [
        ("ratelimit", b"\"a\";r=0;t=9 \"b\"".to_vec()),
        ("ratelimit", b"\"a\";r=1.5;t=9".to_vec()),
        ("ratelimit", b"\"a\";t=9".to_vec()),
        ("ratelimit", b"limit=10, reset=9".to_vec()),
        ("ratelimit", format!("\"{}\";r=0;t=9", "a".repeat(129)).into_bytes()),
        ("ratelimit", longer),
        ("ratelimit", vec![0xff; 9]),
        ("ratelimit-remaining", b";w=21600".to_vec()),
        ("x-ratelimit-remaining", b"none".to_vec()),
        ("retry-after", b"later".to_vec()),
    ] {
        let fields = [(name, value.clone())];
        let shown = String::from_utf8_lossy(&value);
        assert_eq!(ask_for(200, &fields, 9, HOUR).await, Duration::ZERO, "{name}: {shown}");
        let paused = ask_for(429, &fields, 2, HOUR).await;
        let assumed = tollgate_client::ASSUMED_WAIT;
        assert!((assumed..assumed + 3 * MILLI).contains(&paused), "{name}: {shown}: {paused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_numbers_of_hosts_and_of_limits_are_bounded() {
    // A host that is forgotten is a new one: its pause is forgotten too.
    let server = service_fn(async |request: Request<()>| {
        let response = match request.uri().path() {
            "/refuse" => Response::builder().status(429).header("retry-after", "3600"),
            _ => Response::builder(),
        };
        Ok::<_, Infallible>(response.body(()).unwrap())
    });
    let mut client = PacingLayer::new().max_hosts(3).max_wait(2 * HOUR).layer(server);
    let start = Instant::now();
    let mut get = async |host: &str, path: &str| {
        let request = Request::get(format!("http://{host}{path}")).body(()).unwrap();
        client.ready().await.unwrap().call(request).await.unwrap();
        start.elapsed()
    };
    get("paused", "/refuse").await;
    get("a", "/").await;
    get("b", "/").await;
    assert_eq!(get("c", "/").await, Duration::ZERO);
    assert_eq!(get("paused", "/").await, Duration::ZERO, "of four hosts, three are remembered");
    get("paused", "/refuse").await;
    get("a", "/").await;
    assert!(get("PAUSED", "/").await >= HOUR);
    // Of nine limits, those with the fewest tokens are remembered.
    let many = |least: u32| {
        let all: Vec<_> =
            (0..9).map(|nth| format!("\"{nth}\";r={};t=9", least + 8 - nth)).collect();
        [("ratelimit", all.join(", ").into_bytes())]
    };
    assert_eq!(ask_for(200, &many(1), 2, HOUR).await, Duration::ZERO);
    assert_eq!(ask_for(200, &many(0), 2, HOUR).await.as_secs(), 9);
}

/// A server that answers these fields, one answer after the other, and tells when it was asked.
async fn asked_at(answers: Vec<Vec<(&'static str, String)>>, max_wait: Duration) -> Vec<Duration> {
    let start = Instant::now();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (log, requests) = (Arc::clone(&asked), answers.len() + 1);
    let server = service_fn(move |_: Request<()>| {
        let mut asked = log.lock().unwrap();
        let mut response = Response::builder();
        for (name, value) in answers.get(asked.len()).into_iter().flatten() {
            response = match *name {
                ":status" => response.status(value.as_str()),
                name => response.header(name, value),
            };
        }
        asked.push(start.elapsed());
        std::future::ready(Ok::<_, Infallible>(response.body(()).unwrap()))
    });
    let mut client = PacingLayer::new().max_wait(max_wait).layer(server);
    for _ in 0..requests {
        client.ready().await.unwrap().call(Request::new(())).await.unwrap();
    }
    let asked = asked.lock().unwrap();
    asked.iter().map(|at| Duration::from_secs(at.as_secs())).collect()
}

fn limit(name: &str, remaining: u32, reset: u64) -> Vec<(&'static str, String)> {
    vec![("ratelimit", format!("\"{name}\";r={remaining};t={reset}"))]
}

/// What a proxy had said once held for a year: all requests were sent at once, whatever the server
/// said about its limits after that.
#[tokio::test(start_paused = true)]
async fn an_answer_disproves_a_pause_and_a_reset_that_are_years_away() {
    let paused = || vec![(":status", "429".to_owned()), ("retry-after", "99999999999".to_owned())];
    for wrong in [paused(), limit("proxy", 0, 99_999_999_999)] {
        let answers = vec![wrong, limit("api", 0, 7), limit("api", 0, 8), limit("api", 9, 9)];
        let asked = asked_at(answers, 60 * SECOND).await;
        assert_eq!(asked, [0, 0, 7, 15, 15].map(Duration::from_secs));
    }
    // While the server goes on to refuse, it is asked once in the longest wait.
    let asked = asked_at(vec![paused(), paused(), limit("api", 0, 7)], 60 * SECOND).await;
    assert_eq!(asked, [0, 0, 60, 67].map(Duration::from_secs));
}

/// Names that were never used again took the places of those that the server came to use.
#[tokio::test(start_paused = true)]
async fn a_limit_that_is_named_now_takes_the_place_of_one_that_is_not() {
    let mut answers: Vec<_> = (0..8).map(|nth| limit(&format!("old-{nth}"), 50, 99_999)).collect();
    answers.push(limit("new", 0, 7));
    let asked = asked_at(answers, 60 * SECOND).await;
    assert_eq!(asked.last(), Some(&(7 * SECOND)), "{asked:?}");
}
