//! Migrations.

use std::io::Write;
use std::process::Stdio;

use tokio::task::JoinSet;
use tollgate_testing::postgres::Server;

use super::encode::Batch;
use super::{Database, connect_with};
use crate::backend::postgres::migrate::migrate;
use crate::backend::postgres::schema_name::SchemaName;
use crate::backend::tests::START;

fn unused_schema() -> SchemaName {
    SchemaName::new(&Server::shared().unused_name()).unwrap()
}

/// A batch of nothing.
fn nothing() -> Batch {
    Batch::new(&[]).at(START)
}

#[tokio::test]
async fn eight_nodes_that_start_at_once_install_one_version() {
    let schema = unused_schema();
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let (client, schema) = (connect_with("").await, schema.clone());
        tasks.spawn(async move { migrate(&client, &schema, false).await });
    }
    for outcome in tasks.join_all().await {
        outcome.unwrap();
    }
    let database = Database::over(schema.clone(), connect_with("").await).await;
    assert_eq!(database.number("SELECT count(*) FROM tollgate.versions").await, 1);
    database.decide(&nothing()).await.unwrap();
    // Once more changes nothing.
    let made_by = format!(
        "SELECT sum(xmin::text::bigint)::bigint FROM pg_proc \
         WHERE pronamespace = '{schema}'::regnamespace"
    );
    let before = database.number(&made_by).await;
    migrate(&database.client, &schema, true).await.unwrap();
    assert_eq!(database.number(&made_by).await, before);
}

/// A later version stays: an older node must not replace its functions.
#[tokio::test]
async fn a_later_version_is_left_as_it_is() {
    let schema = unused_schema();
    let client = connect_with("").await;
    let text = format!(
        "CREATE SCHEMA {schema}; CREATE TABLE {schema}.versions (version integer PRIMARY KEY); \
         INSERT INTO {schema}.versions VALUES (1000)"
    );
    client.batch_execute(&text).await.unwrap();
    migrate(&client, &schema, false).await.unwrap();
    let functions =
        format!("SELECT count(*) FROM pg_proc WHERE pronamespace = '{schema}'::regnamespace");
    let functions: i64 = client.query_one(&functions, &[]).await.unwrap().get(0);
    assert_eq!(functions, 0);
}

#[tokio::test]
async fn a_failed_migration_leaves_nothing_and_the_connection_usable() {
    let schema = unused_schema();
    let client = connect_with("").await;
    // A function of this name is in the way.
    let text = format!(
        "CREATE SCHEMA {schema}; \
         CREATE FUNCTION {schema}.clock(bigint[]) RETURNS text LANGUAGE sql RETURN 'noon'"
    );
    client.batch_execute(&text).await.unwrap();
    let error = migrate(&client, &schema, false).await.unwrap_err();
    assert!(error.code().is_some(), "{error:?}");
    let left = format!("SELECT to_regclass('{schema}.versions') IS NULL");
    assert!(client.query_one(&left, &[]).await.unwrap().get::<_, bool>(0));
    client.batch_execute(&format!("DROP FUNCTION {schema}.clock")).await.unwrap();
    migrate(&client, &schema, false).await.unwrap();
}

/// Version 1 had no list of debtors. Its buckets and its rights stay.
#[tokio::test]
async fn an_earlier_version_is_brought_up_to_date() {
    let database = Database::with_test_clock().await;
    let role = Server::shared().unused_name();
    let earlier = format!(
        "DROP FUNCTION tollgate.debtors; UPDATE tollgate.versions SET version = 1; \
         CREATE ROLE {role}; GRANT EXECUTE ON FUNCTION tollgate.decide TO {role}; \
         INSERT INTO tollgate.buckets VALUES ('a', -5, 0, 1, 1, 10, 1)"
    );
    database.run(&earlier).await.unwrap();
    migrate(&database.client, &database.schema, false).await.unwrap();
    let list =
        "SELECT cardinality(stored)::bigint FROM tollgate.debtors('a', 'b', 9, '{1, 1, 10, 1}')";
    assert_eq!(database.number(list).await, 6);
    let granted = format!(
        "SELECT (has_function_privilege('{role}', 'tollgate.decide(bytea[], bigint[])', 'EXECUTE') \
         AND NOT has_function_privilege('{role}', \
         'tollgate.debtors(bytea, bytea, bigint, bigint[])', 'EXECUTE'))::integer::bigint"
    );
    assert_eq!(database.number(&granted).await, 1);
    assert_eq!(database.number("SELECT max(version)::bigint FROM tollgate.versions").await, 3);
}

#[tokio::test]
async fn the_table_is_unlogged_unless_it_is_to_be_logged() {
    for (logged, kind) in [(false, "u"), (true, "p")] {
        let (schema, client) = (unused_schema(), connect_with("").await);
        migrate(&client, &schema, logged).await.unwrap();
        let text = format!(
            "SELECT relpersistence::text FROM pg_class WHERE oid = '{schema}.buckets'::regclass"
        );
        assert_eq!(client.query_one(&text, &[]).await.unwrap().get::<_, &str>(0), kind);
    }
}

/// Teams that run their own migrations run the files, perhaps more than once.
#[tokio::test]
async fn psql_runs_the_files_as_they_are() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/backend/postgres/sql");
    let files = [
        "schema",
        "clock",
        "bucket",
        "formula",
        "operations",
        "decide",
        "sweep",
        "debtors",
        "access",
    ];
    for _ in 0..2 {
        let mut psql = Server::shared().psql();
        psql.arg("-1").arg("-f").arg("-").stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut run = psql.spawn().unwrap();
        let mut input = run.stdin.take().unwrap();
        for file in files {
            let text = std::fs::read_to_string(format!("{folder}/{file}.sql")).unwrap();
            input.write_all(text.as_bytes()).unwrap();
        }
        drop(input);
        let run = run.wait_with_output().unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    }
    let listed = std::fs::read_dir(folder).unwrap().count();
    assert_eq!(listed, files.len(), "a file that is not run");
    let schema = SchemaName::new(SchemaName::DEFAULT).unwrap();
    let client = connect_with("").await;
    migrate(&client, &schema, false).await.unwrap();
    let database = Database::over(schema, client).await;
    assert!(database.decide(&nothing()).await.unwrap().0 < START, "the server's clock");
}
