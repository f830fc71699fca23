//! A server that speaks TLS only.

use tollgate::backend::Redis;
use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimiter};
use tollgate_testing::redis::Server;

const UPLOADS: Limit = Limit::new("uploads", Quota::token_bucket(3, HOUR));

#[tokio::test]
async fn decisions_travel_over_tls() {
    let server = Server::tls();
    let redis = Redis::at(server.url()).root_certificate(server.ca_pem()).deadline(MINUTE);
    let limiter = RateLimiter::new(redis.connect().await.unwrap());
    let mut admitted = 0;
    for _ in 0..5 {
        match limiter.limit(&UPLOADS).key("alice").await {
            Ok(_permit) => admitted += 1,
            Err(error) => assert!(error.is_refused(), "{error:?}"),
        }
    }
    assert_eq!(admitted, 3);
}

#[tokio::test]
async fn a_server_with_an_unknown_certificate_is_not_trusted() {
    let server = Server::tls();
    let error = Redis::connect(server.url()).await.unwrap_err();
    let told = error.to_string();
    assert!(told.to_lowercase().contains("certificate"), "{told}");
}

#[tokio::test]
async fn a_plain_connection_to_a_tls_server_fails_at_once() {
    let server = Server::tls();
    let plain = server.url().replace("rediss://", "redis://");
    assert!(Redis::connect(plain).await.is_err());
}
