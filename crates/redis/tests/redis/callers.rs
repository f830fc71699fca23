//! Calls to a store in Redis that reach their deadline or are dropped: they disturb no other call,
//! and leave nothing behind.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::task::coop::{Unconstrained, unconstrained};
use tokio::task::yield_now;
use tollgate::limiter::{LimitCall, Permit};
use tollgate::{MINUTE, RateLimited, RateLimiter};
use tollgate_redis::{Redis, RedisBuilder};
use tollgate_testing::redis::Server;
use tollgate_testing::traffic::{
    COUNTED, DEADLINE, Lost, RECOVERY, SILENT, Told, Traffic, chain, taken, wait_until,
};

fn at(server: &Server, deadline: Duration) -> RedisBuilder {
    Redis::at(server.url()).deadline(deadline)
}

/// A limiter with a connection, whether or not it is answered by its deadline.
async fn limiter(server: &Server, deadline: Duration) -> RateLimiter {
    let limiter = RateLimiter::new(at(server, deadline).connect_lazily().unwrap());
    is_asked(server, &limiter).await;
    limiter
}

/// Waits until a call has reached the server, whether or not it is answered in time.
async fn is_asked(server: &Server, limiter: &RateLimiter) {
    // The server has no line about a command that it was never sent.
    let asked = || {
        let stats = server.command(&["INFO", "commandstats"]);
        let of_script = stats.text().lines().find(|line| line.starts_with("cmdstat_evalsha:"));
        of_script.map(str::to_owned)
    };
    let before = asked();
    wait_until("the server is asked", async || {
        drop(limiter.peek(&COUNTED).await);
        asked() != before
    })
    .await;
}

type Call<'a> = Unconstrained<LimitCall<'a>>;

/// A call that waits for its answer.
#[track_caller]
fn begin(limiter: &RateLimiter, key: u64) -> Call<'_> {
    let mut call = unconstrained(limiter.limit(&COUNTED).key(key));
    assert!(poll(&mut call).is_pending());
    call
}

/// Polls once. The answer wakes no task.
fn poll<'a>(call: &mut Call<'a>) -> Poll<Result<Permit<'a>, RateLimited>> {
    Pin::new(call).poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn a_call_that_is_dropped_before_it_is_sent_is_not_sent() {
    let server = Server::start();
    let limiter = limiter(&server, MINUTE).await;
    // Nothing is sent while this task does not wait.
    let calls = [1, 2, 2, 3].map(|key| begin(&limiter, key));
    let [one, two, another_two, three] = calls;
    drop((one, two));
    let _permits = (another_two.await.unwrap(), three.await.unwrap());
    for (key, wanted) in [(1, 0), (2, 1), (3, 1)] {
        assert_eq!(taken(&limiter, key).await, wanted, "{key}");
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_under_way_takes_nothing_from_the_others() {
    let server = Server::start();
    let limiter = limiter(&server, MINUTE).await;
    let [one, two, another_two, three] = [1, 2, 2, 3].map(|key| begin(&limiter, key));
    // All are in the call that is now under way.
    yield_now().await;
    drop((one, two));
    let _permits = (another_two.await.unwrap(), three.await.unwrap());
    for (key, wanted) in [(1, 1), (2, 2), (3, 1)] {
        assert_eq!(taken(&limiter, key).await, wanted, "{key}");
    }
}

// A call that was removed from its queue at its deadline, before its own timer fired, failed with
// the error of a runtime that is shut down.
#[tokio::test]
async fn a_call_that_reaches_its_deadline_in_the_queue_says_so() {
    let server = Server::start();
    let limiter = limiter(&server, Duration::from_millis(1)).await;
    let mut first = begin(&limiter, 1);
    // No timer fires while this task does not yield, but each call removes the calls before it that
    // are past their deadline.
    let begun = Instant::now();
    let error = loop {
        assert!(begun.elapsed() < MINUTE, "no call has taken it out");
        drop(begin(&limiter, 2));
        if let Poll::Ready(answer) = poll(&mut first) {
            break answer.unwrap_err();
        }
    };
    assert!(error.is_timeout(), "{error:?}");
    // On a slow machine an answer may have come just before, and the message then adds that too many
    // calls waited.
    let late = "limit `counted` could not be decided < redis backend could not decide within 1 ms";
    assert!(chain(&error).starts_with(late), "{}", chain(&error));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_away_at_any_moment_disturbs_no_other() {
    let server = Server::start();
    let traffic = Traffic::with_fickle(at(&server, MINUTE).connect_lazily().unwrap(), 64);
    traffic.is_answered(200).await;
    let log = traffic.end().await;
    log.errors_name(&SILENT);
    assert!(log.count(Told::Gone) > 0 && log.count(Told::Admitted) >= 32 * 200);
    log.is_what(at(&server, RECOVERY).connect_lazily().unwrap(), Lost::Nothing).await;
}

/// The most bytes that are held at once, on top of what was held before.
fn held(work: impl FnOnce()) -> u64 {
    allocation_counter::measure(work).bytes_max
}

/// They wait for their deadline of 5 ms, some 200 times.
#[test]
fn calls_to_a_server_that_hangs_do_not_pile_up() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = Server::start();
    let limiter = runtime.block_on(limiter(&server, Duration::from_millis(5)));
    server.stop();
    let in_time = |rounds| {
        held(|| {
            runtime.block_on(async {
                for _ in 0..rounds {
                    let calls: Vec<_> = (0..100).map(|key| begin(&limiter, key)).collect();
                    for call in calls {
                        call.await.unwrap_err();
                    }
                }
            });
        })
    };
    let gone = |calls| {
        held(|| {
            runtime.block_on(async {
                for key in 0..calls {
                    drop(begin(&limiter, key));
                    // Calls in flight may still have to notice that their callers are gone.
                    yield_now().await;
                }
            });
        })
    };
    // The first call allocates what all calls share.
    let _ = (in_time(5), gone(500));
    let (few, many) = (in_time(5), in_time(200));
    assert!(many < 2 * few, "by 100 at a time: {few} bytes, and {many} bytes for 40 times as many");
    let (few, many) = (gone(500), gone(50_000));
    assert!(many < 2 * few.max(65_536), "gone at once: {few} bytes, then {many} bytes");
    server.resume();
    runtime.block_on(is_asked(&server, &limiter));
}

/// Waits in this thread, which is in no runtime.
fn wait_outside<T>(work: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut work = std::pin::pin!(work);
    loop {
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        std::thread::park();
    }
}

#[test]
fn a_caller_outside_of_the_runtime_is_told_of_answers_deadlines_and_shutdowns() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let [patient, hurried] =
        [MINUTE, DEADLINE].map(|deadline| runtime.block_on(limiter(&server, deadline)));
    let ask = |limiter: &RateLimiter| wait_outside(limiter.limit(&COUNTED).key(1)).map(drop);
    ask(&patient).unwrap();
    server.stop();
    assert!(ask(&hurried).unwrap_err().is_timeout());
    // One call is in flight, and one comes after the shutdown.
    let mut call = begin(&patient, 1);
    runtime.shutdown_background();
    let errors = [wait_outside(&mut call).map(drop).unwrap_err(), ask(&patient).unwrap_err()];
    assert!(errors.iter().all(|error| error.is_unavailable() && !error.is_timeout()));
}

/// A deadline too far away to be represented used to be over at once.
#[tokio::test]
async fn the_longest_deadline_is_far_away() {
    let server = Server::start();
    let limiter = limiter(&server, Duration::MAX).await;
    let _permit = begin(&limiter, 1).await.unwrap();
}
