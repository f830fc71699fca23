//! Streams that wait for a limit in Redis.

use std::time::Instant;

use futures_util::{StreamExt, stream};
use tollgate::{Limit, MINUTE, OnFailure, Quota, RateLimiter, SECOND};
use tollgate_redis::Redis;
use tollgate_testing::redis::Server;

/// One every 20 ms, and none in advance.
static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(50, SECOND).capacity(0));

fn limiter(server: &Server) -> RateLimiter {
    // A dead server refuses connections at once.
    let redis = Redis::at(server.url()).deadline(MINUTE);
    RateLimiter::new(redis.connect_lazily().unwrap())
}

/// It waits for ten items, 20 ms apart: a fifth of a second.
#[tokio::test]
async fn streams_of_two_processes_share_one_pace_and_lose_no_item() {
    let server = Server::start();
    let begun = Instant::now();
    let run = || {
        let stream = limiter(&server).throttle(&SPACED).key("alice").stream(stream::iter(0..5));
        tokio::spawn(stream.map(|item| item.map_err(|error| error.to_string())).collect::<Vec<_>>())
    };
    let (first, second) = (run(), run());
    for seen in [first.await.unwrap(), second.await.unwrap()] {
        assert_eq!(seen, (0..5).map(Ok).collect::<Vec<_>>());
    }
    assert!(begun.elapsed() >= SECOND / 5, "ten items, 20 ms apart: {:?}", begun.elapsed());
}

#[tokio::test]
async fn a_server_that_dies_ends_the_stream_and_the_item_is_kept() {
    let server = Server::start();
    let limiter = limiter(&server);
    let mut stream = limiter.throttle(&SPACED).stream(stream::iter(0..3));
    assert_eq!(stream.next().await.unwrap().unwrap(), 0);
    server.kill();
    let error = stream.next().await.unwrap().unwrap_err();
    assert!(error.is_outage(), "{error:?}");
    assert!(stream.next().await.is_none());
    let (rest, held) = stream.into_parts();
    assert_eq!(held, Some(1));
    let open = limiter.throttle(&SPACED).on_failure(OnFailure::Admit).stream(rest);
    assert_eq!(open.map(Result::unwrap).collect::<Vec<_>>().await, [2]);
}
