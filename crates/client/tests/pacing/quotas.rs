//! Quotas that the client knows: servers that ban, and servers that refuse for a while.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response};
use tokio::task::JoinSet;
use tokio::time::{Instant, advance, sleep, timeout};
use tollgate::backend::Memory;
use tollgate::clock::TokioClock;
use tollgate::middleware::Queue;
use tollgate::{HOUR, Limit, Quota, RateLimiter, SECOND};
use tollgate_client::pacing::PacingLayer;
use tollgate_client::retry::RetryLayer;
use tollgate_testing::dice::Dice;
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service, ServiceExt, service_fn};

static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(10, SECOND).capacity(0));

const MILLI: Duration = Duration::from_millis(1);

/// A server that counts by a log, and refuses everything after it has refused once.
#[derive(Debug, Default)]
struct Strict {
    log: VecDeque<Instant>,
    is_banned: bool,
    refused: u32,
}

impl Strict {
    fn admits(&mut self) -> bool {
        let now = Instant::now();
        while self.log.front().is_some_and(|at| *at + SECOND < now) {
            self.log.pop_front();
        }
        self.is_banned |= self.log.len() >= 10;
        if self.is_banned {
            self.refused += 1;
        } else {
            self.log.push_back(now);
        }
        !self.is_banned
    }
}

type Network = BoxCloneSyncService<Request<()>, Response<()>, Infallible>;

/// How many of 40 jobs are refused, and how long they take.
async fn run<S, B>(seed: u64, client: impl FnOnce(Network) -> S) -> (u32, Duration)
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible, Future: Send>,
    S: Clone + Send + 'static,
    B: Send + 'static,
{
    let strict = Arc::new(Mutex::new(Strict::default()));
    let (server, dice) = (Arc::clone(&strict), Arc::new(Mutex::new(Dice(seed))));
    let network = service_fn(move |_: Request<()>| {
        let (server, dice) = (Arc::clone(&server), Arc::clone(&dice));
        async move {
            let way = Duration::from_millis(dice.lock().unwrap().below(301));
            sleep(way).await;
            let status = if server.lock().unwrap().admits() { 200 } else { 429 };
            Ok::<_, Infallible>(Response::builder().status(status).body(()).unwrap())
        }
    });
    let client = client(Network::new(network));
    let start = Instant::now();
    let mut jobs = JoinSet::new();
    for _ in 0..40 {
        jobs.spawn(client.clone().oneshot(Request::new(())));
    }
    jobs.join_all().await;
    let refused = strict.lock().unwrap().refused;
    (refused, start.elapsed())
}

/// A limiter that spaces requests evenly was refused 20 of 40: they arrive less evenly than they
/// are sent.
#[tokio::test(start_paused = true)]
async fn a_server_that_counts_by_a_log_and_bans_refuses_none_of_40_jobs() {
    let mut longest = Duration::ZERO;
    for seed in 0..20 {
        let pacing = PacingLayer::new().quota(10, SECOND);
        let (refused, elapsed) =
            run(seed, |network| RetryLayer::new().layer(pacing.layer(network))).await;
        assert_eq!(refused, 0, "seed {seed}");
        longest = longest.max(elapsed);
    }
    println!("40 jobs took {longest:?} at most");
    // 30 requests after the first ten take three seconds at the full rate.
    assert!(longest < Duration::from_millis(5_500), "{longest:?}");
    let mut fewest = u32::MAX;
    for seed in 0..20 {
        let limiter = RateLimiter::new(Memory::new().clock(TokioClock::new()));
        let spaced = limiter.layer(&SPACED).queue(Queue::new(HOUR));
        fewest = fewest.min(run(seed, |network| spaced.layer(network)).await.0);
    }
    println!("without it, at least {fewest} of them are refused");
    assert!(fewest >= 10, "{fewest}");
}

/// Whether the server refuses, and what it has got: how many requests in all, and how many while it
/// refused.
#[derive(Debug, Default)]
struct Outage {
    until: Option<Instant>,
    got: u32,
    refused: Vec<Instant>,
}

