//! The examples do what they say.

#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../examples/anonymous_sessions.rs"]
mod anonymous_sessions;
#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../examples/body_key.rs"]
mod body_key;
#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../examples/custom_key.rs"]
mod custom_key;
#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../examples/failed_logins.rs"]
mod failed_logins;
#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../examples/global_signups.rs"]
mod global_signups;
#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../examples/llm_queue.rs"]
mod llm_queue;
#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../examples/outbound_client.rs"]
mod outbound_client;
#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../examples/own_backend.rs"]
mod own_backend;
#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../examples/quickstart.rs"]
mod quickstart;
#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../examples/restart.rs"]
mod restart;
#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../examples/spaced_jobs.rs"]
mod spaced_jobs;
#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../examples/streaming.rs"]
mod streaming;
#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../examples/tenants.rs"]
mod tenants;
#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../examples/webhooks.rs"]
mod webhooks;
#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../examples/websocket.rs"]
mod websocket;

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tollgate::backend::Memory;
use tollgate::clock::{ManualClock, TokioClock};
use tollgate::{HOUR, Limit, Quota, RateLimiter, SECOND};
use tollgate_testing::web::{Reply, get, read_to, send, serve};
use tollgate_testing::{START, limiter};
use tower::ServiceExt;

#[tokio::test]
async fn body_key_limits_log_ins_by_the_email_in_any_spelling() {
    let server = body_key::serve(body_key::app(&limiter(&ManualClock::new(START)))).await.unwrap();
    let attempt = async |email: &str, password: &str| {
        let body = format!(r#"{{"email":"{email}","password":"{password}"}}"#);
        body_key::attempt(server, body).await
    };
    let welcome = (200, None, "welcome, alice@example.com".to_owned());
    assert_eq!(attempt("alice@example.com", "correct horse").await, welcome);
    for email in ["Alice@Example.com", " alice@example.com"] {
        assert_eq!(attempt(email, "horse").await, (401, None, "wrong password".to_owned()));
    }
    let (status, retry_after, _) = attempt("alice@example.com", "correct horse").await;
    assert_eq!((status, retry_after.as_deref()), (429, Some("1200")));
    assert_eq!(attempt("bob@example.com", "correct horse").await.0, 200);
    assert_eq!(attempt("bob@example.com", &"long".repeat(5_000)).await.0, 413);
    assert_eq!(body_key::attempt(server, "{}".to_owned()).await.0, 422);
}

#[tokio::test]
async fn quickstart_counts_down_refuses_and_admits_again_in_time() {
    let clock = ManualClock::new(START);
    let server = serve(quickstart::app(&limiter(&clock))).await;
    for left in (0..20).rev() {
        let reply = get(server, "/").await;
        assert_eq!((reply.status.as_u16(), reply.body.as_str()), (200, "hello\n"));
        let told = reply.field("ratelimit").unwrap();
        assert!(told.starts_with(&format!("\"per-client\";r={left};")), "{told}");
    }
    let refused = get(server, "/").await;
    assert_eq!(refused.status, 429);
    let wait: u64 = refused.field("retry-after").unwrap().parse().unwrap();
    clock.advance(Duration::from_secs(wait));
    assert_eq!(get(server, "/").await.status, 200);
}

#[tokio::test]
async fn quickstart_is_stricter_with_log_ins_of_one_name() {
    let server = serve(quickstart::app(&limiter(&ManualClock::new(START)))).await;
    let login = async |user| send(server, Method::POST, "/login", &[("x-user", user)]).await;
    for _ in 0..5 {
        assert_eq!(login("alice").await.status, 200);
    }
    let refused = login("alice").await;
    assert_eq!((refused.status.as_u16(), refused.field("retry-after")), (429, Some("720")));
    assert!(refused.body.contains("\"violated-policies\":[\"login\"]"), "{}", refused.body);
    assert_eq!(login("bob").await.status, 200);
    assert_eq!(send(server, Method::POST, "/login", &[]).await.status, 401);
    assert_eq!(get(server, "/").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn webhooks_leave_a_receiver_alone_for_as_long_as_it_says() {
    use axum::routing::post;
    use webhooks::{Delivery, deliver};

    let (limiter, client) = (paused(), webhooks::client());
    let busy = async || (http::StatusCode::TOO_MANY_REQUESTS, [("retry-after", "300")]);
    let app = |answer| Router::new().route("/", answer);
    let [busy, open] = [serve(app(post(busy))).await, serve(app(post(async || "ok"))).await]
        .map(|to| format!("http://{to}/"));
    let told = deliver(&limiter, &client, &busy, "{}").await;
    assert_eq!(told, Delivery::Later(Duration::from_secs(300)));
    // Nothing is sent: its turn would come after more than a minute.
    let Delivery::Later(wait) = deliver(&limiter, &client, &busy, "{}").await else {
        panic!("it is left alone")
    };
    assert!(wait > Duration::from_secs(290), "{wait:?}");
    for _ in 0..3 {
        assert_eq!(deliver(&limiter, &client, &open, "{}").await, Delivery::Done);
    }
}

#[tokio::test]
async fn anonymous_sessions_are_limited_in_three_ways() {
    let app = anonymous_sessions::app(&limiter(&ManualClock::new(START)));
    let (here, there) = ([192, 0, 2, 1], [192, 0, 2, 2]);
    let admitted = async |path: &str, address: [u8; 4], sessions: &[&str]| {
        let mut admitted = 0;
        for session in sessions {
            match anonymous_sessions::ask(&app, address, session, path).await {
                200 | 204 => admitted += 1,
                status => assert_eq!(status, 429, "{path}"),
            }
        }
        admitted
    };
    let (alice, strangers) = (["alice"; 9], ["1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    // A session alone: a client that makes them up is not held by it.
    assert_eq!(admitted("/alone", here, &alice).await, 3);
    assert_eq!(admitted("/alone", there, &["alice"]).await, 0);
    assert_eq!(admitted("/alone", here, &strangers).await, 9);
    // Tied to an address: they share what the address has.
    assert_eq!(admitted("/tied", here, &alice).await, 3);
    assert_eq!(admitted("/tied", here, &strangers).await, 3);
    assert_eq!(admitted("/tied", there, &alice).await, 3);
    // Behind a challenge: little for all of an address, until one of them has solved it.
    assert_eq!(admitted("/challenge", here, &strangers).await, 1);
    assert_eq!(admitted("/challenge", here, &alice).await, 0);
    assert_eq!(admitted("/solve", here, &["alice"]).await, 1);
    assert_eq!(admitted("/challenge", here, &["alice"; 20]).await, 10);
    assert_eq!(admitted("/challenge", here, &strangers).await, 0);
    // The number of challenges is limited as well.
    assert_eq!(admitted("/solve", here, &strangers).await, 1);
}

#[tokio::test]
async fn restart_brings_no_more_reports() {
    let path = std::env::temp_dir().join(format!("tollgate-usage-{}.dump", std::process::id()));
    for wanted in [[200, 200], [200, 429], [429, 429]] {
        let service = restart::Service::start(&path).unwrap();
        for status in wanted {
            assert_eq!(restart::ask(&service.app, "alice").await, status);
        }
        service.stop().unwrap();
    }
    let service = restart::Service::start(&path).unwrap();
    assert_eq!(restart::ask(&service.app, "bob").await, 200);
    drop(service);
    std::fs::remove_file(&path).unwrap();
}

/// A process that crashes has saved what it had taken by the last minute.
#[tokio::test(start_paused = true)]
async fn restart_saves_each_minute() {
    let path = std::env::temp_dir().join(format!("tollgate-saver-{}.dump", std::process::id()));
    let memory = std::sync::Arc::new(Memory::new());
    let saver = restart::save_each(SECOND, std::sync::Arc::clone(&memory), path.clone());
    let saver = tokio::spawn(saver);
    let limit = Limit::new("limit", Quota::token_bucket(5, HOUR));
    while !path.exists() {
        // The clock advances to the next save, and waits until it has ended.
        sleep(SECOND).await;
    }
    RateLimiter::new(std::sync::Arc::clone(&memory)).limit(&limit).await.unwrap();
    let saved = || Memory::new().load_from(&path).unwrap().len();
    while saved() == 0 {
        sleep(SECOND).await;
    }
    assert_eq!(saved(), 1);
    saver.abort();
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test]
async fn custom_key_gives_each_tenant_a_bucket_and_health_checks_none() {
    let app = custom_key::app(&limiter(&ManualClock::new(START)));
    for (host, status) in
        [("acme.x", 200), ("ACME.x", 200), ("acme.y", 429), ("zenith.x", 200), ("local", 400)]
    {
        assert_eq!(custom_key::ask(&app, host, "/").await, status, "{host}");
    }
    for _ in 0..5 {
        assert_eq!(custom_key::ask(&app, "acme.x", "/health").await, 200);
    }
}

/// Over HTTP/2, no request has the field `host`, and each was answered with 400. A name that a client made
/// up had a bucket of its own.
#[tokio::test]
async fn custom_key_finds_the_tenant_over_each_version_and_no_made_up_one() {
    let server = serve(custom_key::app(&limiter(&ManualClock::new(START)))).await;
    let mut answers = Vec::new();
    // In HTTP/1.1: the target in its usual form, and the whole URI, which counts more than the field.
    for (target, host) in [
        ("/", "acme.example.org:8080"),
        ("http://acme.example.org/", "zenith.example.org"),
        ("http://acme.example.org/", "zenith.example.org"),
        ("/", "zenith.example.org"),
        ("/", "made-up.example.org"),
        ("http://made-up.example.org/", "zenith.example.org"),
    ] {
        let mut connection = TcpStream::connect(server).await.unwrap();
        let request = format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        let answer = read_to(&mut connection, "\r\n").await;
        answers.push(answer.split(' ').nth(1).unwrap().parse::<u16>().unwrap());
    }
    for host in ["acme.example.org", "zenith.example.org", "made-up.example.org"] {
        let stream = TokioIo::new(TcpStream::connect(server).await.unwrap());
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream);
        let (mut client, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        let request = Request::get(format!("http://{host}/")).body(Body::empty()).unwrap();
        answers.push(client.send_request(request).await.unwrap().status().as_u16());
    }
    assert_eq!(answers, [200, 200, 429, 200, 400, 400, 429, 200, 400]);
}

#[tokio::test]
async fn failed_logins_counts_failures_only_and_forgets_them_after_a_success() {
    let app = failed_logins::app(limiter(&ManualClock::new(START)));
    let attempt = async |password| failed_logins::attempt(&app, "alice", password).await;
    for _ in 0..10 {
        assert_eq!(attempt("correct horse").await, 200);
    }
    assert_eq!([attempt("a").await, attempt("b").await], [401, 401]);
    assert_eq!(attempt("correct horse").await, 200);
    assert_eq!([attempt("a").await, attempt("b").await, attempt("c").await], [401, 401, 401]);
    // Even the right password does not help now, or guessing would go on unseen.
    assert_eq!(attempt("correct horse").await, 429);
    assert_eq!(failed_logins::attempt(&app, "bob", "a").await, 401);
}

#[tokio::test]
async fn global_signups_are_limited_for_all_together() {
    let clock = ManualClock::new(START);
    let app = global_signups::app(limiter(&clock));
    for left in [2, 1, 0] {
        let welcome = format!("welcome ({left} more this hour)");
        assert_eq!(global_signups::ask(&app).await, (200, welcome));
    }
    assert_eq!(global_signups::ask(&app).await.0, 429);
    clock.advance(HOUR);
    assert_eq!(global_signups::ask(&app).await.0, 200);
}

#[tokio::test]
async fn outbound_client_keeps_the_quota_of_each_host() {
    let limiter: RateLimiter = limiter(&ManualClock::new(START));
    let (them, asked) = outbound_client::them().await.unwrap();
    let statuses = outbound_client::call_them(&limiter, them, 5).await;
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    assert_eq!(asked.load(Ordering::Relaxed), 3);
    // Another host has a quota of its own.
    let (others, _) = outbound_client::them().await.unwrap();
    assert_eq!(outbound_client::call_them(&limiter, others, 1).await, [200]);
}

/// A limiter on the clock of the paused runtime.
fn paused() -> RateLimiter {
    RateLimiter::new(Memory::new().clock(TokioClock::new()))
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Asks the model, at a cost of so many tokens, two of which are the prompt's.
async fn ask_model(app: &Router, cost: u64) -> Reply {
    let request = Request::post("/").header("x-max-tokens", cost - 2).header("content-length", 8);
    let request = request.body(Body::from("6 x 9 ?!")).unwrap();
    let Ok(response) = app.clone().oneshot(request).await;
    Reply::read(response).await
}

#[tokio::test(start_paused = true)]
async fn llm_queue_lets_requests_wait_exactly_until_the_tokens_are_there() {
    let (app, start) = (llm_queue::app(&paused()), Instant::now());
    let ask = async |cost| {
        let reply = ask_model(&app, cost).await;
        let waited = reply.field("server-timing").map(str::to_owned);
        (reply.status.as_u16(), waited, start.elapsed())
    };
    let waited = |millis| Some(format!("queue;dur={millis}.000;desc=\"llm-tokens\""));
    // 40,000 a minute are 2 every 3 ms. The model takes 500 ms.
    let (first, second, third) = tokio::join!(ask(40_000), ask(100), ask(100));
    assert_eq!(first, (200, None, millis(500)));
    assert_eq!(second, (200, waited(150), millis(650)));
    assert_eq!(third, (200, waited(300), millis(800)));
}

#[tokio::test(start_paused = true)]
async fn llm_queue_settles_what_the_model_really_took() {
    let limiter = paused();
    let app = llm_queue::app(&limiter);
    let left = async || limiter.peek(&llm_queue::TOKENS).await.unwrap().remaining();
    let look = async {
        sleep(millis(300)).await;
        left().await
    };
    let (reply, meanwhile) = tokio::join!(ask_model(&app, 30_000), look);
    assert_eq!((reply.status.as_u16(), reply.body.as_str()), (200, "42"));
    // 200 have come in after 300 ms, and 333 after 500 ms.
    assert_eq!(meanwhile, 10_000 + 200);
    assert_eq!(left().await, 10_000 + 333 + 28_500);
    // What was estimated too low is taken afterwards; 666 have come in by then.
    assert_eq!(ask_model(&app, 100).await.status, 200);
    assert_eq!(left().await, 40_000 - 1_500 - 1_500 + 666);
}

#[tokio::test(start_paused = true)]
async fn llm_queue_runs_a_request_sooner_than_it_is_told() {
    let (app, start) = (llm_queue::app(&paused()), Instant::now());
    let others = async {
        // It is told 30.15 s, and waits until it is given up and has left no trace.
        assert!(timeout(millis(30), ask_model(&app, 20_100)).await.is_err());
        assert_eq!(start.elapsed(), millis(30));
        let stays = ask_model(&app, 20_200).await;
        // The first has cost 1,500, so this one runs when that ends.
        let waited = Some("queue;dur=470.000;desc=\"llm-tokens\"");
        assert_eq!((stays.status.as_u16(), stays.field("server-timing")), (200, waited));
        assert_eq!(start.elapsed(), millis(1_000));
    };
    let (first, ()) = tokio::join!(ask_model(&app, 40_000), others);
    assert_eq!(first.status, 200);
}

#[tokio::test(start_paused = true)]
async fn llm_queue_serves_at_the_end_only_requests_with_a_turn_soon() {
    let limiter = paused();
    let (app, start) = (llm_queue::app(&limiter), Instant::now());
    let ask = async |cost| (ask_model(&app, cost).await.status.as_u16(), start.elapsed());
    let stop = async {
        llm_queue::stopped(limiter.clone(), sleep(millis(30))).await;
        ask(2_000).await
    };
    let all = tokio::join!(ask(40_000), ask(100), ask(2_000), stop);
    let served = ((200, millis(500)), (200, millis(650)));
    assert_eq!((all.0, all.1), served);
    // They would have waited for 3 s and more.
    assert_eq!((all.2, all.3), ((503, millis(30)), (503, millis(30))));
}

/// Its own tests run here as well: the suite on its store.
#[tokio::test]
async fn own_backend_refuses_when_its_rows_say_so() {
    let clock = ManualClock::new(START);
    let limiter = RateLimiter::new(own_backend::TableStore::new(clock.clone()));
    let exports = Limit::new("exports", Quota::token_bucket(2, HOUR));
    let ask = async || limiter.limit(&exports).key("alice").await.map(|permit| permit.remaining());
    assert_eq!((ask().await.unwrap(), ask().await.unwrap()), (1, 0));
    assert_eq!(ask().await.unwrap_err().retry_after(), Some(HOUR / 2));
    clock.advance(HOUR / 2);
    assert_eq!(ask().await.unwrap(), 0);
}

#[test]
fn own_backend_is_the_code_of_its_guide_in_under_100_lines() {
    let guide = include_str!("../../docs/write-your-own-backend.md");
    let (_, code) = guide.split_once("```rust\n").unwrap();
    let (code, _) = code.split_once("```").unwrap();
    assert!(include_str!("../../examples/own_backend.rs").contains(code));
    let lines = code.lines().filter(|line| !line.trim().is_empty()).count();
    assert!(lines < 100, "{lines}");
}

#[tokio::test(start_paused = true)]
async fn spaced_jobs_run_at_exactly_even_distances() {
    for a_second in [1_u32, 8, 20] {
        let limiter = paused();
        let limit = spaced_jobs::limit(a_second.into());
        let ran = spaced_jobs::run(&limiter, &limit, 10).await.unwrap();
        assert_eq!(ran.len(), 10);
        let first = ran[0].planned;
        for (number, job) in (0..).zip(ran) {
            assert_eq!(job.number, number);
            assert_eq!(job.planned.since(first), number * SECOND / a_second);
            assert_eq!(job.ran, (number + 1) * SECOND / a_second);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn streaming_sends_and_reads_its_bytes_evenly() {
    let server = serve(streaming::app(paused())).await;
    let progress = streaming::read_file(server).await.unwrap();
    for (bytes, at) in &progress {
        let allowed = 20_000 + 200 * at.as_millis();
        assert!(*bytes as u128 <= allowed, "{bytes} bytes after {at:?}");
    }
    // 20 kB at once, and 100 kB at 200 a millisecond.
    assert_eq!(progress.last(), Some(&(streaming::FILE, millis(500))));
    let (told, took) = streaming::send_file(server, 60_000).await.unwrap();
    assert_eq!(told, "60000 bytes have come");
    // Timers fire at whole milliseconds, so that a piece may be late by one.
    assert!(took >= millis(200), "{took:?}");
}

#[tokio::test]
async fn tenants_have_the_numbers_of_their_plan_and_share_a_limit() {
    let clock = ManualClock::new(START);
    let app = tenants::app(&limiter(&clock));
    let ask = async |tenant, plan| tenants::ask(&app, tenant, plan).await;
    for left in [1, 0] {
        let (status, told) = ask("acme", "free").await;
        assert_eq!(status, 200);
        assert!(told.starts_with(&format!("\"per-tenant\";r={left};")), "{told}");
    }
    let (status, told) = ask("acme", "free").await;
    assert_eq!((status, told.as_str()), (429, r#""per-tenant";r=0;t=30, "everyone";r=8;t=48"#));
    // A larger plan counts what was used of the smaller one: two of six.
    let (status, told) = ask("acme", "pro").await;
    assert_eq!(status, 200);
    assert!(told.starts_with("\"per-tenant\";r=3;"), "{told}");
    for left in (0..6).rev() {
        let (status, told) = ask("zenith", "pro").await;
        assert_eq!(status, 200);
        assert!(told.starts_with(&format!("\"per-tenant\";r={left};")), "{told}");
    }
    // One token is left for all other tenants; the second of them is refused and takes nothing from
    // its own bucket.
    for (tenant, status) in [("a", 200), ("c", 429)] {
        assert_eq!(ask(tenant, "free").await.0, status);
    }
    let (status, told) = ask("c", "free").await;
    assert_eq!((status, told.as_str()), (429, r#""per-tenant";r=2;t=60, "everyone";r=0;t=6"#));
    clock.advance(6 * SECOND);
    assert_eq!(ask("c", "free").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn websocket_answers_three_messages_at_once_and_the_others_evenly() {
    let server = serve(websocket::app(paused())).await;
    let answered = websocket::talk(server, 8).await.unwrap();
    // The client may see an answer late, and never early.
    let due = [0, 0, 0, 50, 100, 150, 200, 250].map(millis);
    assert!(answered.iter().zip(due).all(|(at, due)| *at >= due), "{answered:?}");
    assert_eq!(answered.last(), due.last());
}
