//! The suite over Redis, on a real server and by the server's clock. Unit tests of the engine run it
//! with a clock that is set.

use std::sync::OnceLock;
use std::time::Duration;

use tollgate::backend::Redis;

use crate::servers::Server;

/// The tests of the suite share a server, as they share a database.
static SERVER: OnceLock<Server> = OnceLock::new();

tollgate::conformance!(|| async {
    let redis = Redis::at(SERVER.get_or_init(Server::start).url());
    redis.deadline(Duration::from_secs(60)).connect().await.unwrap()
});
