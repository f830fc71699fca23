//! Answers as other servers send them, and when the requests after them are sent.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use tokio::time::Instant;
use tollgate::DAY;
use tollgate_client::Unreadable;
use tollgate_client::pacing::PacingLayer;
use tower::{Layer, Service, ServiceExt, service_fn};

/// The header fields of an answer, one on each line.
fn answer(fields: &str) -> Response<()> {
    let mut response = Response::builder();
    for line in fields.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(": ").unwrap();
        response = match name {
            ":status" => response.status(value.parse::<u16>().unwrap()),
            _ => response.header(name, value),
        };
    }
    response.body(()).unwrap()
}

/// Sends a request for each answer and one more, one after the other, and tells when each is sent.
async fn sends(answers: &[&str]) -> Vec<Duration> {
    sends_by(PacingLayer::new().max_wait(DAY), answers).await
}

async fn sends_by(layer: PacingLayer, answers: &[&str]) -> Vec<Duration> {
    let start = Instant::now();
    let sends = Arc::new(Mutex::new(Vec::new()));
    let recorded: Vec<_> = answers.iter().map(|fields| fields.to_string()).collect();
    let log = Arc::clone(&sends);
    let server = service_fn(move |_: Request<()>| {
        let mut sends = log.lock().unwrap();
        let fields = recorded.get(sends.len()).map_or("", String::as_str);
        sends.push(start.elapsed());
        std::future::ready(Ok::<_, Infallible>(answer(fields)))
    });
    let mut client = layer.layer(server);
    for _ in 0..=answers.len() {
        client.ready().await.unwrap().call(Request::new(())).await.unwrap();
    }
    sends.lock().unwrap().clone()
}

/// A timer of tokio's fires on a whole millisecond, never before its time.
#[track_caller]
fn assert_sent(sends: &[Duration], wanted: &[u64]) {
    let late = |(sent, wanted): (&Duration, &u64)| sent.checked_sub(Duration::from_millis(*wanted));
    let is_right = sends
        .iter()
        .zip(wanted)
        .map(late)
        .all(|late| late.is_some_and(|late| late <= Duration::from_millis(3)));
    assert!(is_right && sends.len() == wanted.len(), "{sends:?}, not {wanted:?}");
}

#[tokio::test(start_paused = true)]
async fn github_is_asked_when_its_next_hour_begins() {
    // What is left is spread over the time that is left, by the clock of the server.
    let sends = sends(&[
        "date: Tue, 14 Nov 2023 22:13:20 GMT
         x-ratelimit-limit: 60
         x-ratelimit-remaining: 2
         x-ratelimit-reset: 1700000060
         x-ratelimit-resource: core",
        "date: Tue, 14 Nov 2023 22:13:40 GMT
         x-ratelimit-limit: 60
         x-ratelimit-remaining: 1
         x-ratelimit-reset: 1700000060
         x-ratelimit-resource: core",
        "date: Tue, 14 Nov 2023 22:14:00 GMT
         x-ratelimit-limit: 60
         x-ratelimit-remaining: 0
         x-ratelimit-reset: 1700000060
         x-ratelimit-resource: core",
        "date: Tue, 14 Nov 2023 22:14:20 GMT
         x-ratelimit-limit: 60
         x-ratelimit-remaining: 59
         x-ratelimit-reset: 1700003660
         x-ratelimit-resource: core",
    ]);
    assert_sent(&sends.await, &[0, 20_000, 40_000, 60_000, 60_000]);
}

#[tokio::test(start_paused = true)]
async fn openai_tells_durations_of_requests_and_of_tokens() {
    let fields = |requests: u32, reset: &str, tokens: u32, reset_tokens: &str| {
        format!(
            "x-ratelimit-limit-requests: 60
             x-ratelimit-remaining-requests: {requests}
             x-ratelimit-reset-requests: {reset}
             x-ratelimit-limit-tokens: 150000
             x-ratelimit-remaining-tokens: {tokens}
             x-ratelimit-reset-tokens: {reset_tokens}"
        )
    };
    let answers = [
        fields(59, "1s", 149_984, "6ms"),
        fields(0, "120ms", 149_000, "6ms"),
        fields(59, "1s", 0, "6m0s"),
        fields(59, "1s", 149_000, "1m6.5s"),
    ];
    let answers: Vec<_> = answers.iter().map(String::as_str).collect();
    assert_sent(&sends(&answers).await, &[0, 0, 120, 360_120, 360_120]);
}

