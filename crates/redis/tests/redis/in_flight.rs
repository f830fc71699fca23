//! Requests that several processes count while they are in flight.

use tollgate::RateLimiter;
use tollgate_redis::Redis;
use tollgate_testing::clock::ServerClock;
use tollgate_testing::in_flight::{lost_tokens_are_there_again, three_run_at_most};
use tollgate_testing::redis::Server;
use tollgate_testing::traffic::RECOVERY;

fn node(server: &Server) -> RateLimiter {
    RateLimiter::new(Redis::at(server.url()).deadline(RECOVERY).connect_lazily().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_more_requests_run_than_the_limit_allows() {
    let server = Server::start();
    three_run_at_most([node(&server), node(&server)]).await;
}

#[tokio::test]
async fn what_a_crashed_process_held_is_there_again_after_its_time() {
    let server = Server::with_clock(&[], Some(ServerClock::new()));
    let nodes = [node(&server), node(&server)];
    lost_tokens_are_there_again(nodes, |ahead| server.set_clock(ahead)).await;
}
