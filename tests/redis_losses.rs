//! What buckets hold after a server has lost its memory: all, or nothing until they have filled again.

mod support;

use std::time::Duration;

use support::redis::Server;
use support::traffic::wait_until;
use tollgate::backend::{ColdStart, Redis};
use tollgate::{DAY, Decision, Limit, MINUTE, Quota, RateLimiter, SECOND, Timestamp};

/// Ten a day, all at once.
static DAILY: Limit = Limit::new("daily", Quota::token_bucket(10, DAY));

/// Fills within milliseconds.
static QUICK: Limit = Limit::new("quick", Quota::token_bucket(1_000, SECOND).capacity(10));

fn limiter(server: &Server, cold_start: ColdStart) -> RateLimiter {
    let redis = Redis::at(server.url()).deadline(MINUTE).cold_start(cold_start);
    RateLimiter::new(redis.connect_lazily().unwrap())
}

/// In how many ways the memory is lost.
const WAYS: [fn(&Server); 2] = [Server::flush_all, Server::restart];

/// The first decision: calls before it have only found out that the connection is lost.
async fn first_of<'a>(limiter: &'a RateLimiter, limit: &'a Limit, cost: u64) -> Decision<'a> {
    first_for("alice", limiter, limit, cost).await
}

async fn first_for<'a>(
    key: &'static str,
    limiter: &'a RateLimiter,
    limit: &'a Limit,
    cost: u64,
) -> Decision<'a> {
    let mut first = None;
    wait_until("the server answers", async || {
        first = limiter.limit(limit).key(key).cost(cost).await.ok();
        first.is_some()
    })
    .await;
    first.unwrap()
}

#[tokio::test]
async fn buckets_are_full_again() {
    let server = Server::start();
    let limiter = limiter(&server, ColdStart::Full);
    for lose in WAYS {
        assert!(first_of(&limiter, &DAILY, 10).await.is_admitted());
        assert!(!first_of(&limiter, &DAILY, 1).await.is_admitted());
        lose(&server);
    }
    assert!(first_of(&limiter, &DAILY, 10).await.is_admitted());
}

/// How long a refused call has to wait, and until when.
#[track_caller]
fn refused(decision: &Decision<'_>) -> (Duration, Timestamp) {
    let Decision::Refused(refusal) = decision else { panic!("{decision:?}") };
    (refusal.retry_after(), refusal.limits()[0].at() + refusal.retry_after())
}

#[tokio::test]
async fn buckets_are_empty_and_fill() {
    let server = Server::start();
    let limiter = limiter(&server, ColdStart::Empty);
    for lose in WAYS {
        // It fills up, by and by.
        wait_until("it is full", async || first_of(&limiter, &QUICK, 10).await.is_admitted()).await;
        lose(&server);
        let (wait, until) = refused(&first_of(&limiter, &DAILY, 1).await);
        assert_eq!(wait, DAY / 10, "nothing is there when the loss is seen");
        // Whatever is asked later was empty at that instant too.
        for key in ["alice", "bob"] {
            let later = first_for(key, &limiter, &DAILY, 1).await;
            assert!(refused(&later).0 <= wait, "{key}");
            assert_eq!(refused(&later).1, until, "{key}");
        }
        let ten = first_for("carol", &limiter, &DAILY, 10).await;
        assert_eq!(refused(&ten).1, until + 9 * (DAY / 10));
    }
    wait_until("it is full", async || first_of(&limiter, &QUICK, 10).await.is_admitted()).await;
}

#[tokio::test]
async fn the_first_after_a_loss_waits_for_exactly_as_long_as_it_takes_to_fill() {
    let server = Server::start();
    let limiter = limiter(&server, ColdStart::Empty);
    for _ in 0..20 {
        wait_until("it is full", async || first_of(&limiter, &QUICK, 10).await.is_admitted()).await;
        server.flush_all();
        let (wait, _) = refused(&first_of(&limiter, &QUICK, 10).await);
        assert_eq!(wait, Duration::from_millis(10));
    }
}