#[tokio::test(start_paused = true)]
async fn each_dialect_is_read() {
    for [one_left, none_left, many_left] in [
        [
            "ratelimit: \"api\";r=1;t=10\nratelimit-policy: \"api\";q=100;w=60",
            "ratelimit: \"api\";r=0;t=5\nratelimit-policy: \"api\";q=100;w=60",
            "ratelimit: \"api\";r=99;t=60\nratelimit-policy: \"api\";q=100;w=60",
        ],
        [
            "ratelimit: limit=100, remaining=1, reset=10\nratelimit-policy: 100;w=60",
            "ratelimit: limit=100, remaining=0, reset=5\nratelimit-policy: 100;w=60",
            "ratelimit: limit=100, remaining=99, reset=60\nratelimit-policy: 100;w=60",
        ],
        [
            "ratelimit-limit: 100, 100;w=60\nratelimit-remaining: 1\nratelimit-reset: 10",
            "ratelimit-limit: 100\nratelimit-remaining: 0\nratelimit-reset: 5",
            "ratelimit-limit: 100\nratelimit-remaining: 99\nratelimit-reset: 60",
        ],
        [
            "x-ratelimit-limit: 100\nx-ratelimit-remaining: 1\nx-ratelimit-reset: 10",
            "x-ratelimit-limit: 100\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 5.0",
            "x-ratelimit-limit: 100\nx-ratelimit-remaining: 99\nx-ratelimit-reset: 60",
        ],
        [
            "x-rate-limit-limit: 100\nx-rate-limit-remaining: 1\nx-rate-limit-reset: 10",
            "x-rate-limit-limit: 100\nx-rate-limit-remaining: 0\nx-rate-limit-reset: 5s",
            "x-rate-limit-limit: 100\nx-rate-limit-remaining: 99\nx-rate-limit-reset: 60",
        ],
        [
            "x-ratelimit-limit: 100\nx-ratelimit-remaining: 1\nx-ratelimit-reset: 1700000010000\n\
             date: Tue, 14 Nov 2023 22:13:20 GMT",
            "x-ratelimit-limit: 100\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 1700000010\n\
             date: Tue, 14 Nov 2023 22:13:25 GMT",
            "x-ratelimit-limit: 100\nx-ratelimit-remaining: 99\nx-ratelimit-reset: 1700000070\n\
             date: Tue, 14 Nov 2023 22:13:30 GMT",
        ],
    ] {
        let sends = sends(&[one_left, none_left, many_left]).await;
        assert_sent(&sends, &[0, 5_000, 10_000, 10_000]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_tightest_of_several_limits_counts() {
    let sends = sends(&[
        "ratelimit: \"minute\";r=99;t=60, \"day\";r=0;t=30\n\
         ratelimit-policy: \"minute\";q=100;w=60, \"day\";q=500;w=86400",
        "ratelimit: \"minute\";r=0;t=7\nratelimit: \"day\";r=400;t=90",
    ]);
    assert_sent(&sends.await, &[0, 30_000, 37_000]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_pauses_until_it_says() {
    for status in [429, 503] {
        let refusal = format!(":status: {status}\nretry-after: 7");
        assert_sent(&sends(&["", &refusal, ""]).await, &[0, 0, 7_000, 7_000]);
    }
    // Without a time, the next request waits for a second; with another status, the field is about
    // something else.
    let refusals = [":status: 429", ":status: 503", ":status: 301\nretry-after: 7"];
    assert_sent(&sends(&refusals).await, &[0, 1_000, 1_000, 1_000]);
}

/// Where a form was not known, the next request was sent at once, or after a second.
#[tokio::test(start_paused = true)]
async fn what_servers_say_in_other_forms_is_waited_for() {
    let instant = |reset: &str| {
        format!(
            "date: Thu, 17 Aug 2023 08:37:22 GMT
             x-ratelimit-limit: 300
             x-ratelimit-remaining: 0
             x-ratelimit-reset: {reset}"
        )
    };
    for (answer, millis) in [
        (":status: 429\nretry-after: 2.0", 2_000),
        (":status: 429\nretry-after: 0.503", 1_000),
        (":status: 503\nretry-after: 292.052427053", 293_000),
        (":status: 503\nretry-after: 3\nretry-after: 3", 3_000),
        (":status: 429\nretry-after-ms: 4321", 4_321),
        (":status: 403\nretry-after: 60", 60_000),
        (":status: 403", 0),
        (":status: 429\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 30", 30_000),
        ("ratelimit-limit: 100, 100;w=60\nratelimit-remaining: 0", 60_000),
        ("ratelimit-limit: 9\nratelimit-policy: 9;w=60\nratelimit-remaining: 0", 60_000),
        ("x-ratelimit-remaining: 0.0\nx-ratelimit-reset: 300", 300_000),
        ("x-ratelimit-remaining: 991, 0\nx-ratelimit-reset: 300", 300_000),
        ("x-ratelimit-remaining: -1\nx-ratelimit-reset: 300", 300_000),
        ("x-ratelimit-remaining: 991\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 300", 300_000),
        ("x-ratelimit-remaining: 3.0\nx-ratelimit-reset: 300", 0),
        (&instant("2023-08-17T08:42:22Z"), 300_000),
        (&instant("2023-08-17T08:42:22+00:00"), 300_000),
        (&instant("2023-08-17T10:42:22+02:00"), 300_000),
        (&instant("2023-08-17T08:42:22.5Z"), 300_500),
        (&instant("Thu, 17 Aug 2023 08:42:22 GMT"), 300_000),
        (&instant("tomorrow"), 60_000),
        (":status: 200\ngrpc-status: 8\ngrpc-retry-pushback-ms: 4321", 4_321),
    ] {
        // As it is by default.
        let sends = sends_by(PacingLayer::new(), &[answer]).await;
        assert_eq!(sends[1].as_millis(), millis, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_count_that_is_left_out_once_changes_nothing() {
    let all = "ratelimit-limit: 100;w=21600\nratelimit-remaining: 76;w=21600";
    let none = "ratelimit-limit: 100;w=21600\nratelimit-remaining: 0;w=21600";
    let broken = "ratelimit-limit: ;w=21600\nratelimit-remaining: ;w=21600";
    let window = 21_600_000;
    assert_sent(&sends(&[broken, all, broken, all]).await, &[0; 5]);
    assert_sent(&sends(&[none, broken]).await, &[0, window, window + 216_000]);
}

/// Discord says whether a refusal is about one resource, about a route, or about all of them.
#[tokio::test(start_paused = true)]
async fn a_refusal_about_one_resource_pauses_no_other_request() {
    let refusal = |scope| format!(":status: 429\nretry-after: 65\nx-ratelimit-scope: {scope}");
    assert_sent(&sends(&[&refusal("shared")]).await, &[0, 0]);
    assert_sent(&sends(&[&refusal("user")]).await, &[0, 65_000]);
    assert_sent(&sends(&[&refusal("global")]).await, &[0, 65_000]);
}

/// Where routes are paced apart, each went on in spite of a refusal that was about all of them.
#[tokio::test(start_paused = true)]
async fn a_refusal_about_the_whole_host_pauses_all_its_kinds_of_requests() {
    let server = service_fn(async |request: Request<()>| {
        let response = match request.uri().path() {
            "/all" => answer(":status: 429\nretry-after: 9\nx-ratelimit-global: true"),
            "/one" => answer(":status: 429\nretry-after: 3\nx-ratelimit-scope: user"),
            _ => answer(""),
        };
        Ok::<_, Infallible>(response)
    });
    let layer = PacingLayer::new().key_with(|head| Some(head.uri().to_string()));
    let mut client = layer.layer(server);
    let start = Instant::now();
    let mut get = async |url: &str| {
        let request = Request::get(url).body(()).unwrap();
        client.ready().await.unwrap().call(request).await.unwrap();
        start.elapsed().as_secs()
    };
    assert_eq!(get("http://them.example/old").await, 0);
    assert_eq!(get("http://them.example/one").await, 0);
    assert_eq!(get("http://them.example/old").await, 0);
    assert_eq!(get("http://them.example/all").await, 0);
    assert_eq!(get("http://others.example/old").await, 0);
    assert_eq!(get("http://them.example/new").await, 9);
    assert_eq!(get("http://them.example/old").await, 9);
}

#[tokio::test(start_paused = true)]
async fn the_statuses_that_refuse_can_be_named() {
    let layer = PacingLayer::new().statuses([http::StatusCode::from_u16(529).unwrap()]);
    let refusal = |status| format!(":status: {status}\nretry-after: 7");
    assert_sent(&sends_by(layer.clone(), &[&refusal(529)]).await, &[0, 7_000]);
    let layer = layer.key_with(|_| Some("another host".to_owned()));
    assert_sent(&sends_by(layer, &[&refusal(429)]).await, &[0, 0]);
}

/// A body that can be sent only once does not matter here, as each request is sent once.
#[tokio::test(start_paused = true)]
async fn a_body_need_not_be_cloned() {
    struct Stream;
    let echo = service_fn(async |request: Request<Stream>| {
        Ok::<_, Infallible>(Response::new(request.into_body()))
    });
    let Stream = PacingLayer::new()
        .quota(1, DAY)
        .layer(echo)
        .oneshot(Request::new(Stream))
        .await
        .unwrap()
        .into_body();
}

#[tokio::test(start_paused = true)]
async fn a_field_that_cannot_be_read_is_told_once() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&told);
    let layer = PacingLayer::new().on_unreadable(move |host: &str, field: &Unreadable| {
        log.lock().unwrap().push(format!("{host}{field}"));
    });
    let broken = "x-ratelimit-remaining: 0\nx-ratelimit-reset: tomorrow";
    sends_by(layer, &[broken, broken, broken]).await;
    let wanted = "cannot read `x-ratelimit-reset: tomorrow` (a reset in 60s is assumed)";
    assert_eq!(*told.lock().unwrap(), [wanted]);
}

/// Of two that were as tight, the first one was taken, however soon its reset.
#[tokio::test(start_paused = true)]
async fn of_limits_with_nothing_left_the_last_reset_counts() {
    let mut many: String = (0..8).map(|nth| format!("\"{nth}\";r=0;t=1, ")).collect();
    many.push_str("\"last\";r=0;t=60");
    for answer in [
        // Of two partitions, of two fields with one name, and of more limits than are remembered.
        "ratelimit: \"a\";r=0;t=5;pk=:eA==:, \"a\";r=0;t=60;pk=:eQ==:",
        "ratelimit: \"a\";r=0;t=60;pk=:eA==:, \"a\";r=0;t=5;pk=:eQ==:",
        "x-ratelimit-resource: core\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 60\n\
         ratelimit-remaining: 9\nratelimit-reset: 5",
        "x-ratelimit-resource: core\nratelimit-remaining: 9\nratelimit-reset: 5\n\
         x-ratelimit-remaining: 0\nx-ratelimit-reset: 60",
        &format!("ratelimit: {many}"),
    ] {
        assert_sent(&sends(&[answer]).await, &[0, 60_000]);
    }
}

/// Each answer can name fields that no answer has named before.
#[tokio::test(start_paused = true)]
async fn a_host_that_invents_fields_does_not_flood_the_log() {
    let told = Arc::new(Mutex::new(0));
    let log = Arc::clone(&told);
    let layer = PacingLayer::new().on_unreadable(move |_: &str, _: &Unreadable| {
        *log.lock().unwrap() += 1;
    });
    let names = (0..100).map(|nth| format!("x-limit-remaining-{nth}: none"));
    let answers: Vec<_> = names.collect();
    let answers: Vec<_> = answers.iter().map(String::as_str).collect();
    sends_by(layer, &answers).await;
    assert_eq!(*told.lock().unwrap(), 32);
}
