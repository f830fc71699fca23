//! Operators and functions of others on the search path.

use std::io::Write as _;
use std::process::Stdio;

use tokio_postgres::Client;
use tollgate_testing::postgres::Server;

use super::{Database, connect_with};
use crate::Postgres;
use crate::migrate::{SERVER_CLOCK, install};
use crate::schema_name::SchemaName;

/// One charge of 11 units on a limit of 10 units, and one of 1.
const CHARGES: [&str; 2] = [
    "SELECT stored FROM tollgate.decide('{alice}', '{1, 1, 1, 10, 1, 10, 1, 1, 1, 1, 0, 11}')",
    "SELECT stored FROM tollgate.decide('{alice}', '{1, 1, 1, 10, 1, 10, 1, 1, 1, 1, 0, 1}')",
];

/// A schema that has, for each operator and function of numbers, the forms that the system lacks:
/// for these types they fit better than what the system has. With `all`, it has all forms.
async fn hostile_schema(client: &Client, all: bool) -> String {
    let name = Server::shared().unused_name();
    let text = format!(
        "CREATE SCHEMA {name}; \
         DO $do$ DECLARE l text; r text; o text; result text; \
         types CONSTANT text[] := \
             '{{smallint,integer,bigint,numeric,real,double precision,boolean,bigint[]}}'; \
         BEGIN \
         FOREACH l IN ARRAY types LOOP FOREACH r IN ARRAY types LOOP \
             FOREACH o IN ARRAY ARRAY['+','-','*','/','%','=','<>','<','<=','>','>='] LOOP \
                 CONTINUE WHEN to_regoperator(format('pg_catalog.%s (%s,%s)', o, l, r)) IS NOT NULL \
                     AND NOT {all}; \
                 result := CASE WHEN strpos('+-*/%', o) > 0 THEN 'bigint' ELSE 'boolean' END; \
                 EXECUTE format('CREATE FUNCTION {name}.%I(%s, %s) RETURNS %s LANGUAGE plpgsql AS \
                     $$ BEGIN RAISE EXCEPTION ''run as %%'', current_user; END $$', \
                     'op ' || o, l, r, result); \
                 EXECUTE format('CREATE OPERATOR {name}.%s (LEFTARG = %s, RIGHTARG = %s, \
                     FUNCTION = {name}.%I)', o, l, r, 'op ' || o); \
             END LOOP; \
             CONTINUE WHEN to_regprocedure(format('pg_catalog.div(%s,%s)', l, r)) IS NOT NULL \
                 AND NOT {all}; \
             EXECUTE format('CREATE FUNCTION {name}.div(%s, %s) RETURNS numeric LANGUAGE plpgsql AS \
                 $$ BEGIN RAISE EXCEPTION ''run as %%'', current_user; END $$', l, r); \
         END LOOP; END LOOP; END $do$; \
         CREATE FUNCTION {name}.cardinality(bigint[]) RETURNS integer LANGUAGE sql RETURN 0"
    );
    client.batch_execute(&text).await.unwrap();
    name
}

/// What the functions of a schema use that is neither the system's nor of the schema itself.
async fn foreign_parts(client: &Client, schema: &SchemaName) -> i64 {
    let text = format!(
        "SELECT count(*) FROM pg_depend d JOIN pg_proc f ON f.oid = d.objid \
         AND d.classid = 'pg_proc'::regclass AND f.pronamespace = '{schema}'::regnamespace \
         WHERE d.refclassid = 'pg_operator'::regclass OR d.refclassid = 'pg_proc'::regclass \
             AND d.refobjid NOT IN (SELECT oid FROM pg_proc \
                 WHERE pronamespace = '{schema}'::regnamespace)"
    );
    client.query_one(&text, &[]).await.unwrap().get(0)
}

/// A migration used what any role with the right to create in `public` had put there: the clock
/// multiplied a `numeric` by an `integer`, which the system has no operator for.
#[tokio::test]
async fn a_migration_does_not_use_operators_of_others() {
    for all in [false, true] {
        let hostile = hostile_schema(&connect_with("").await, all).await;
        // The way in which a role that can write to `public` is found, and in front of the system.
        let path = if all { format!("{hostile},pg_catalog") } else { hostile.clone() };
        let client = connect_with(&format!("options='-c search_path={path}'")).await;
        let schema = SchemaName::new(&Server::shared().unused_name()).unwrap();
        install(&client, &schema, false, SERVER_CLOCK).await.unwrap();
        // Once more finds that it is there.
        install(&client, &schema, false, SERVER_CLOCK).await.unwrap();
        let shown: String = client.query_one("SHOW search_path", &[]).await.unwrap().get(0);
        assert_eq!(shown, path, "the session keeps its path");
        let admin = connect_with("").await;
        assert_eq!(foreign_parts(&admin, &schema).await, 0);
        for charge in CHARGES {
            client.batch_execute(&schema.statements(charge)).await.unwrap();
        }
    }
}

/// The same for a team that runs the files by itself.
#[tokio::test]
async fn the_files_do_not_use_operators_of_others() {
    let admin = connect_with("").await;
    let hostile = hostile_schema(&admin, false).await;
    let schema = Server::shared().unused_name();
    let mut psql = Server::shared().psql();
    psql.arg("-1").arg("-f").arg("-").stdin(Stdio::piped()).stderr(Stdio::piped());
    psql.env("PGOPTIONS", format!("-c search_path=public,{hostile}"));
    let mut run = psql.spawn().unwrap();
    let mut input = run.stdin.take().unwrap();
    let text = Postgres::at("").schema(&schema).migration().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    let run = run.wait_with_output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let schema = SchemaName::new(&schema).unwrap();
    assert_eq!(foreign_parts(&admin, &schema).await, 0);
}

/// A caller that decides.
#[tokio::test]
async fn a_decision_does_not_use_operators_of_others() {
    let database = Database::with_server_clock().await;
    let hostile = hostile_schema(&database.client, true).await;
    let client = connect_with(&format!("options='-c search_path={hostile},pg_catalog'")).await;
    // The caller itself does.
    let found = client.batch_execute("SELECT 1::bigint + 1::bigint").await.unwrap_err();
    assert!(found.as_db_error().unwrap().message().contains("run as"));
    for charge in CHARGES {
        client.batch_execute(&database.schema.statements(charge)).await.unwrap();
    }
    let sweep = database.schema.statements("SELECT * FROM tollgate.sweep(0, 10, 10)");
    client.batch_execute(&sweep).await.unwrap();
}
