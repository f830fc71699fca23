//! What Prometheus gets from a real server: every metric of the guide's table, and every value of its
//! labels.

#[allow(dead_code, reason = "this drives the parts, not `main`")]
#[path = "../../examples/observing.rs"]
mod observing;

use crate::table;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use http::Request;
use http::request::Builder;
use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BackendError, BucketId, Charge, Memory,
};
use tollgate::clock::TokioClock;
use tollgate::key::{Extracted, from_fn, header};
use tollgate::middleware::Queue;
use tollgate::{HOUR, Limit, MINUTE, OnFailure, Quota, RateLimitExt, RateLimiter, Rule, SECOND};
use tollgate_testing::queue::ms;
use tollgate_testing::web::{get, serve};
use tower::ServiceExt;

static ONE: Limit = Limit::new("one", Quota::token_bucket(1, HOUR));
static TENTHS: Limit = Limit::new("tenths", Quota::token_bucket(10, SECOND).capacity(0));
static AWAY: Limit = Limit::new("away", Quota::token_bucket(100, HOUR));

fn watched() -> observing::Watched {
    let memory = Memory::new().max_keys(64).clock(TokioClock::new());
    observing::Watched::new(&RateLimiter::new(memory)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_example_shows_what_its_clients_meet() {
    let watched = watched();
    let (app, operators) = (watched.app(), serve(watched.operators()).await);
    for status in [200, 200, 200, 429, 429] {
        assert_eq!(ask(&app, Request::get("/export")).await, status);
    }
    let report = || ask(&app, Request::post("/report").header("x-user", "alice@example.com"));
    let reports = futures_util::future::join_all((0..4).map(|_| report())).await;
    assert_eq!(reports, [200; 4]);
    let page = get(operators, "/metrics").await.body;
    for line in [
        "tollgate_decisions_total{tollgate_limit=\"exports\",tollgate_outcome=\"refused\",\
         tollgate_source=\"handler\"} 2",
        "tollgate_decisions_total{tollgate_limit=\"reports\",tollgate_outcome=\"reserved\",\
         tollgate_source=\"layer\"} 2",
        "tollgate_decisions_total{tollgate_limit=\"per-user\",tollgate_outcome=\"admitted\",\
         tollgate_source=\"shadow\"} 4",
        "tollgate_decisions_total{tollgate_limit=\"per-client\",tollgate_outcome=\"admitted\",\
         tollgate_source=\"layer\"} 9",
        "tollgate_queued_requests{tollgate_limit=\"reports\"} 0",
        // Half a second and one: what the bucket gains two of in a second.
        "tollgate_request_time_in_queue_seconds_count{tollgate_limit=\"reports\",\
         tollgate_step=\"served\"} 2",
        "tollgate_request_time_in_queue_seconds_bucket{tollgate_limit=\"reports\",\
         tollgate_step=\"served\",le=\"0.5\"} 1",
        "tollgate_store_keys 4",
    ] {
        assert!(page.contains(&format!("\n{line}\n")), "{line} is not in\n{page}");
    }
    assert!(!page.contains("alice"), "{page}");
}

/// Sends a request to an app in this process: over a connection, the paused clock could move on
/// before the request is there.
async fn ask(app: &Router, request: Builder) -> u16 {
    let client = ConnectInfo(SocketAddr::from(([192, 0, 2, 1], 7)));
    let request = request.extension(client).body(Body::empty()).unwrap();
    let Ok(response) = app.clone().oneshot(request).await;
    response.status().as_u16()
}

/// A store behind a network of 5 ms, which can be cut.
#[derive(Debug, Default)]
struct Away(AtomicBool, Memory);

impl Backend for Away {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        let (is_down, answer) = (self.0.load(Ordering::Relaxed), self.1.apply(charges));
        Answer::pending(async move {
            tokio::time::sleep(ms(5)).await;
            match is_down {
                true => Err(BackendError::timeout("away", ms(5))),
                false => answer.wait().await,
            }
        })
    }
    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        self.1.adjust(adjustments)
    }
    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.1.reset(ids)
    }
}

