//! What a role needs, and what the store says where it is missing.

use std::time::Duration;

use tollgate::{DAY, Limit, Quota, RateLimiter};
use tollgate_postgres::{Postgres, PostgresBuilder};
use tollgate_testing::postgres::Server;

static DAILY: Limit = Limit::new("daily", Quota::fixed_window(2, DAY));

const LONG: Duration = Duration::from_secs(60);

fn at(settings: String, schema: &str) -> PostgresBuilder {
    Postgres::at(settings).schema(schema).deadline(LONG)
}

/// The settings for a role without any right.
fn as_role(server: &Server, role: &str) -> String {
    server.query(&format!("CREATE ROLE {role} LOGIN"));
    server.settings().replace("user=app", &format!("user={role}"))
}

#[tokio::test]
async fn a_role_that_may_call_the_functions_needs_no_right_on_the_table() {
    let server = Server::shared();
    let (schema, role) = (server.unused_name(), server.unused_name());
    at(server.settings(), &schema).connect().await.unwrap();
    let settings = as_role(server, &role);
    server.query(&format!(
        "GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT SELECT ON {schema}.versions TO {role}; \
         GRANT EXECUTE ON FUNCTION {schema}.decide_4, {schema}.decide_within_4, \
         {schema}.sick_4, {schema}.sweep_4 TO {role}"
    ));
    let limiter = RateLimiter::new(at(settings.clone(), &schema).connect().await.unwrap());
    for left in [1, 0] {
        assert_eq!(limiter.limit(&DAILY).key("alice").await.unwrap().remaining(), left);
    }
    assert!(limiter.limit(&DAILY).key("alice").await.unwrap_err().is_refused());
    let (client, connection) =
        tokio_postgres::connect(&settings, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    for statement in [
        format!("SELECT * FROM {schema}.buckets"),
        format!("UPDATE {schema}.buckets SET value = 0"),
        format!("DELETE FROM {schema}.buckets"),
        format!("SELECT {schema}.lock_4('\\x00')"),
    ] {
        let refused = client.batch_execute(&statement).await.unwrap_err();
        assert_eq!(refused.code().map(|code| code.code()), Some("42501"), "{statement}");
    }
}

#[tokio::test]
async fn what_is_missing_is_named_with_the_way_out() {
    let server = Server::shared();
    let (schema, role) = (server.unused_name(), server.unused_name());
    let told = async |builder: PostgresBuilder| {
        let error = builder.connect().await.unwrap_err();
        (error.is_misconfigured(), error.to_string())
    };
    // No schema, and none is to be made.
    let (misconfigured, text) = told(at(server.settings(), &schema).migrate(false)).await;
    assert!(misconfigured && text.contains("is missing or of another version"), "{text}");
    // The role may not make one.
    let settings = as_role(server, &role);
    let (misconfigured, text) = told(at(settings.clone(), &schema)).await;
    assert!(misconfigured && text.contains("permission denied"), "{text}");
    // The role may not call the function.
    at(server.settings(), &schema).connect().await.unwrap();
    let (misconfigured, text) = told(at(settings, &schema).migrate(false)).await;
    assert!(misconfigured && text.contains("needs USAGE"), "{text}");
    // The schema is that of an earlier version.
    server.query(&format!("UPDATE {schema}.versions SET version = 2"));
    let (misconfigured, text) = told(at(server.settings(), &schema).migrate(false)).await;
    assert!(misconfigured && text.contains("is missing or of another version"), "{text}");
    // Settings that cannot be.
    for (builder, says) in [
        (at("postgres://".to_owned(), "a b"), "the schema \"a b\" cannot be used"),
        (
            at("host".to_owned(), "a"),
            "the URL cannot be read: invalid connection string (postgres://user:password@host/database)",
        ),
        (
            at("postgres://app@localhost/app?sslmode=verify-full".to_owned(), "a"),
            "the URL cannot be read: invalid value for option `sslmode` (`disable`, `prefer`, or \
             `require`, which checks the certificate and its host name)",
        ),
        (
            at("postgres://app@localhost:x/app".to_owned(), "a"),
            "invalid value for option `port` (see `tokio_postgres::Config`)",
        ),
        (
            at("postgres://app@localhost/app?sslrootcert=ca.pem".to_owned(), "a"),
            "it has an option that is not known (see `tokio_postgres::Config`)",
        ),
        (at(server.settings(), "a").deadline(Duration::ZERO), "a deadline of 0"),
        (at(server.settings(), "a").prefix("a{b"), "prefix \"a{b\" cannot be"),
        (at(server.settings(), "a").hash_keys("short"), "has 5 bytes"),
    ] {
        let (misconfigured, text) = told(builder).await;
        assert!(misconfigured && text.contains(says), "{text}");
    }
}

#[tokio::test]
async fn errors_do_not_quote_the_password() {
    for url in [
        "postgres://app:tell-no-one@127.0.0.1:1/x",
        "postgres://app:tell-no-one@127.0.0.1:x",
        "host=127.0.0.1 password=we tell-no-one=1",
        "postgres://app:we?tell-no-one=1@127.0.0.1/x",
        "postgres://app:we/tell-no-one@127.0.0.1/x",
    ] {
        let builder = Postgres::at(url);
        assert!(!format!("{builder:?}").contains("tell-no-one"));
        let error = builder.connect().await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("tell-no-one"), "{error:?}");
    }
}
