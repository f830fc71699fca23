//! What the table and the functions let a role do.

use tokio_postgres::NoTls;
use tollgate_testing::postgres::Server;

use super::Database;
use super::encode::Batch;
use crate::migrate::statements;
use tollgate_conformance::history::START;

/// One charge of 1 unit on a limit of 10 units.
const CHARGE: &str =
    "SELECT now FROM tollgate.decide('{alice}', '{1, 1, 1, 10, 1, 10, 1, 1, 1, 1, 0, 1}')";

/// A role with the rights that `access.sql` names.
async fn granted(database: &Database) -> tokio_postgres::Client {
    let role = Server::shared().unused_name();
    let schema = &database.schema;
    let grants = format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role}; \
         GRANT SELECT ON {schema}.versions TO {role}; \
         GRANT EXECUTE ON FUNCTION {schema}.decide_4, {schema}.decide_within_4, {schema}.sick_4, \
         {schema}.sweep_4 TO {role}"
    );
    database.client.batch_execute(&grants).await.unwrap();
    let settings = Server::shared().settings().replace("user=app", &format!("user={role}"));
    let (client, connection) = tokio_postgres::connect(&settings, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test]
async fn a_role_may_call_the_functions_and_nothing_else() {
    let database = Database::with_server_clock().await;
    let client = granted(&database).await;
    let named = |text: &str| database.schema.statements(text);
    for allowed in [
        CHARGE,
        "SELECT * FROM tollgate.sweep(0, 10, 10)",
        "SELECT * FROM tollgate.decide_within('{}', '{0, 0}', 5)",
        "SELECT tollgate.sick('{alice}', 5, 5)",
        CHARGE,
    ] {
        client.batch_execute(&named(allowed)).await.unwrap();
    }
    // A node of this role finds that its version is there.
    let outcome = crate::migrate::migrate(&client, &database.schema, false).await;
    outcome.unwrap();
    for denied in [
        "SELECT * FROM tollgate.buckets",
        "DELETE FROM tollgate.buckets",
        "SELECT * FROM tollgate.debtors('', '\\xff', 10, '{1, 1, 10, 1}')",
        "SELECT tollgate.lock('alice')",
        "SELECT tollgate.store('alice', '{0,0,0,0,0,0}', 0)",
        "SELECT tollgate.decide_many('{alice}', '{0,0}', false)",
        "INSERT INTO tollgate.versions VALUES (9)",
    ] {
        let error = client.batch_execute(&named(denied)).await.expect_err(denied);
        assert_eq!(error.code().unwrap().code(), "42501", "{denied}: {error:?}");
    }
}

/// The files took rights on other functions away, and gave back what was revoked.
#[tokio::test]
async fn files_that_run_again_change_no_rights() {
    let database = Database::with_server_clock().await;
    let client = granted(&database).await;
    let named = |text: &str| database.schema.statements(text);
    let role: String = client.query_one("SELECT current_user::text", &[]).await.unwrap().get(0);
    let schema = &database.schema;
    let theirs = format!(
        "{}; CREATE FUNCTION {schema}.theirs() RETURNS integer LANGUAGE sql RETURN 1",
        named(&format!(
            "REVOKE EXECUTE ON FUNCTION tollgate.sweep(bigint, bigint, bigint) FROM {role}"
        ))
    );
    database.client.batch_execute(&theirs).await.unwrap();
    database.client.batch_execute(&statements(schema, false)).await.unwrap();
    client.batch_execute(&named(CHARGE)).await.unwrap();
    client.batch_execute(&format!("SELECT {schema}.theirs()")).await.unwrap();
    let sweep = client.batch_execute(&named("SELECT * FROM tollgate.sweep(0, 10, 10)")).await;
    assert_eq!(sweep.unwrap_err().code().unwrap().code(), "42501");
}

