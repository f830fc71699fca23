//! Clones of a store share its connection and its buckets.

use tollgate::{DAY, Limit, MINUTE, Quota, RateLimiter};
use tollgate_redis::Redis;
use tollgate_testing::redis::Server;

static SHARED: Limit = Limit::new("shared", Quota::fixed_window(10, DAY));

#[tokio::test]
async fn clones_share_one_connection_and_their_buckets() {
    let server = Server::start();
    let redis = Redis::at(server.url()).deadline(MINUTE).connect().await.unwrap();
    let first = RateLimiter::new(redis.clone());
    let _permit = first.limit(&SHARED).await.unwrap();
    // Since the server has started: one that was closed may be counted as connected for a moment.
    let connections =
        || -> u64 { server.info("stats", "total_connections_received").parse().unwrap() };
    let with_one = connections();

    let others: Vec<RateLimiter> = (0..4).map(|_| RateLimiter::new(redis.clone())).collect();
    let mut admitted = 1;
    for _ in 0..4 {
        for limiter in &others {
            admitted += u32::from(limiter.limit(&SHARED).await.is_ok());
        }
    }
    assert_eq!(admitted, 10);
    assert!(first.limit(&SHARED).await.unwrap_err().is_refused());
    assert_eq!(connections(), with_one + 1, "this question alone");

    // The connection lasts as long as one of them.
    drop((others, first));
    let last = RateLimiter::new(redis);
    assert_eq!(last.peek(&SHARED).await.unwrap().remaining(), 0);
    assert_eq!(connections(), with_one + 2);
}
