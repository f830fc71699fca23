//! Runtimes that shut down, and threads without one, while very many guards are alive: each drop
//! may ask the store for something that no task can carry out any more.
//!
//! A stack that overflows aborts the process. So each case runs in a process of its own, which is
//! this test again, with a variable that names the case.

use std::convert::Infallible;
use std::future::pending;
use std::process::{Command, Stdio};
use std::time::Duration;

use futures_util::future::join_all;
use http::{Request, Response};
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tollgate::backend::{DenyCache, Memory};
use tollgate::limiter::Permit;
use tollgate::middleware::Queue;
use tollgate::{DAY, HOUR, Limit, Quota, RateLimiter, Timestamp};
use tollgate_leasing::Leasing;
use tollgate_redis::Redis;
use tollgate_testing::cases::times;
use tollgate_testing::queue::{Held, Late, lines, poll, reserved};
use tollgate_testing::redis::Server;
use tower::{Layer, ServiceExt, service_fn};

/// One a day, and nothing saved up: all wait.
static DAILY: Limit = Limit::new("daily", Quota::token_bucket(1, DAY).capacity(0));

/// More than all guards of a case cost.
static ROOMY: Limit = Limit::new("roomy", Quota::token_bucket(1_000_000, DAY).max_reserved(0));

/// How many guards a case has: 100,000 with the cases that CI plays. A thousand overflowed a stack
/// of two megabytes, when each drop took a few frames.
fn guards() -> u64 {
    times(100_000, 4_000)
}

/// Names the case to the process that runs it.
const CASE: &str = "TOLLGATE_SHUTDOWN_OF_CHILD";

/// The stores, and the runtimes.
const STORES: [&str; 3] = ["memory", "late", "held"];
const RUNTIMES: [&str; 2] = ["one thread", "workers"];

/// Runs this test in a process for each case, and in that process the case.
fn in_processes(test: &str, cases: &[(&str, &str)], run: impl Fn(&str, Runtime)) {
    if let Ok(case) = std::env::var(CASE) {
        let (store, threads) = case.split_once('/').unwrap();
        let runtime = match threads {
            "one thread" => Builder::new_current_thread().enable_all().build(),
            _ => Builder::new_multi_thread().worker_threads(2).enable_all().build(),
        };
        return run(store, runtime.unwrap());
    }
    let (_, module) = module_path!().split_once("::").unwrap();
    let start = |(store, threads): &(&str, &str)| {
        let mut process = Command::new(std::env::current_exe().unwrap());
        process.args(["--exact", &format!("{module}::{test}")]);
        process.env(CASE, format!("{store}/{threads}"));
        process.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let processes: Vec<_> = cases.iter().map(start).collect();
    for (process, case) in processes.into_iter().zip(cases) {
        let output = process.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{case:?}: {output:?}");
    }
}

/// All stores on both runtimes.
fn all_cases() -> Vec<(&'static str, &'static str)> {
    let of_store = |store| RUNTIMES.map(|threads| (store, threads));
    STORES.into_iter().flat_map(of_store).collect()
}

/// A limiter, and what holds back the answers of its store.
struct Setup {
    limiter: RateLimiter,
    store: Option<Late>,
    held: Option<Held>,
}

impl Setup {
    fn new(store: &str) -> Self {
        if store == "memory" {
            return Self { limiter: RateLimiter::new(Memory::new()), store: None, held: None };
        }
        let (late, limiter, _) = Late::new();
        Self { limiter, store: Some(late), held: None }
    }

    /// From here on, the store leaves calls without an answer.
    fn hold(&mut self) {
        self.held = self.store.as_ref().map(Late::close);
    }
}

/// Makes guards by `begin`, in each case, and ends their runtime. With a store that is held, their last
/// calls have no answer.
fn end_with_runtime(test: &str, begin: impl AsyncFn(&RateLimiter)) {
    in_processes(test, &all_cases(), |store, runtime| {
        let mut setup = Setup::new(store);
        runtime.block_on(async {
            begin(&setup.limiter).await;
            if store == "held" {
                setup.hold();
            }
        });
        drop(runtime);
        assert_eq!(lines(&setup.limiter), 0);
    });
}

/// Keeps this in a task until the runtime shuts down.
fn keep<T: Send + 'static>(guard: T) {
    tokio::spawn(async move {
        let _guard = guard;
        pending::<()>().await;
    });
}

#[test]
fn reservations_end_with_their_runtime() {
    in_processes("reservations_end_with_their_runtime", &all_cases(), |store, runtime| {
        let mut setup = Setup::new(store);
        runtime.block_on(async {
            for _ in 0..guards() {
                keep(reserved(&setup.limiter, &DAILY, 1).await);
            }
            if store == "held" {
                // The store is asked to undo this one when the runtime shuts down.
                let last = reserved(&setup.limiter, &DAILY, 1).await;
                setup.hold();
                drop(last);
                yield_now().await;
            }
        });
        drop(runtime);
        assert_eq!(lines(&setup.limiter), 0);
    });
}

