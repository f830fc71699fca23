//! Against the layer of a server: none is refused, and the rate is used.
//!
//! Time is tokio's, paused: it jumps to the next timer when there is nothing else to do. So the
//! figures are the same in each run.

use tollgate_testing::START;
use tollgate_testing::cases::times;
use tollgate_testing::dice::Dice;

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tollgate::backend::Memory;
use tollgate::clock::Clock;
use tollgate::{DAY, Limit, MINUTE, Quota, RateLimitLayer, RateLimiter, SECOND, Timestamp};
use tollgate_client::pacing::PacingLayer;
use tower::{Layer, Service, ServiceExt, service_fn};

/// What a run came to.
#[derive(Debug)]
struct Run {
    refused: usize,
    elapsed: Duration,
}

/// How a client sends, and how far away the server is.
#[derive(Clone, Copy, Debug)]
struct Traffic {
    requests: u32,
    /// The requests that are under way or wait at one time.
    tasks: u32,
    /// The longest time on the way there and on the way back, in milliseconds.
    way: u64,
}

/// The time of the server, in step with tokio's. Where its windows begin depends on its first time.
#[derive(Debug)]
struct ServerClock {
    start: Instant,
    first: Timestamp,
}

impl Clock for ServerClock {
    fn now(&self) -> Timestamp {
        self.first + self.start.elapsed()
    }
}

/// With it, answers of the window before came behind the first ones of the next window, and were
/// taken for news: ten of 2,000 requests were refused.
const PHASE: Duration = Duration::from_millis(555);

fn limiter() -> RateLimiter {
    let clock = ServerClock { start: Instant::now(), first: START + PHASE };
    RateLimiter::new(Memory::new().clock(clock))
}

async fn hello(_: Request<()>) -> Result<Response<()>, Infallible> {
    Ok(Response::new(()))
}

/// Sends all requests as fast as the client allows, to a service behind this layer.
async fn run(layer: RateLimitLayer, pacing: Option<PacingLayer>, traffic: Traffic) -> Run {
    run_to(layer.layer(service_fn(hello)), pacing, traffic).await
}

/// Sends all requests as fast as the client allows.
async fn run_to<S, B>(server: S, pacing: Option<PacingLayer>, traffic: Traffic) -> Run
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    let Traffic { requests, tasks, way } = traffic;
    let dice = Arc::new(Mutex::new(Dice(7)));
    let network = service_fn(move |request: Request<()>| {
        let (server, dice) = (server.clone(), Arc::clone(&dice));
        async move {
            let roll = || Duration::from_micros(dice.lock().unwrap().below(way * 1_000 + 1));
            let (there, back) = (roll(), roll());
            sleep(there).await;
            let response = server.oneshot(request).await?;
            sleep(back).await;
            Ok::<_, Infallible>(response.map(|_| ()))
        }
    });
    let start = Instant::now();
    let mut senders = JoinSet::new();
    let pacing = pacing.map(|pacing| pacing.max_wait(DAY).layer(network.clone()));
    for task in 0..tasks {
        let (network, mut pacing) = (network.clone(), pacing.clone());
        senders.spawn(async move {
            let mut refused = 0;
            for _ in (task..requests).step_by(tasks.try_into().unwrap()) {
                let request = Request::get("http://them.example/").body(()).unwrap();
                let response = match &mut pacing {
                    Some(pacing) => pacing.ready().await.unwrap().call(request).await.unwrap(),
                    None => network.clone().oneshot(request).await.unwrap(),
                };
                refused += usize::from(response.status() == 429);
            }
            refused
        });
    }
    let refused = senders.join_all().await.into_iter().sum();
    Run { refused, elapsed: start.elapsed() }
}

/// The share of what the quota allows in this time: its capacity, and its rate after that.
fn share(quota: Quota, requests: u32, elapsed: Duration) -> f64 {
    let [rate, capacity] = [quota.rate(), quota.get_capacity()]
        .map(|tokens| f64::from(u32::try_from(tokens).unwrap()));
    let rate = rate / quota.period().as_secs_f64();
    f64::from(requests) / (capacity + rate * elapsed.as_secs_f64())
}

