//! Nodes whose limits get other numbers at different moments.

use tollgate::RateLimiter;
use tollgate_redis::Redis;
use tollgate_testing::nodes::switch_at_different_moments;
use tollgate_testing::redis::Server;
use tollgate_testing::traffic::RECOVERY;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_key_gets_more_than_the_larger_quota_allows() {
    let server = Server::start();
    let node = || {
        let redis = Redis::at(server.url()).deadline(RECOVERY);
        RateLimiter::new(redis.connect_lazily().unwrap())
    };
    switch_at_different_moments([node(), node(), node(), node()]).await;
}