#[test]
fn reservations_end_outside_of_a_runtime() {
    let cases = STORES.map(|store| (store, "workers"));
    in_processes("reservations_end_outside_of_a_runtime", &cases, |store, runtime| {
        let mut setup = Setup::new(store);
        let all = runtime.block_on(async {
            let mut all = Vec::new();
            for _ in 0..guards() {
                all.push(reserved(&setup.limiter, &DAILY, 1).await);
            }
            all
        });
        setup.hold();
        drop(all);
        assert_eq!(lines(&setup.limiter), 0);
    });
}

#[test]
fn waiters_end_with_their_runtime() {
    end_with_runtime("waiters_end_with_their_runtime", async |limiter| {
        for _ in 0..guards() {
            tokio::spawn(reserved(limiter, &DAILY, 1).await.ready());
        }
        yield_now().await;
    });
}

/// Half of the waiters are granted tokens that came back, and are dropped before they use them: the
/// tokens go to those behind, or back to the store.
#[test]
fn turns_that_were_not_used_end_with_their_runtime() {
    let test = "turns_that_were_not_used_end_with_their_runtime";
    let half = guards() / 2;
    let window = Quota::fixed_window(half, DAY).start(Timestamp::UNIX_EPOCH);
    let limit = Limit::new("half", window);
    end_with_runtime(test, async |limiter| {
        let paid = limiter.limit(&limit).cost(half).await.unwrap();
        let mut waiters = Vec::new();
        for _ in 0..guards() {
            let mut waiter = Box::pin(reserved(limiter, &limit, 1).await.ready());
            assert!(poll(&mut waiter).is_none());
            waiters.push(waiter);
        }
        paid.refund().await.unwrap();
        for waiter in waiters {
            keep(waiter);
        }
    });
}

/// Settles its permit when it is dropped, as the body of a response does.
struct Metered(Option<Permit<'static>>);

impl Drop for Metered {
    fn drop(&mut self) {
        drop(self.0.take().map(Permit::refund));
    }
}

#[test]
fn permits_that_are_settled_on_drop_end_with_their_runtime() {
    let test = "permits_that_are_settled_on_drop_end_with_their_runtime";
    end_with_runtime(test, async |limiter| {
        for _ in 0..guards() {
            let permit = limiter.limit(&ROOMY).await.unwrap();
            keep(Metered(Some(permit.into_owned())));
        }
    });
}

/// Calls that have no answer yet, of each kind, through the wrappers of a store as well.
#[test]
fn calls_without_an_answer_end_with_their_runtime() {
    let test = "calls_without_an_answer_end_with_their_runtime";
    let stores = ["held", "cached", "leased"];
    let cases: Vec<_> =
        stores.into_iter().flat_map(|store| RUNTIMES.map(|threads| (store, threads))).collect();
    in_processes(test, &cases, |store, runtime| {
        let (late, limiter, _) = Late::new();
        let limiter = match store {
            "cached" => RateLimiter::new(DenyCache::new(late.clone())),
            "leased" => RateLimiter::new(Leasing::new(late.clone()).lease(&ROOMY)),
            _ => limiter,
        };
        let held = runtime.block_on(async {
            let mut permits = Vec::new();
            for _ in 0..guards() / 4 {
                permits.push(limiter.limit(&ROOMY).await.unwrap().into_owned());
            }
            let held = late.close();
            for permit in permits {
                let [takes, reserves, resets] = [(); 3].map(|()| limiter.clone());
                // More than a node has leased.
                tokio::spawn(async move { takes.limit(&ROOMY).cost(1_000).await.map(drop) });
                tokio::spawn(async move { reserves.limit(&DAILY).reserve().await.map(drop) });
                tokio::spawn(async move { resets.reset(&ROOMY).await });
                tokio::spawn(permit.refund());
            }
            yield_now().await;
            held
        });
        drop(runtime);
        drop(held);
        assert_eq!(lines(&limiter), 0);
    });
}

/// Requests that wait in the queue of a layer which settles them.
#[test]
fn requests_in_a_queue_end_with_their_runtime() {
    end_with_runtime("requests_in_a_queue_end_with_their_runtime", async |limiter| {
        let layer = limiter.layer(&DAILY).cost(1).settle();
        let queue = Queue::new(Duration::MAX).max_waiters(usize::try_from(guards()).unwrap());
        let service = layer
            .queue(queue)
            .layer(service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(()))));
        for _ in 0..guards() {
            tokio::spawn(service.clone().oneshot(Request::new(())));
        }
        yield_now().await;
    });
}

/// Reservations on Redis, and calls that wait for a server which does not answer: 800 of the first
/// ended a process with SIGABRT.
#[test]
fn what_waits_on_redis_ends_with_its_runtime() {
    let cases = RUNTIMES.map(|threads| ("redis", threads));
    in_processes("what_waits_on_redis_ends_with_its_runtime", &cases, |_, runtime| {
        let server = Server::start();
        let store = Redis::at(server.url()).deadline(HOUR);
        let limiter = runtime.block_on(async {
            let limiter = RateLimiter::new(store.connect().await.unwrap());
            let reserve = (0..guards()).map(|_| reserved(&limiter, &DAILY, 1));
            join_all(reserve).await.into_iter().for_each(keep);
            server.stop();
            for _ in 0..guards() {
                let other = limiter.clone();
                tokio::spawn(async move { other.limit(&ROOMY).await.map(drop) });
            }
            yield_now().await;
            limiter
        });
        drop(runtime);
        assert_eq!(lines(&limiter), 0);
    });
}
