//! Migrations.

use std::io::Write;
use std::process::Stdio;

use tokio::task::JoinSet;
use tollgate_testing::postgres::Server;

use super::encode::Batch;
use super::{Database, connect_with};
use crate::migrate::{migrate, statements};
use crate::schema_name::SchemaName;
use tollgate_conformance::history::START;

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

/// Nodes of two versions at once, as in a rolling deploy, and after one that is rolled back.
#[tokio::test]
async fn another_version_stays_as_it_is_and_beside_this_one() {
    for other in [2, 1_000] {
        let (schema, client) = (unused_schema(), connect_with("").await);
        migrate(&client, &schema, false).await.unwrap();
        // What is there of this version becomes that of another one.
        let theirs = format!(
            "DO $$ DECLARE f regprocedure; BEGIN \
             FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = '{schema}'::regnamespace LOOP \
                 EXECUTE format('ALTER FUNCTION %s RENAME TO %I', f, \
                     regexp_replace((SELECT proname FROM pg_proc WHERE oid = f), '_4$', '_{other}')); \
             END LOOP; END $$; UPDATE {schema}.versions SET version = {other}"
        );
        client.batch_execute(&theirs).await.unwrap();
        let functions = async |version: i32| {
            let count = format!(
                "SELECT count(*), md5(string_agg(pg_get_functiondef(oid), '' ORDER BY oid)) \
                 FROM pg_proc WHERE pronamespace = '{schema}'::regnamespace \
                 AND proname ~ '_{version}$'"
            );
            let row = client.query_one(&count, &[]).await.unwrap();
            (row.get::<_, i64>(0), row.get::<_, Option<String>>(1))
        };
        let before = functions(other).await;
        assert_eq!(functions(4).await, (0, None));
        migrate(&client, &schema, false).await.unwrap();
        assert_eq!(functions(other).await, before);
        assert_eq!(functions(4).await.0, before.0);
        let versions = format!("SELECT array_agg(version ORDER BY version) FROM {schema}.versions");
        let versions: Vec<i32> = client.query_one(&versions, &[]).await.unwrap().get(0);
        assert_eq!(versions, if other < 4 { [other, 4] } else { [4, other] });
        let database = Database::over(schema, client).await;
        database.decide(&nothing()).await.unwrap();
    }
}

#[tokio::test]
async fn a_failed_migration_leaves_nothing_and_the_connection_usable() {
    let schema = unused_schema();
    let client = connect_with("").await;
    // A function of this name is in the way.
    let text = format!(
        "CREATE SCHEMA {schema}; \
         CREATE FUNCTION {schema}.clock_4(bigint[]) RETURNS text LANGUAGE sql RETURN 'noon'"
    );
    client.batch_execute(&text).await.unwrap();
    let error = migrate(&client, &schema, false).await.unwrap_err();
    assert!(error.code().is_some(), "{error:?}");
    let left = format!("SELECT to_regclass('{schema}.versions') IS NULL");
    assert!(client.query_one(&left, &[]).await.unwrap().get::<_, bool>(0));
    client.batch_execute(&format!("DROP FUNCTION {schema}.clock_4")).await.unwrap();
    migrate(&client, &schema, false).await.unwrap();
}

/// The functions of the first versions had no version in their names. The buckets stay, and so do the
/// rights: each node of a role that could decide can do so with the new functions.
#[tokio::test]
async fn an_earlier_version_is_brought_up_to_date() {
    let database = Database::with_test_clock().await;
    let [role, other] = [(); 2].map(|()| Server::shared().unused_name());
    let schema = &database.schema;
    let earlier = format!(
        "DROP FUNCTION tollgate.decide(bytea[], bigint[]); DROP FUNCTION tollgate.sweep(bigint, bigint, bigint); \
         DROP FUNCTION tollgate.debtors(bytea, bytea, bigint, bigint[]); \
         CREATE FUNCTION {schema}.decide(bytea[], bigint[]) RETURNS bigint LANGUAGE sql RETURN 1; \
         UPDATE tollgate.versions SET version = 1; \
         CREATE ROLE {role}; GRANT EXECUTE ON FUNCTION {schema}.decide TO {role}; \
         CREATE ROLE {other}; INSERT INTO tollgate.buckets VALUES ('a', -5, 0, 1, 1, 10, 1)"
    );
    database.run(&earlier).await.unwrap();
    migrate(&database.client, &database.schema, false).await.unwrap();
    let list =
        "SELECT cardinality(stored)::bigint FROM tollgate.debtors('a', 'b', 9, '{1, 1, 10, 1}')";
    assert_eq!(database.number(list).await, 6);
    let rights = async |role: &str| {
        let may = [
            "decide(bytea[], bigint[])",
            "decide_within(bytea[], bigint[], integer)",
            "sick(bytea[], integer, integer)",
            "sweep(bigint, bigint, bigint)",
            "debtors(bytea, bytea, bigint, bigint[])",
            "lock(bytea)",
        ]
        .map(|name| format!("has_function_privilege('{role}', 'tollgate.{name}', 'EXECUTE')"));
        let text = database.schema.statements(&format!("SELECT ARRAY[{}]", may.join(", ")));
        database.client.query_one(&text, &[]).await.unwrap().get::<_, Vec<bool>>(0)
    };
    assert_eq!(rights(&role).await, [true, true, true, false, false, false]);
    assert_eq!(rights(&other).await, [false; 6]);
    assert_eq!(database.number("SELECT max(version)::bigint FROM tollgate.versions").await, 4);
    assert_eq!(database.number(&format!("SELECT {schema}.decide('{{}}', '{{}}')")).await, 1);
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

/// Teams that run their own migrations run the text, perhaps more than once.
#[tokio::test]
async fn psql_runs_the_migration_as_it_is() {
    let schema = unused_schema();
    let text = statements(&schema, false);
    for _ in 0..2 {
        let mut psql = Server::shared().psql();
        psql.arg("-1").arg("-f").arg("-").stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut run = psql.spawn().unwrap();
        run.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let run = run.wait_with_output().unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/sql");
    for file in std::fs::read_dir(folder).unwrap() {
        let file = file.unwrap().path();
        let part = schema.statements(&std::fs::read_to_string(&file).unwrap());
        assert!(text.contains(&part), "{file:?} is not run");
    }
    let client = connect_with("").await;
    migrate(&client, &schema, false).await.unwrap();
    let database = Database::over(schema, client).await;
    assert!(database.decide(&nothing()).await.unwrap().0 < START, "the server's clock");
}