/// Attack: operators of the caller, in front of those of the system, that admit everything or run
/// as the owner.
#[tokio::test]
async fn a_role_cannot_put_its_own_operators_into_the_functions() {
    let database = Database::with_server_clock().await;
    let client = granted(&database).await;
    let evil = Server::shared().unused_name();
    let user: String = client.query_one("SELECT current_user::text", &[]).await.unwrap().get(0);
    let made = format!("CREATE SCHEMA {evil} AUTHORIZATION {user}");
    database.client.batch_execute(&made).await.unwrap();
    let attack = format!(
        "CREATE FUNCTION {evil}.no(bigint, bigint) RETURNS bigint LANGUAGE plpgsql AS \
         $$ BEGIN RAISE EXCEPTION 'run as %', current_user; END $$; \
         CREATE OPERATOR {evil}.- (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = {evil}.no); \
         CREATE OPERATOR {evil}.+ (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = {evil}.no); \
         CREATE TEMP TABLE buckets (key bytea); \
         SET search_path = {evil}, pg_catalog"
    );
    client.batch_execute(&attack).await.unwrap();
    // The operators are found by the caller.
    assert!(client.batch_execute("SELECT 1::bigint + 1::bigint").await.is_err());
    let decide = database.schema.statements(CHARGE);
    let two = decide.replace("1, 1, 1, 1, 0, 1}", "2, 1, 1, 1, 0, 1, 1, 1, 1, 0, 1}");
    let own = decide.replace("1, 1, 1, 1, 0, 1}", "1, 5, 1, 0, 1}");
    let own_two =
        own.replace("5, 1, 0, 1}", "5, 1, 0, 1, 1, 0, 1}").replace("{alice}", "{alice,bob}");
    for text in [&decide, &two, &own, &own_two] {
        client.batch_execute(text).await.unwrap();
    }
    assert_eq!(database.number("SELECT count(*) FROM tollgate.buckets").await, 2);
}

/// A bucket that cannot be one is kept out, also where a role may write to the table.
#[tokio::test]
async fn the_table_keeps_out_what_cannot_be_a_bucket() {
    let database = Database::with_test_clock().await;
    let sound = [3, 0, 1, 2, 10, 1];
    let most = 1_i64 << 53;
    let insert = async |numbers: [i64; 6]| {
        let list: Vec<_> = numbers.iter().map(i64::to_string).collect();
        let text = format!("INSERT INTO tollgate.buckets VALUES ('x', {})", list.join(", "));
        database.run(&text).await
    };
    for (place, number) in [
        (0, most + 1),
        (0, -most - 1),
        (1, most + 1),
        (1, i64::MIN),
        (2, 0),
        (2, most + 1),
        (3, 0),
        (3, -1),
        (4, -1),
        (4, most + 1),
        (5, 0),
        (5, i64::MIN),
    ] {
        let mut numbers = sound;
        numbers[place] = number;
        let error = insert(numbers).await.expect_err("a number that no bucket has");
        assert_eq!(error.code().unwrap().code(), "23514", "{numbers:?}");
    }
    insert(sound).await.unwrap();
}

/// Numbers that no client sends are errors, and change nothing.
#[tokio::test]
async fn numbers_that_make_no_sense_are_errors_and_store_nothing() {
    let database = Database::with_test_clock().await;
    let batch = |numbers: &[i64]| Batch {
        names: vec![b"x".to_vec()],
        numbers: numbers.to_vec(),
        general: None,
    };
    for numbers in [
        &[][..],
        &[1],
        &[1, 1, 1, 10, 1, 10],
        &[1, 1, 1, 10, 1, 10, 1, 9, 1, 1, 0, 1],
        &[1, 1, 1, 10, 0, 10, 1, 1, 1, 1, 0, 1],
        &[1, 0, 1, 10, 1, 10, 1, 1, 1, 1, 0, 1],
        // In the form for charges of a bucket each.
        &[1, 1, 1, 10, 1, 10, 1, 5],
        &[1, 1, 1, 10, 0, 10, 1, 5, 1, 0, 1],
        &[1, 0, 1, 10, 1, 10, 1, 5, 1, 0, 1],
        &[1, 1, 1, -5, 1, -5, 1, 5, 1, 0, -9],
        &[1, 1, 1, 10, 1, 10, 1, 5, 1, 0, i64::MIN],
    ] {
        let outcome = database.decide(&batch(numbers).at(START)).await;
        assert!(outcome.is_err(), "{numbers:?}: {outcome:?}");
    }
    let two = |numbers: &[i64]| Batch {
        names: vec![b"x".to_vec(), b"y".to_vec()],
        numbers: numbers.to_vec(),
        general: None,
    };
    for numbers in [&[1, 1, 1, 10, 1, 10, 1, 5][..], &[1, 1, 1, 10, 0, 10, 1, 5, 1, 0, 1, 1, 0, 1]]
    {
        let outcome = database.decide(&two(numbers).at(START)).await;
        assert!(outcome.is_err(), "{numbers:?}: {outcome:?}");
    }
    assert_eq!(database.rows().await, []);
}
