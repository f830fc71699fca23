//! The suite over Redis, on a real server and by the server's clock. Unit tests of the engine run it
//! with a clock that is set.

use std::sync::OnceLock;
use std::time::Duration;

use tollgate_redis::Redis;

use tollgate_testing::redis::Server;

/// The tests of the suite share a server, as they share a database.
static SERVER: OnceLock<Server> = OnceLock::new();

/// A store whose buckets no other suite uses: suites run at the same time, with the same keys.
async fn connect(prefix: &str) -> Redis {
    let redis = Redis::at(SERVER.get_or_init(Server::start).url()).prefix(prefix);
    redis.deadline(Duration::from_secs(60)).connect().await.unwrap()
}

tollgate_conformance::conformance!(|| connect("plain"));

mod within_all_wrappers {
    use tollgate::backend::{CircuitBreaker, DenyCache, Fallback, Memory};

    tollgate_conformance::conformance!(|| async {
        let store = DenyCache::new(CircuitBreaker::new(super::connect("wrapped").await));
        Fallback::new(store.max_age(tollgate::MINUTE), Memory::new())
    });
}
