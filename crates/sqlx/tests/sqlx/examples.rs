//! The example does what it says.

#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../examples/in_your_transaction_sqlx.rs"]
mod in_your_transaction_sqlx;

use std::time::Duration;

use tollgate::RateLimiter;
use tollgate_postgres::Postgres;
use tollgate_testing::postgres::Server;

#[tokio::test]
async fn an_order_in_a_transaction_of_sqlx_that_fails_gives_its_token_back() {
    let server = Server::start();
    let url = format!("postgres://app@127.0.0.1:{}/postgres", server.port());
    let mut shop = in_your_transaction_sqlx::Shop::open(&url).await.unwrap();
    let patient = Postgres::at(url).deadline(Duration::from_secs(60));
    shop.store = patient.connect().await.unwrap();
    shop.limiter = RateLimiter::new(shop.store.clone());
    assert_eq!(shop.order("alice", "umbrella").await.unwrap(), 2);
    let twice = shop.order("alice", "umbrella").await.unwrap_err();
    assert!(twice.downcast_ref::<sqlx::Error>().is_some(), "{twice}");
    assert_eq!(shop.order("alice", "hat").await.unwrap(), 1);
    assert_eq!(shop.order("alice", "scarf").await.unwrap(), 0);
    let refused = shop.order("alice", "gloves").await.unwrap_err();
    assert!(refused.downcast_ref::<tollgate::RateLimited>().unwrap().is_refused());
    let stored = "SELECT string_agg(item, ' ' ORDER BY item) FROM example_orders";
    assert_eq!(server.query(stored), "hat scarf umbrella");
}
