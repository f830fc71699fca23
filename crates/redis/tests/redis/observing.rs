//! The same on a real Redis server: its time, its failure, and its return.

use tollgate_testing::journal::Journal;

use tollgate::{Limit, MINUTE, Quota, RateLimiter};
use tollgate_redis::Redis;
use tollgate_testing::redis::Server;

static TWO: Limit = Limit::new("two", Quota::token_bucket(2, MINUTE));

#[tokio::test]
async fn a_server_is_timed_until_it_is_gone_and_its_failure_has_a_kind() {
    let server = Server::start();
    let redis = Redis::at(server.url()).deadline(MINUTE).connect().await.unwrap();
    let (journal, limiter) = Journal::of(&RateLimiter::new(redis));
    for outcome in ["admitted 1", "admitted 1", "refused 1"] {
        drop(limiter.limit(&TWO).key("alice").await);
        let told = journal.take();
        assert!(told[0].starts_with("store decided in ") && told.len() == 2, "{told:?}");
        assert!(told[1].starts_with(&format!("handler two {outcome}")), "{told:?}");
    }
    server.kill();
    assert!(limiter.limit(&TWO).key("alice").await.unwrap_err().is_unavailable());
    let told = journal.take();
    assert!(told[0].starts_with("store failed in "), "{told:?}");
    assert_eq!(
        told[1..],
        ["store failed: two unavailable Refuse first", "handler two unavailable 1 *"]
    );
}
