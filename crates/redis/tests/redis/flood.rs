//! A flood of one client against a limit in Redis: what it costs other clients, and what it gains.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::{JoinSet, yield_now};
use tollgate::{DAY, HOUR, Limit, Quota, RateLimited, RateLimiter, Timestamp};
use tollgate_redis::Redis;
use tollgate_testing::redis::Server;

static FEW: Limit = Limit::new("few", Quota::token_bucket(5, HOUR));
/// Nothing comes back during a test: a window of a hundred years, counted from 1970.
static MANY: Limit = Limit::new(
    "many",
    Quota::fixed_window(1_000_000, DAY.saturating_mul(36_525)).start(Timestamp::UNIX_EPOCH),
);

/// The calls of the script that the server has executed.
fn calls(server: &Server) -> u64 {
    let stats = server.info("commandstats", "cmdstat_evalsha");
    let calls = stats.split(',').find_map(|field| field.strip_prefix("calls="));
    calls.map_or(0, |calls| calls.parse().unwrap())
}

/// Stops the server with two calls in flight, so that everything behind them waits.
async fn two_in_flight(server: &Server, limiter: &RateLimiter) -> JoinSet<bool> {
    server.stop();
    let mut ahead = JoinSet::new();
    for _ in 0..2 {
        let limiter = limiter.clone();
        ahead.spawn(async move { limiter.limit(&MANY).await.is_ok() });
        yield_now().await;
    }
    ahead
}

/// 2,000 calls of one client took 17 calls of the script, and the call of another client was in the
/// last of them: a flood delayed the decisions of all clients.
#[tokio::test]
async fn a_refused_flood_takes_one_place_and_another_client_is_in_the_next_call() {
    let server = Server::start();
    let redis = Redis::at(server.url()).deadline(HOUR).connect().await.unwrap();
    let limiter = RateLimiter::new(redis);
    assert!(limiter.limit(&MANY).await.is_ok());
    let before = calls(&server);
    let ahead = two_in_flight(&server, &limiter).await;
    let mut flood = JoinSet::new();
    for nth in 0..2_000 {
        let limiter = limiter.clone();
        // Every tenth asks for more than the others.
        let cost = if nth % 10 == 0 { 2 } else { 1 };
        flood.spawn(async move {
            let answer = limiter.limit(&FEW).key("attacker").cost(cost).await;
            answer.map(|_| cost)
        });
    }
    for _ in 0..3 {
        yield_now().await;
    }
    let other = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.limit(&FEW).key("other").await.unwrap().remaining() }
    });
    yield_now().await;
    server.resume();

    assert_eq!(other.await.unwrap(), 4);
    assert_eq!(ahead.join_all().await, [true, true]);
    let (mut taken, mut refused) = (0, 0);
    for answer in flood.join_all().await {
        match answer {
            Ok(cost) => taken += cost,
            Err(error) => {
                let wait = error.retry_after().expect("the limit refused it");
                assert!(!wait.is_zero() && wait <= HOUR / 5 * 2, "{wait:?}");
                assert_eq!(error.snapshots()[0].remaining(), 0);
                refused += 1;
            }
        }
    }
    assert_eq!(taken, 5);
    assert!(refused >= 1_995, "{refused}");
    let cost = calls(&server) - before;
    assert!(cost <= 5, "{cost} calls of the script");
}

/// With the user's rule first, each made-up user had a turn of its own: all 2,000 calls of the flood were
/// answered before the call of another client.
#[tokio::test]
async fn a_flood_of_made_up_users_delays_no_other_client_in_either_order_of_the_rules() {
    static PER_USER: Limit = Limit::new("per-user", Quota::token_bucket(5, HOUR));
    static PER_ADDRESS: Limit = Limit::new("per-address", Quota::token_bucket(5, HOUR));

    for is_user_first in [true, false] {
        let server = Server::start();
        let redis = Redis::at(server.url()).deadline(HOUR).connect().await.unwrap();
        let limiter = RateLimiter::new(redis);
        assert!(limiter.limit(&MANY).await.is_ok());
        let ask = async move |limiter: RateLimiter, user: u32, address: &'static str| {
            let answer = match is_user_first {
                true => limiter.limit(&PER_USER).key(user).and(&PER_ADDRESS).key(address).await,
                false => limiter.limit(&PER_ADDRESS).key(address).and(&PER_USER).key(user).await,
            };
            assert!(answer.is_ok() || answer.as_ref().is_err_and(RateLimited::is_refused));
            answer.is_ok()
        };
        let ahead = two_in_flight(&server, &limiter).await;
        let answered = Arc::new(AtomicUsize::new(0));
        let mut flood = JoinSet::new();
        for user in 0..2_000 {
            let (limiter, answered) = (limiter.clone(), Arc::clone(&answered));
            flood.spawn(async move {
                let is_admitted = ask(limiter, user, "mallory's").await;
                answered.fetch_add(1, Ordering::SeqCst);
                is_admitted
            });
        }
        for _ in 0..3 {
            yield_now().await;
        }
        let other = tokio::spawn({
            let (limiter, answered) = (limiter.clone(), Arc::clone(&answered));
            async move {
                assert!(ask(limiter, 1_000_000, "home").await);
                answered.load(Ordering::SeqCst)
            }
        });
        yield_now().await;
        server.resume();

        let before = other.await.unwrap();
        // What fits into the first two calls behind those in flight.
        assert!(before <= 256, "{before} of 2,000 went before, user first: {is_user_first}");
        assert_eq!(ahead.join_all().await, [true, true]);
        let admitted =
            flood.join_all().await.into_iter().filter(|is_admitted| *is_admitted).count();
        assert_eq!(admitted, 5);
    }
}