/// Lets all happen that a metric or a label is for.
async fn play(watched: &observing::Watched) {
    let limiter = &watched.limiter;
    let large = limiter.layer(Rule::new(&ONE).cost(2));
    let blocks = Rule::new(&ONE).key(header("x-user")).block_after(1, HOUR, HOUR);
    let exempt = limiter.layer(Rule::new(&ONE).key(from_fn(|_| Extracted::Exempt)));
    let several = limiter.layer(&AWAY).and(Rule::new(&ONE).shadow());
    let queue = limiter.layer(&TENTHS).queue(Queue::new(SECOND).max_waiters(1));
    let nothing = || axum::routing::get(async || "");
    let app = watched
        .app()
        .route("/large", nothing().rate_limit(large))
        .route("/keyed", nothing().rate_limit(limiter.layer(&ONE).key(header("x-user"))))
        .route("/blocks", nothing().rate_limit(limiter.layer(blocks)))
        .route("/exempt", nothing().rate_limit(exempt))
        .route("/several", nothing().rate_limit(several))
        .route("/queue", nothing().rate_limit(queue));
    for (path, status) in
        [("/large", 413), ("/keyed", 400), ("/exempt", 200), ("/several", 200), ("/several", 200)]
    {
        assert_eq!(ask(&app, Request::get(path)).await, status, "{path}");
    }
    let refused = || ask(&app, Request::get("/blocks").header("x-user", "blocked"));
    assert_eq!([refused().await, refused().await], [200, 429]);
    // One waits, the other finds no place.
    let queued = || ask(&app, Request::get("/queue"));
    assert_eq!(tokio::join!(queued(), queued()), (200, 503));
    // The turn of the second would come after two tenths of a second.
    let stays = Queue::new(ms(150)).stay();
    let stays = limiter.layer(&TENTHS).key(header("x-user")).queue(stays);
    let app = Router::new().route("/", nothing()).layer(stays);
    let stays = || ask(&app, Request::get("/").header("x-user", "stays"));
    assert_eq!(tokio::join!(stays(), stays()), (200, 429));

    assert!(limiter.limit(&AWAY).and(&ONE).await.is_err()); // the one refuses, the other does not
    let reserve = async || limiter.limit(&TENTHS).reserve().await.unwrap();
    drop(reserve().await);
    drop(reserve().await.keep());
    assert!(limiter.limit(&AWAY).and(&TENTHS).reserve().await.is_ok());

    // More keys than the store holds, and later all of them full again.
    for key in 0..500_u64 {
        drop(limiter.limit(&TENTHS).key(key).reserve().await.map(|reserved| reserved.keep()));
    }
    tokio::time::advance(HOUR).await;
    for key in 0..10_u64 {
        drop(limiter.limit(&TENTHS).key(key).reserve().await.map(|reserved| reserved.keep()));
    }

    // A store that is away, and comes back.
    let store = Arc::new(Away::default());
    let away = limiter.with_backend(Arc::clone(&store));
    let open = away.clone().on_failure(OnFailure::Admit);
    assert!(away.limit(&AWAY).await.is_ok());
    store.0.store(true, Ordering::Relaxed);
    assert!(away.limit(&AWAY).await.is_err() && open.limit(&AWAY).await.is_ok());
    store.0.store(false, Ordering::Relaxed);
    tokio::time::advance(MINUTE).await;
    assert!(away.limit(&AWAY).await.is_ok());

    // At last, since a limiter that was drained stays so.
    let queue = limiter.layer(&TENTHS).key(header("x-user")).queue(SECOND);
    let app = Router::new().route("/", nothing()).layer(queue);
    let request = Request::get("/").header("x-user", "drained");
    let waits = tokio::spawn(async move { ask(&app, request).await });
    while limiter.peek(&TENTHS).key("drained").waiting() == 0 {
        tokio::task::yield_now().await;
    }
    limiter.drain(ms(0));
    assert_eq!(waits.await.unwrap(), 503);
}

#[tokio::test(start_paused = true)]
async fn a_scrape_has_every_metric_of_the_table_and_every_value_of_its_labels() {
    let watched = watched();
    play(&watched).await;
    let operators = serve(watched.operators()).await;
    let page = get(operators, "/metrics").await.body;
    let lines: Vec<_> = page.lines().filter(|line| line.starts_with("tollgate_")).collect();

    // The names, without what the exporter appends to those of histograms.
    let named = |line: &&str| {
        let name = line.split(['{', ' ']).next().unwrap();
        let histogram = ["_bucket", "_sum", "_count"]
            .into_iter()
            .find_map(|end| name.strip_suffix(end).filter(|name| name.ends_with("_seconds")));
        histogram.unwrap_or(name).to_owned()
    };
    let names: BTreeSet<_> = lines.iter().map(named).collect();
    let table: BTreeSet<_> = table::metrics().into_iter().map(|row| row.in_prometheus).collect();
    assert_eq!(names, table, "left: the page; right: docs/observing.md");

    let labels = table::labels();
    for (label, values) in &labels {
        let value = |line: &&str| {
            let (_, rest) = line.split_once(&format!("{label}=\""))?;
            Some(rest.split('"').next()?.to_owned())
        };
        let seen: BTreeSet<_> = lines.iter().filter_map(value).collect();
        let known: BTreeSet<_> = values.iter().cloned().collect();
        match &**label {
            "tollgate_limit" => assert!(seen.contains("exports") || seen.contains("one")),
            "error_type" => assert!(seen.contains("timeout") && seen.is_subset(&known)),
            _ => assert_eq!(seen, known, "{label}: left: the page; right: docs/observing.md"),
        }
    }
    // No label that the guide does not name.
    for line in lines {
        let Some((_, rest)) = line.split_once('{') else { continue };
        let (own, _) = rest.rsplit_once('}').unwrap();
        for label in own.split("\",").filter_map(|pair| pair.split('=').next()) {
            assert!(labels.contains_key(label) || label == "le", "{label} in {line}");
        }
    }
}
