//! A server that takes only connections with TLS.

use std::time::Duration;

use tollgate::{HOUR, Limit, Quota, RateLimiter};
use tollgate_postgres::Postgres;
use tollgate_testing::postgres::Server;

const UPLOADS: Limit = Limit::new("uploads", Quota::token_bucket(3, HOUR));

fn settings(server: &Server, mode: &str) -> String {
    format!("{} sslmode={mode}", server.settings_at(server.port()))
}

#[tokio::test]
async fn decisions_travel_over_tls() {
    let server = Server::tls();
    let postgres = Postgres::at(settings(&server, "require")).root_certificate(server.ca_pem());
    let postgres = postgres.deadline(Duration::from_secs(60)).connect().await.unwrap();
    let limiter = RateLimiter::new(postgres);
    for left in [2, 1, 0] {
        assert_eq!(limiter.limit(&UPLOADS).key("alice").await.unwrap().remaining(), left);
    }
    assert!(limiter.limit(&UPLOADS).key("alice").await.unwrap_err().is_refused());
    let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                     WHERE ssl AND application_name = 'tollgate'";
    assert_ne!(server.query(encrypted), "0");
}

#[tokio::test]
async fn a_server_with_an_unknown_certificate_is_not_trusted() {
    let server = Server::tls();
    let error = Postgres::connect(settings(&server, "require")).await.unwrap_err();
    let told = error.to_string();
    assert!(told.to_lowercase().contains("certificate"), "{told}");
}

/// A network that takes TLS out of the server's offer could read everything.
#[tokio::test]
async fn certificates_mean_that_tls_is_needed() {
    let (server, tls) = (Server::start(), Server::tls());
    let plain = || Postgres::at(server.settings_at(server.port())).root_certificate(tls.ca_pem());
    let told = plain().connect().await.unwrap_err().to_string();
    assert!(told.contains("server does not support TLS"), "{told}");
    let disabled = Postgres::at(settings(&server, "disable")).root_certificate(tls.ca_pem());
    let error = disabled.connect_lazily().unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("sslmode=disable"), "{error}");
}

#[tokio::test]
async fn a_connection_without_tls_is_refused_with_what_the_server_says() {
    let server = Server::tls();
    let error = Postgres::connect(settings(&server, "disable")).await.unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("no encryption"), "{error}");
}
