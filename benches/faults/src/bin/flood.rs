//! What a flood of one client gains, and what it costs another client, on a limit in Redis.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::{Request, Response, StatusCode};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::key::header;
use tollgate::{DAY, HOUR, Limit, OnFailure, Quota, RateLimiter, Timestamp};
use tollgate_redis::Redis;
use tollgate_testing::redis::Server;
use tower::{Layer, Service, ServiceExt};

const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));
/// A window of a hundred years, counted from 1970: nothing comes back meanwhile.
const SEARCH: Limit = Limit::new(
    "search",
    Quota::fixed_window(1_000_000, DAY.saturating_mul(36_525)).start(Timestamp::UNIX_EPOCH),
);

/// Requests of the flood that are under way at the same time, and each of them this often.
const TASKS: usize = 6_000;
const ROUNDS: usize = 15;

fn main() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime of two threads").block_on(async {
        println!("{} requests of one client, {TASKS} at a time; deadline 50 ms", TASKS * ROUNDS);
        println!(
            "limit     on failure  ran uncharged  no decision  another client: p50     p99     503"
        );
        for (limit, capacity) in [(&LOGIN, 5), (&SEARCH, 1_000_000)] {
            for on_failure in [OnFailure::Admit, OnFailure::Refuse] {
                flood(limit, capacity, on_failure).await;
            }
        }
    });
}

async fn flood(limit: &'static Limit, capacity: u64, on_failure: OnFailure) {
    let server = Server::start();
    let limiter = RateLimiter::new(Redis::connect(server.url()).await.expect("a server"));
    let ran = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&ran);
    let inner = tower::service_fn(move |request: Request<()>| {
        if request.headers()["x-user"] == "attacker" {
            counter.fetch_add(1, Ordering::AcqRel);
        }
        std::future::ready(Ok::<_, Infallible>(Response::new(())))
    });
    let layer = limiter.layer(limit).key(header("x-user")).on_failure(on_failure);
    let service = layer.layer(inner);
    ask(service.clone(), "first").await;

    let over = Arc::new(AtomicBool::new(false));
    let other = tokio::spawn(other(service.clone(), Arc::clone(&over)));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let service = service.clone();
        tasks.spawn(async move {
            let mut undecided = 0;
            for _ in 0..ROUNDS {
                let status = ask(service.clone(), "attacker").await;
                undecided += usize::from(status == StatusCode::SERVICE_UNAVAILABLE);
            }
            undecided
        });
    }
    let undecided: usize = tasks.join_all().await.into_iter().sum();
    over.store(true, Ordering::Release);
    let (mut waits, closed) = other.await.expect("the other client");
    waits.sort_unstable();
    let quantile = |share: usize| waits.get(waits.len() * share / 100).copied().unwrap_or_default();

    let snapshot = limiter.peek(limit).key("attacker").await.expect("a server");
    let taken = capacity - snapshot.remaining();
    let ran = ran.load(Ordering::Acquire) as u64;
    println!(
        "{:<9} {:<11} {:>13} {undecided:>12} {:>20.1?} {:>7.1?} {:>3} of {}",
        limit.name(),
        format!("{on_failure:?}"),
        ran.saturating_sub(taken),
        quantile(50),
        quantile(99),
        closed,
        waits.len(),
    );
}

/// Another client, far from its limit: how long it waits each time, and how often it gets 503.
async fn other<S, B>(service: S, over: Arc<AtomicBool>) -> (Vec<Duration>, usize)
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible> + Clone,
{
    let (mut waits, mut closed) = (Vec::new(), 0);
    let mut user = 0;
    while !over.load(Ordering::Acquire) {
        // A new bucket every fourth time, so that it never comes to its limit.
        user += 1;
        let begun = Instant::now();
        let status = ask(service.clone(), &format!("other-{}", user / 4)).await;
        waits.push(begun.elapsed());
        closed += usize::from(status == StatusCode::SERVICE_UNAVAILABLE);
        sleep(Duration::from_millis(2)).await;
    }
    (waits, closed)
}

async fn ask<S, B>(service: S, user: &str) -> StatusCode
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    let request = Request::builder().header("x-user", user).body(()).expect("a request");
    match service.oneshot(request).await {
        Ok(response) => response.status(),
        Err(never) => match never {},
    }
}
