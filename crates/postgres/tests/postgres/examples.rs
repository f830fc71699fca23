//! The examples do what they say.

#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../examples/in_your_transaction.rs"]
mod in_your_transaction;
#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../examples/postgres.rs"]
mod postgres;

use std::time::Duration;

use in_your_transaction::Shop;
use tollgate::RateLimiter;
use tollgate_postgres::Postgres;
use tollgate_testing::postgres::Server;
use tollgate_testing::web::{get, serve};

#[tokio::test]
async fn postgres_shares_its_limit_between_processes() {
    let server = Server::start();
    let mut let_in = [0, 0];
    for count in &mut let_in {
        let app = postgres::app(&postgres::limiter(&server.settings()).await.unwrap());
        let process = serve(app).await;
        loop {
            match get(process, "/").await.status.as_u16() {
                200 => *count += 1,
                429 => break,
                // A machine that is slow has not decided in time, and has perhaps taken a token.
                status => assert_eq!(status, 503),
            }
        }
    }
    let [first, second] = let_in;
    assert!(first <= 10 && second == 0, "{first} and {second}");
}

#[tokio::test]
async fn an_order_that_fails_gives_its_token_back() {
    let server = Server::start();
    let mut shop = Shop::open(&server.settings()).await.unwrap();
    let patient = Postgres::at(server.settings()).deadline(Duration::from_secs(60));
    shop.store = patient.connect().await.unwrap();
    shop.limiter = RateLimiter::new(shop.store.clone());
    assert_eq!(shop.order("alice", "umbrella").await.unwrap(), 2);
    let twice = shop.order("alice", "umbrella").await.unwrap_err();
    assert!(twice.downcast_ref::<tokio_postgres::Error>().is_some(), "{twice}");
    assert_eq!(shop.order("alice", "hat").await.unwrap(), 1);
    assert_eq!(shop.order("alice", "scarf").await.unwrap(), 0);
    let refused = shop.order("alice", "gloves").await.unwrap_err();
    assert!(refused.downcast_ref::<tollgate::RateLimited>().unwrap().is_refused());
    let stored = "SELECT string_agg(item, ' ' ORDER BY item) FROM example_orders";
    assert_eq!(server.query(stored), "hat scarf umbrella");
}
