//! A cluster without one of its nodes.

use tollgate::{MINUTE, RateLimiter};
use tollgate_redis::Redis;
use tollgate_testing::redis::Cluster;
use tollgate_testing::traffic::COUNTED;

#[tokio::test(flavor = "multi_thread")]
async fn the_keys_of_other_nodes_do_not_mind() {
    let cluster = Cluster::start(3);
    let redis = Redis::cluster(cluster.urls()).deadline(MINUTE);
    let limiter = RateLimiter::new(redis.connect_lazily().unwrap());
    let ask = async |key: u64| limiter.limit(&COUNTED).key(key).await.is_ok();
    for key in 0..32 {
        assert!(ask(key).await);
    }
    cluster.node(0).kill();
    let mut failed = 0;
    for key in 0..32 {
        failed += usize::from(!ask(key).await);
    }
    assert!((1..32).contains(&failed), "{failed} of 32");
}
