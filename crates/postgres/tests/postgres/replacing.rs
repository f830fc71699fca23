//! Nodes whose limits get other numbers at different moments.

use tollgate::RateLimiter;
use tollgate_postgres::Postgres;
use tollgate_testing::nodes::switch_at_different_moments;
use tollgate_testing::postgres::Server;
use tollgate_testing::traffic::RECOVERY;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_key_gets_more_than_the_larger_quota_allows() {
    let server = Server::shared();
    let schema = server.unused_name();
    let mut nodes = Vec::new();
    for _ in 0..4 {
        let postgres = Postgres::at(server.settings()).schema(schema.clone()).deadline(RECOVERY);
        nodes.push(RateLimiter::new(postgres.connect().await.unwrap()));
    }
    switch_at_different_moments(nodes.try_into().unwrap()).await;
}
