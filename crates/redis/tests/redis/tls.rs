//! A server that speaks TLS only.

use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimiter};
use tollgate_redis::Redis;
use tollgate_testing::redis::{Server, until};
use tollgate_testing::traffic::chain;

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

/// The only node of a cluster that names itself by an address that is not in its certificate.
#[tokio::test]
async fn the_certificate_of_a_node_is_for_the_host_that_the_map_returns() {
    let server = Server::tls_with(&[
        ["--cluster-enabled", "yes"],
        ["--tls-cluster", "yes"],
        ["--cluster-announce-ip", "203.0.113.7"],
    ]);
    server.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).ok();
    until("the cluster is whole", || {
        server.command(&["CLUSTER", "INFO"]).text().contains("cluster_state:ok")
    });
    let cluster = Redis::cluster([server.url()]).root_certificate(server.ca_pem()).deadline(MINUTE);
    let at = async |host: &'static str| {
        let mapped = cluster.clone().address_map(move |named, port| {
            assert_eq!(named, "203.0.113.7");
            Some((host.to_owned(), port))
        });
        let limiter = RateLimiter::new(mapped.connect().await.unwrap());
        limiter.limit(&UPLOADS).key("alice").await.map(drop)
    };
    at("localhost").await.unwrap();
    // The same server, by an address for which it has no certificate.
    let told = chain(&at("0.0.0.0").await.unwrap_err());
    assert!(told.contains("certificate not valid for name"), "{told}");
}
