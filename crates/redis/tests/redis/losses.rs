//! What buckets hold after a server has lost its memory: all, or nothing until they have filled again.

use std::time::Duration;

use tollgate::limiter::Permit;
use tollgate::{DAY, Limit, MINUTE, Quota, RateLimited, RateLimiter, SECOND, Timestamp};
use tollgate_redis::{ColdStart, Redis};
use tollgate_testing::redis::Server;
use tollgate_testing::traffic::wait_until;

/// Ten a day, all at once.
static DAILY: Limit = Limit::new("daily", Quota::token_bucket(10, DAY));

/// Fills within milliseconds.
static QUICK: Limit = Limit::new("quick", Quota::token_bucket(1_000, SECOND).capacity(10));

fn limiter(server: &Server, cold_start: ColdStart) -> RateLimiter {
    let redis = Redis::at(server.url()).deadline(MINUTE).cold_start(cold_start);
    RateLimiter::new(redis.connect_lazily().unwrap())
}

/// The number of ways to lose the memory.
const WAYS: [fn(&Server); 2] = [Server::flush_all, Server::restart];

/// The first decision: calls before it have only found out that the connection is lost.
async fn first_of<'a>(
    limiter: &'a RateLimiter,
    limit: &'a Limit,
    cost: u64,
) -> Result<Permit<'a>, RateLimited> {
    first_for("alice", limiter, limit, cost).await
}

async fn first_for<'a>(
    key: &'static str,
    limiter: &'a RateLimiter,
    limit: &'a Limit,
    cost: u64,
) -> Result<Permit<'a>, RateLimited> {
    let mut first = None;
    wait_until("the server answers", async || {
        let answer = limiter.limit(limit).key(key).cost(cost).await;
        let is_decided = !answer.as_ref().is_err_and(RateLimited::is_unavailable);
        first = is_decided.then_some(answer);
        is_decided
    })
    .await;
    first.unwrap()
}

#[tokio::test]
async fn buckets_are_full_again() {
    let server = Server::start();
    let limiter = limiter(&server, ColdStart::Full);
    for lose in WAYS {
        let _permit = first_of(&limiter, &DAILY, 10).await.unwrap();
        assert!(first_of(&limiter, &DAILY, 1).await.unwrap_err().is_refused());
        lose(&server);
    }
    let _permit = first_of(&limiter, &DAILY, 10).await.unwrap();
}

/// How long a refused call has to wait, and until when.
#[track_caller]
fn refused(answer: Result<Permit<'_>, RateLimited>) -> (Duration, Timestamp) {
    let error = answer.unwrap_err();
    let (wait, [snapshot]) = (error.retry_after().unwrap(), error.snapshots()) else {
        panic!("{error:?}")
    };
    (wait, snapshot.at() + wait)
}

#[tokio::test]
async fn buckets_are_empty_and_fill() {
    let server = Server::start();
    let limiter = limiter(&server, ColdStart::Empty);
    for lose in WAYS {
        // It fills up, by and by.
        wait_until("it is full", async || first_of(&limiter, &QUICK, 10).await.is_ok()).await;
        lose(&server);
        let (wait, until) = refused(first_of(&limiter, &DAILY, 1).await);
        assert_eq!(wait, DAY / 10, "nothing is there when the loss is seen");
        // Buckets that are first charged later were empty at that instant too.
        for key in ["alice", "bob"] {
            let later = refused(first_for(key, &limiter, &DAILY, 1).await);
            assert!(later.0 <= wait, "{key}");
            assert_eq!(later.1, until, "{key}");
        }
        let ten = first_for("carol", &limiter, &DAILY, 10).await;
        assert_eq!(refused(ten).1, until + 9 * (DAY / 10));
    }
    wait_until("it is full", async || first_of(&limiter, &QUICK, 10).await.is_ok()).await;
}

#[tokio::test]
async fn the_first_after_a_loss_waits_for_exactly_as_long_as_it_takes_to_fill() {
    let server = Server::start();
    let limiter = limiter(&server, ColdStart::Empty);
    for _ in 0..20 {
        wait_until("it is full", async || first_of(&limiter, &QUICK, 10).await.is_ok()).await;
        server.flush_all();
        let (wait, _) = refused(first_of(&limiter, &QUICK, 10).await);
        assert_eq!(wait, Duration::from_millis(10));
    }
}