/// In every order of layers, 21 to 25 requests ran into the outage: what waited behind the first
/// refusal was sent in spite of it.
#[tokio::test(start_paused = true)]
async fn a_refusal_that_one_request_meets_pauses_what_waits_behind_it() {
    let outage = Arc::new(Mutex::new(Outage::default()));
    let server = Arc::clone(&outage);
    let network = service_fn(move |_: Request<()>| {
        let server = Arc::clone(&server);
        async move {
            sleep(20 * MILLI).await;
            let response = {
                let mut server = server.lock().unwrap();
                let now = Instant::now();
                server.got += 1;
                if server.got == 35 {
                    server.until = Some(now + 5 * SECOND);
                }
                match server.until {
                    Some(until) if now < until => {
                        server.refused.push(now);
                        let wait = (until - now).as_secs_f64().ceil().to_string();
                        Response::builder().status(429).header("retry-after", wait)
                    }
                    _ => Response::builder(),
                }
            };
            sleep(20 * MILLI).await;
            Ok::<_, Infallible>(response.body(()).unwrap())
        }
    });
    let client = RetryLayer::new().layer(PacingLayer::new().quota(10, SECOND).layer(network));
    let start = Instant::now();
    let mut jobs = JoinSet::new();
    for _ in 0..100 {
        jobs.spawn(client.clone().oneshot(Request::new(())));
    }
    for response in jobs.join_all().await {
        assert_eq!(response.unwrap().status(), 200);
    }
    let outage = outage.lock().unwrap();
    let first = outage.refused[0];
    println!("{} ran into the outage; 100 took {:?}", outage.refused.len(), start.elapsed());
    // Those that were under way, and none that was sent after the first refusal had come back.
    assert!(outage.refused.iter().all(|at| *at < first + 40 * MILLI), "{outage:?}");
    assert!(outage.refused.len() <= 10, "{outage:?}");
    // Ten seconds at 10 a second, and five in which the server refused.
    assert!(start.elapsed() < 17 * SECOND, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn several_quotas_hold_together_and_zero_is_one() {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let (log, start) = (Arc::clone(&sent), Instant::now());
    let server = service_fn(move |_: Request<()>| {
        log.lock().unwrap().push(start.elapsed().as_millis());
        async { Ok::<_, Infallible>(Response::new(())) }
    });
    let client = PacingLayer::new().quota(2, SECOND).quota(5, 10 * SECOND);
    let mut client = client.layer(server.clone());
    for _ in 0..6 {
        client.ready().await.unwrap().call(Request::new(())).await.unwrap();
    }
    assert_eq!(*sent.lock().unwrap(), [0, 0, 1_001, 1_001, 2_002, 10_001]);
    sent.lock().unwrap().clear();
    let mut one = PacingLayer::new().quota(0, SECOND).layer(server);
    for _ in 0..3 {
        one.ready().await.unwrap().call(Request::new(())).await.unwrap();
    }
    assert_eq!(*sent.lock().unwrap(), [10_001, 11_002, 12_003]);
}

/// No wait is too long for a quota: neither `max_wait` nor a reset that is far away lets a request
/// go before.
#[tokio::test(start_paused = true)]
async fn the_longest_wait_does_not_break_a_quota() {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let (log, start) = (Arc::clone(&sent), Instant::now());
    let server = service_fn(move |_: Request<()>| {
        log.lock().unwrap().push(start.elapsed().as_secs());
        async {
            sleep(2 * SECOND).await;
            let response = Response::builder().status(429).header("retry-after", "86400");
            Ok::<_, Infallible>(response.body(()).unwrap())
        }
    });
    let client = PacingLayer::new().max_wait(SECOND).quota(1, 10 * SECOND).layer(server);
    let mut jobs = JoinSet::new();
    for _ in 0..4 {
        jobs.spawn(client.clone().oneshot(Request::new(())));
    }
    jobs.join_all().await;
    assert_eq!(*sent.lock().unwrap(), [0, 12, 24, 36]);
}

/// The deadline of the caller is a timeout around the call.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_given_up_in_the_line_is_not_sent_and_takes_nothing() {
    let sent = Arc::new(Mutex::new(0));
    let log = Arc::clone(&sent);
    let server = service_fn(move |_: Request<()>| {
        *log.lock().unwrap() += 1;
        async {
            sleep(SECOND / 10).await;
            Ok::<_, Infallible>(Response::new(()))
        }
    });
    let client = PacingLayer::new().quota(1, HOUR).layer(server);
    // This one is given up while it is under way: the server may have counted it.
    let mut first = Box::pin(client.clone().oneshot(Request::new(())));
    assert!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(first);
    let late = timeout(SECOND, client.clone().oneshot(Request::new(())));
    assert!(late.await.is_err());
    assert_eq!(*sent.lock().unwrap(), 1);
    // The line has kept no place for it.
    let mut next = pin!(client.oneshot(Request::new(())));
    advance(HOUR - 2 * MILLI - SECOND).await;
    let mut poll = || next.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll().is_pending());
    assert_eq!(*sent.lock().unwrap(), 1);
    advance(4 * MILLI).await;
    assert!(matches!(poll(), Poll::Pending));
    assert_eq!(*sent.lock().unwrap(), 2);
}
