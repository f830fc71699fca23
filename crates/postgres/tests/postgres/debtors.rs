//! The list of debtors, from a real server.

use std::error::Error;
use std::time::Duration;

use tollgate::backend::{BackendError, DebtorReport};
use tollgate::{DAY, HOUR, Key, Limit, Quota, RateLimited, RateLimiter};
use tollgate_postgres::{Postgres, PostgresBuilder};
use tollgate_testing::debtors::{all_are_found_beside_a_hammer, each_is_found_once, list};
use tollgate_testing::postgres::Server;

static DAILY: Limit = Limit::new("daily", Quota::token_bucket(10, DAY));
static SHARDS: Limit = Limit::new("daily", Quota::token_bucket(100, DAY).shards(10));

fn at(settings: String, schema: &str) -> PostgresBuilder {
    Postgres::at(settings).schema(schema).deadline(Duration::from_secs(60))
}

/// A limiter in a schema of its own, and the schema.
async fn limiter() -> (RateLimiter, String) {
    let (settings, schema) = (Server::shared().settings(), Server::shared().unused_name());
    (RateLimiter::new(at(settings, &schema).connect().await.unwrap()), schema)
}

#[track_caller]
fn cause(error: &RateLimited) -> &BackendError {
    error.source().unwrap().downcast_ref().unwrap()
}

#[tokio::test]
async fn each_debtor_of_many_keys_is_found_once() {
    each_is_found_once(&limiter().await.0).await;
}

#[tokio::test]
async fn debtors_are_found_while_other_keys_come_and_go() {
    all_are_found_beside_a_hammer(&limiter().await.0).await;
}

#[tokio::test]
async fn keys_and_shards_are_listed_as_they_are_stored() {
    let (limiter, schema) = limiter().await;
    limiter.block(&SHARDS, HOUR).key("acme").await.unwrap();
    let long = "x".repeat(300);
    for key in [Key::GLOBAL, Key::from("a|b %"), Key::from((7, true)), Key::from(long)] {
        limiter.penalize(&DAILY, 30).key(key).await.unwrap();
    }
    // By the numbers of a shard, which are others than those of the limit without shards.
    let (found, pages) = list(&limiter, &SHARDS, Some(true), 3).await;
    assert_eq!((found["acme"], found.len()), (10, 1));
    assert!(pages >= 4, "{pages}");
    let (found, _) = list(&limiter, &DAILY, Some(false), 100).await;
    let found: Vec<_> = found.into_keys().collect();
    assert_eq!(found[..3], ["*", "a%7Cb%20%25", "n=7|bool=true"]);
    assert!(found[3].starts_with("sha256=") && found.len() == 4, "{found:?}");

    let hashed = at(Server::shared().settings(), &schema).prefix("hashed");
    let hashed = hashed.hash_keys(*b"sixteen bytes or").connect().await.unwrap();
    let hashed = RateLimiter::new(hashed);
    hashed.penalize(&DAILY, 30).key("alice").await.unwrap();
    let debtors = hashed.debtors(&DAILY).await.unwrap().into_debtors().unwrap();
    let [debtor] = &*debtors else { panic!("{debtors:?}") };
    assert!(debtor.key().is_none() && debtor.key_text().starts_with("hmac="));
    // A token takes hours.
    let tokens: f64 = debtor.tokens().to_string().parse().unwrap();
    assert!((-20.0..-19.0).contains(&tokens), "{tokens}");
}

#[tokio::test]
async fn a_row_that_is_no_bucket_is_left_out() {
    let (limiter, schema) = limiter().await;
    limiter.block(&DAILY, HOUR).key("mallory").await.unwrap();
    for name in ["daily", "daily:", "daily:x=1", "daily#0:a", "daily#x:a", "daily:\u{e9}"] {
        let numbers = "-5, 0, 1, 8640000000, 86400000000, 1";
        Server::shared().query(&format!(
            "INSERT INTO {schema}.buckets VALUES (convert_to('tollgate:{name}', 'UTF8'), {numbers})"
        ));
    }
    for max in [1, 100] {
        let (found, _) = list(&limiter, &DAILY, None, max).await;
        assert_eq!(found.into_keys().collect::<Vec<_>>(), ["mallory"]);
    }
}

