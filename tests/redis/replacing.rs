//! Nodes whose limits get other numbers at different moments.

use crate::support;

use support::nodes::switch_at_different_moments;
use support::redis::Server;
use support::traffic::RECOVERY;
use tollgate::RateLimiter;
use tollgate::backend::Redis;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_key_gets_more_than_the_larger_quota_allows() {
    let server = Server::start();
    let node = || {
        let redis = Redis::at(server.url()).deadline(RECOVERY);
        RateLimiter::new(redis.connect_lazily().unwrap())
    };
    switch_at_different_moments([node(), node(), node(), node()]).await;
}
