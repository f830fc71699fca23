//! A server that speaks TLS only.

mod support;

use std::error::Error;

use support::redis::Server;
use tollgate::backend::Redis;
use tollgate::{HOUR, Limit, Quota, RateLimiter};

const UPLOADS: Limit = Limit::new("uploads", Quota::token_bucket(3, HOUR));

#[tokio::test]
async fn decisions_travel_over_tls() {
    let server = Server::tls();
    let redis = Redis::at(server.url()).root_certificate(server.ca_pem()).connect().await.unwrap();
    let limiter = RateLimiter::new(redis);
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
    let mut told = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        told += &format!(": {cause}");
        next = cause.source();
    }
    assert!(told.to_lowercase().contains("certificate"), "{told}");
}

#[tokio::test]
async fn plain_words_to_a_server_that_speaks_tls_are_an_error_and_no_wait() {
    let server = Server::tls();
    let plain = server.url().replace("rediss://", "redis://");
    assert!(Redis::connect(plain).await.is_err());
}
