//! Behind PgBouncer in transaction mode.

use std::time::Duration;

use tollgate::{DAY, Limit, Quota, RateLimiter};
use tollgate_postgres::Postgres;
use tollgate_testing::postgres::{Pooler, Server};

static DAILY: Limit = Limit::new("daily", Quota::fixed_window(100, DAY));

#[tokio::test]
async fn a_store_that_is_told_of_the_pooler_decides() {
    let server = Server::start();
    let pooler = Pooler::before(&server);
    let postgres = Postgres::at(server.settings_at(pooler.port())).through_pooler(true);
    let postgres = postgres.deadline(Duration::from_secs(60)).connect().await.unwrap();
    let limiter = RateLimiter::new(postgres);
    let asks = (0..150).map(|_| {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.limit(&DAILY).key("alice").await.is_ok() })
    });
    let mut admitted = 0;
    for ask in asks.collect::<Vec<_>>() {
        admitted += u32::from(ask.await.unwrap());
    }
    assert_eq!(admitted, 100);
}

#[tokio::test]
async fn a_store_that_is_not_told_of_the_pooler_says_what_to_set() {
    let server = Server::start();
    let pooler = Pooler::before(&server);
    let error = Postgres::connect(server.settings_at(pooler.port())).await.unwrap_err();
    let told = error.to_string();
    assert!(error.is_misconfigured() && told.contains("through_pooler"), "{told}");
}
