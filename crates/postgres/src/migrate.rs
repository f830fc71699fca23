//! Installs the tables and the functions.

use tokio_postgres::{Client, Error, SimpleQueryMessage};

use super::schema_name::{SchemaName, VERSION};

/// The files, in the order in which they run; `clock.sql` comes after the first.
pub(super) const SCHEMA: &str = include_str!("sql/schema.sql");
const FUNCTIONS: [&str; 7] = [
    include_str!("sql/bucket.sql"),
    include_str!("sql/formula.sql"),
    include_str!("sql/operations.sql"),
    include_str!("sql/decide.sql"),
    include_str!("sql/sweep.sql"),
    include_str!("sql/debtors.sql"),
    include_str!("sql/access.sql"),
];

/// The server's clock.
pub(super) const SERVER_CLOCK: &str = include_str!("sql/clock.sql");

/// The clock of tests: the last of the numbers. A sweep, which has no numbers, sees the server's.
/// As it steps back at will, all times are read as what they are.
#[cfg(test)]
pub(super) const TEST_CLOCK: &str = "\
    CREATE OR REPLACE FUNCTION tollgate.clock(numbers bigint[]) RETURNS bigint LANGUAGE sql VOLATILE \
    RETURN coalesce(numbers[cardinality(numbers)], \
    (extract(epoch FROM clock_timestamp()) * 1000000::numeric)::bigint); \
    CREATE OR REPLACE FUNCTION tollgate.latest(now bigint) RETURNS bigint LANGUAGE sql IMMUTABLE \
    RETURN 9007199254740992;\n";

#[cfg(not(test))]
const CLOCK: &str = SERVER_CLOCK;
#[cfg(test)]
const CLOCK: &str = TEST_CLOCK;

/// How long the server lets a migration wait. Callers wait as long.
const PATIENCE: &str = "5s";

/// Key of the advisory lock that migrations hold.
pub(super) const LOCK: i64 = 7_811_887_503_216_414_569;

/// Installs the tables and the functions of this version in a schema, or does nothing if they are
/// there. Any number of nodes may do so at once: one installs, and the others wait for it.
///
/// With `logged`, a new table of buckets survives a crash of the server, at up to eight times the
/// cost of a decision. A table that exists stays as it is.
///
/// A database that has this version needs no more rights than to read `versions`. Otherwise the role
/// has to be allowed to create the schema, or to create in it if the schema is there.
///
/// # Errors
///
/// If the server cannot be asked, or the role lacks a right. Nothing is installed in part.
///
/// # Cancel safety
///
/// If the future is dropped, the connection may be left inside a transaction: close it.
pub(super) async fn migrate(
    client: &Client,
    schema: &SchemaName,
    logged: bool,
) -> Result<(), Error> {
    install(client, schema, logged, CLOCK).await
}

/// As [`migrate`], with this clock.
pub(super) async fn install(
    client: &Client,
    schema: &SchemaName,
    logged: bool,
    clock: &str,
) -> Result<(), Error> {
    if is_installed(client, schema).await? {
        return Ok(());
    }
    let installed = install_locked(client, schema, logged, clock).await;
    if installed.is_err() {
        // The first error says what is wrong. This one could only repeat it.
        drop(client.batch_execute("ROLLBACK").await);
    }
    installed
}

async fn install_locked(
    client: &Client,
    schema: &SchemaName,
    logged: bool,
    clock: &str,
) -> Result<(), Error> {
    // Sees what the migration before it has committed, whatever the default of the role is.
    // Operators are looked up when a function is made: none but those of the system may be found.
    // The limits on the time of a decision are too short for a migration that waits for another.
    let begin = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL search_path = pg_catalog, pg_temp; \
         SET LOCAL statement_timeout = '{PATIENCE}'; SET LOCAL lock_timeout = '{PATIENCE}'; \
         SELECT pg_advisory_xact_lock({LOCK})"
    );
    client.batch_execute(&begin).await?;
    if !is_installed(client, schema).await? {
        // The first file by itself: it says so if the server is too old to read the others.
        for text in texts(schema, logged, clock) {
            client.batch_execute(&text).await?;
        }
    }
    client.batch_execute("COMMIT").await
}

/// Whether this version is there, with its table. Others may be as well.
pub(super) async fn is_installed(client: &Client, schema: &SchemaName) -> Result<bool, Error> {
    let there =
        |table| format!("SELECT 1 WHERE pg_catalog.to_regclass('{schema}.{table}') IS NOT NULL");
    if !has_row(client, &there("versions")).await? {
        return Ok(false);
    }
    let version =
        format!("SELECT 1 FROM {schema}.versions WHERE version OPERATOR(pg_catalog.=) {VERSION}");
    Ok(has_row(client, &version).await? && has_row(client, &there("buckets")).await?)
}

/// Whether a query has a row. Simple queries need no prepared statements, which some proxies lack.
async fn has_row(client: &Client, query: &str) -> Result<bool, Error> {
    let messages = client.simple_query(query).await?;
    Ok(messages.iter().any(|message| matches!(message, SimpleQueryMessage::Row(_))))
}

/// All files, for a schema: the first one, and the others.
fn texts(schema: &SchemaName, logged: bool, clock: &str) -> [String; 2] {
    let first = match logged {
        true => SCHEMA.replace("CREATE UNLOGGED TABLE", "CREATE TABLE"),
        false => SCHEMA.to_owned(),
    };
    let rest: String = [clock].into_iter().chain(FUNCTIONS).collect();
    [first, rest].map(|files| schema.statements(&files))
}

/// The statements of a migration, for teams that run their own migrations.
pub(super) fn statements(schema: &SchemaName, logged: bool) -> String {
    texts(schema, logged, SERVER_CLOCK).concat()
}