#[tokio::test]
async fn a_cursor_that_no_page_has_is_an_error_of_its_own() {
    let (limiter, _) = limiter().await;
    for cursor in ["", "x", "2", "+", "2.00", "-1.00", "0.0", "0.0g", "0.+1", "0.0.0", ".", "1.é"]
    {
        let error = limiter.debtors(&DAILY).after(cursor.to_owned()).await.unwrap_err();
        assert!(cause(&error).is_unknown_cursor() && !error.is_outage(), "{cursor}: {error:?}");
    }
}

/// No cursor leads to the buckets of another limit.
#[tokio::test]
async fn a_cursor_stays_within_its_limit() {
    let (limiter, _) = limiter().await;
    for name in ["a", "daily", "daily-too", "z"] {
        let limit = Limit::try_new(name, Quota::token_bucket(10, DAY)).unwrap();
        limiter.block(&limit, HOUR).key(name).await.unwrap();
    }
    for cursor in ["0", "1", "0.", "1.", "0.00", "0.ff", "1.00", "1.64", "1.ffffff", "0.3a"] {
        let page = limiter.debtors(&DAILY).after(cursor.to_owned()).await.unwrap();
        let page = page.into_debtors().unwrap();
        assert!(page.iter().all(|one| one.key_text() == "daily"), "{page:?}");
    }
}

/// The rights that decisions need suffice for them, and not for a list.
#[tokio::test]
async fn a_role_that_may_not_list_is_told_so_and_decides_on() {
    let server = Server::shared();
    let (_, schema) = limiter().await;
    let role = server.unused_name();
    server.query(&format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role}; \
         GRANT SELECT ON {schema}.versions TO {role}; \
         GRANT EXECUTE ON FUNCTION {schema}.decide_4, {schema}.decide_within_4, \
         {schema}.sick_4, {schema}.sweep_4 TO {role}"
    ));
    let settings = server.settings().replace("user=app", &format!("user={role}"));
    let limiter = RateLimiter::new(at(settings, &schema).connect().await.unwrap());
    limiter.block(&DAILY, HOUR).key("mallory").await.unwrap();
    let error = limiter.debtors(&DAILY).await.unwrap_err();
    assert!(cause(&error).is_misconfigured(), "{error:?}");
    assert!(cause(&error).to_string().contains("EXECUTE on its functions"), "{}", cause(&error));
    limiter.limit(&DAILY).key("alice").await.unwrap();
    server.query(&format!("GRANT EXECUTE ON FUNCTION {schema}.debtors_4 TO {role}"));
    let (found, _) = list(&limiter, &DAILY, None, 100).await;
    assert_eq!(found.into_keys().collect::<Vec<_>>(), ["mallory"]);
}

/// A page looks at a bounded number of rows, by the index, however large the table is.
#[tokio::test]
async fn a_page_reads_no_more_of_a_large_table_than_its_part() {
    let (limiter, schema) = limiter().await;
    let server = Server::shared();
    server.query(&format!(
        "INSERT INTO {schema}.buckets SELECT convert_to('tollgate:daily:n=' || n, 'UTF8'), \
         0, 0, 1, 8640000000, 86400000000, 1 FROM generate_series(1, 50000) n; \
         ANALYZE {schema}.buckets"
    ));
    // What the transaction has read so far.
    let read = server.query(&format!(
        "BEGIN; SELECT cardinality(keys), last IS NULL FROM {schema}.debtors_4('tollgate:daily:', \
         'tollgate:daily;', 500, '{{1, 8640000000, 86400000000, 1}}'); \
         SELECT seq_tup_read, idx_tup_fetch FROM pg_stat_xact_all_tables \
         WHERE schemaname = '{schema}' AND relname = 'buckets'; COMMIT"
    ));
    let fetched = read.strip_prefix("0|f\n0|").and_then(|count| count.parse::<u32>().ok());
    // The planner reads the ends of the index as well.
    assert!(fetched.is_some_and(|count| (500..510).contains(&count)), "{read}");
    let report = limiter.debtors(&DAILY).await.unwrap();
    let DebtorReport::Page { debtors, next, .. } = report else { panic!("{report:?}") };
    assert!(debtors.is_empty() && next.is_some(), "{debtors:?}");
}