#[tokio::test(start_paused = true)]
async fn of_1000_requests_none_is_refused_and_95_percent_of_the_rate_are_used() {
    let quotas = [
        (Quota::token_bucket(200, SECOND), 1_000),
        (Quota::token_bucket(200, SECOND).capacity(50), 1_000),
        (Quota::token_bucket(200, SECOND).capacity(1_000), 4_000),
        (Quota::token_bucket(1_000, SECOND), 10_000),
        (Quota::token_bucket(10, SECOND), 1_000),
        (Quota::token_bucket(1, SECOND), 100),
        (Quota::token_bucket(2, SECOND), 200),
        (Quota::token_bucket(3, 2 * SECOND), 150),
        (Quota::fixed_window(1, SECOND), 100),
        (Quota::fixed_window(5, SECOND), 500),
        (Quota::token_bucket(10, MINUTE).capacity(20), 1_000),
        (Quota::fixed_window(200, SECOND), 4_000),
        (Quota::fixed_window(100, 2 * SECOND), 2_000),
        (Quota::fixed_window(100, MINUTE), 2_000),
    ];
    let ways = [(1, 0), (32, 0), (32, 5), (32, 20), (1_000, 5), (32, 200)];
    // In CI each quota is asked in all six ways, and otherwise in two: each way for four quotas.
    let played = usize::try_from(times(6, 2)).unwrap();
    let mut table = Vec::new();
    for (nth, (quota, requests)) in quotas.into_iter().enumerate() {
        for (tasks, way) in ways.into_iter().cycle().skip(nth * 2 % 6).take(played) {
            let traffic = Traffic { requests, tasks, way };
            let layer = limiter().layer(Limit::new("theirs", quota));
            let run = run(layer, Some(PacingLayer::new()), traffic).await;
            let share = share(quota, traffic.requests, run.elapsed);
            table.push((quota.to_string(), tasks, way, run.refused, run.elapsed, share));
        }
    }
    for row in &table {
        let (_, _, way, refused, _, share) = row;
        // Where the server is far away, its answers show later what has come at a reset.
        let least = if *way <= 5 { 0.95 } else { 0.94 };
        assert!(*refused == 0 && (*share >= least || *way > 20), "{row:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_layer_most_of_them_are_refused() {
    let quota = Quota::token_bucket(200, SECOND);
    let traffic = Traffic { requests: 1_000, tasks: 32, way: 5 };
    let run = run(limiter().layer(Limit::new("theirs", quota)), None, traffic).await;
    assert!(run.refused > 700, "{run:?}");
}

/// The limits of both were in fields that no parser reads.
#[tokio::test(start_paused = true)]
async fn behind_a_gateway_the_limit_of_its_upstream_is_kept_as_well() {
    let traffic = Traffic { requests: 200, tasks: 8, way: 5 };
    let upstream = Quota::token_bucket(5, SECOND);
    let mut refused = Vec::new();
    for removes in [false, true] {
        let limiter = limiter();
        let inner = limiter.layer(Limit::new("upstream", upstream)).layer(service_fn(hello));
        let gateway = limiter.layer(Limit::new("gateway", Quota::token_bucket(100, SECOND)));
        let gateway = if removes { gateway.remove_foreign_fields() } else { gateway };
        let gateway = gateway.layer(inner);
        let run = run_to(gateway, Some(PacingLayer::new()), traffic).await;
        if !removes {
            assert!(share(upstream, traffic.requests, run.elapsed) >= 0.95, "{run:?}");
        }
        refused.push(run.refused);
    }
    assert_eq!(refused.iter().map(|&count| count > 0).collect::<Vec<_>>(), [false, true]);
}

/// Such a limit shows that nothing is left to the only client that it has, and says no time.
#[tokio::test(start_paused = true)]
async fn limits_that_do_not_count_requests_space_none() {
    const AT_ONCE: Limit = Limit::new("at-once", Quota::in_flight(1));
    let hello = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
    let mut client = PacingLayer::new().layer(limiter().layer(&AT_ONCE).layer(hello));
    let begun = Instant::now();
    for _ in 0..10 {
        let request = Request::get("http://them.example/").body(()).unwrap();
        let response = client.ready().await.unwrap().call(request).await.unwrap();
        assert_eq!(response.headers()["ratelimit"], "\"at-once\";r=0");
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    let bytes = service_fn(async |_: Request<()>| {
        let response = Response::builder()
            .header(
                "ratelimit-policy",
                "\"up\";q=9000;w=60;qu=\"content-bytes\", \"api\";q=9;w=9;qu=requests",
            )
            .header("ratelimit", "\"up\";r=1;t=60, \"api\";r=8;t=8");
        Ok::<_, Infallible>(response.body(()).unwrap())
    });
    let response = bytes.oneshot(Request::new(())).await.unwrap();
    let reading = tollgate_client::read(response.headers(), response.status());
    let names: Vec<_> = reading.limits().iter().map(|limit| limit.name()).collect();
    assert_eq!(names, ["api"]);
}
