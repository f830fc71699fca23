//! Requests that several processes count while they are in flight.

use tollgate::RateLimiter;
use tollgate_postgres::Postgres;
use tollgate_testing::clock::ServerClock;
use tollgate_testing::in_flight::{lost_tokens_are_there_again, three_run_at_most};
use tollgate_testing::postgres::Server;
use tollgate_testing::traffic::RECOVERY;

async fn nodes(server: &Server) -> [RateLimiter; 2] {
    let schema = server.unused_name();
    let node = async || {
        let postgres = Postgres::at(server.settings()).schema(schema.clone()).deadline(RECOVERY);
        RateLimiter::new(postgres.connect().await.unwrap())
    };
    [node().await, node().await]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_more_requests_run_than_the_limit_allows() {
    three_run_at_most(nodes(Server::shared()).await).await;
}

#[tokio::test]
async fn what_a_crashed_process_held_is_there_again_after_its_time() {
    let server = Server::with_clock(ServerClock::new());
    lost_tokens_are_there_again(nodes(&server).await, |ahead| server.set_clock(ahead)).await;
}
