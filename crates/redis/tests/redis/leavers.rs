//! Clients that leave a queue over buckets in Redis: the tokens that they were granted go back to
//! the bucket.

use axum::Router;
use axum::routing::get;
use http::{Method, StatusCode};
use tollgate::middleware::Queue;
use tollgate::{DAY, HOUR, Limit, MINUTE, Quota, RateLimiter};
use tollgate_redis::Redis;
use tollgate_testing::ask_and_drop;
use tollgate_testing::attack::Http2;
use tollgate_testing::queue::lines;
use tollgate_testing::redis::Server;
use tollgate_testing::traffic::wait_until;
use tollgate_testing::web::{send, serve};

/// One a minute, so that next to nothing flows in while the test runs.
static LINE: Limit =
    Limit::new("line", Quota::token_bucket(60, HOUR).capacity(1).max_reserved(900));

async fn limiter(server: &Server) -> RateLimiter {
    RateLimiter::new(Redis::at(server.url()).deadline(MINUTE).connect().await.unwrap())
}

/// Waits until the bucket holds as much as if nothing had been reserved. It never does if a client
/// that left still holds tokens.
async fn all_is_given_back(limiter: &RateLimiter) {
    let is_back = async || limiter.peek(&LINE).await.unwrap().tokens().to_f64() >= 0.0;
    wait_until("all is given back", is_back).await;
    wait_until("no queue is kept", async || lines(limiter) == 0).await;
}

/// Of 300 slots that were given up at once, 64 were kept, and the tokens of the others spent: for four
/// hours no client was served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_close_with_hundreds_of_waiters_cost_the_others_nothing() {
    let redis = Server::start();
    let limiter = limiter(&redis).await;
    let layer = limiter.layer(&LINE).queue(Queue::new(DAY));
    let server = serve(Router::new().route("/", get(async || "hello")).layer(layer)).await;
    assert_eq!(send(server, Method::GET, "/", &[]).await.status, StatusCode::OK);
    let mut connections = Vec::new();
    for client in [2, 3] {
        let mut connection = Http2::connect(client, server).await;
        connection.get(150).await;
        connections.push(connection);
    }
    wait_until("all wait", async || limiter.peek(&LINE).waiting() == 300).await;
    drop(connections);
    wait_until("none waits", async || limiter.peek(&LINE).waiting() == 0).await;
    all_is_given_back(&limiter).await;
}

/// The store has charged the bucket for the next of them when one is given up.
#[tokio::test]
async fn reservations_that_are_given_up_before_their_answers_cost_the_others_nothing() {
    let redis = Server::start();
    let limiter = limiter(&redis).await;
    for pause in 0..5 {
        limiter.reset(&LINE).await.unwrap();
        assert!(limiter.limit(&LINE).await.is_ok());
        for _ in 0..100 {
            ask_and_drop(limiter.limit(&LINE).reserve());
            for _ in 0..pause {
                tokio::task::yield_now().await;
            }
        }
        all_is_given_back(&limiter).await;
    }
}
