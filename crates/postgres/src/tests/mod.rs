//! The functions on a real server, beside the formula in Rust.

mod access;
mod calendars;
mod conformance;
mod contention;
mod encode;
mod engine;
mod foreign;
mod hammer;
mod isolation;
mod migrations;
mod records;
mod search_path;
mod sweep;
mod trace;
mod writes;

use std::sync::Arc;

use tokio_postgres::{Client, Error, NoTls, Statement};
use tollgate_testing::postgres::Server;

use self::encode::Batch;
use super::migrate::{SERVER_CLOCK, install};
use super::schema_name::SchemaName;
use tollgate::clock::Timestamp;

/// A connection to the server of the tests, with these further settings.
async fn connect_with(settings: &str) -> Client {
    let settings = format!("{} {settings}", Server::shared().settings());
    let (client, connection) = tokio_postgres::connect(&settings, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A schema of its own, with one connection.
struct Database {
    schema: SchemaName,
    client: Arc<Client>,
    decide: Statement,
}

/// What `decide` returns: the time, and six numbers for each bucket.
type Decided = (Timestamp, Vec<[i64; 6]>);

impl Database {
    /// A new schema, with the time that the numbers name at their end.
    async fn with_test_clock() -> Self {
        Self::installed(super::migrate::TEST_CLOCK).await
    }

    /// A new schema, with a time that [`set_time`](Self::set_time) sets while calls run.
    async fn with_live_clock() -> Self {
        Self::installed(
            "CREATE SEQUENCE tollgate.time; CREATE FUNCTION tollgate.clock(numbers bigint[]) \
             RETURNS bigint LANGUAGE sql VOLATILE RETURN (SELECT last_value FROM tollgate.time); \
             CREATE FUNCTION tollgate.latest(now bigint) RETURNS bigint LANGUAGE sql IMMUTABLE \
             RETURN 9007199254740992;\n",
        )
        .await
    }

    /// Sets the time that all calls see from now on, also those that run.
    async fn set_time(&self, now: Timestamp) {
        let text = format!("SELECT setval('{}.time', {})", self.schema, now.as_micros());
        self.client.batch_execute(&text).await.unwrap();
    }

    /// A new schema, with the server's clock.
    async fn with_server_clock() -> Self {
        Self::installed(SERVER_CLOCK).await
    }

    async fn installed(clock: &str) -> Self {
        let schema = SchemaName::new(&Server::shared().unused_name()).unwrap();
        let client = connect_with("").await;
        install(&client, &schema, false, clock).await.unwrap();
        Self::over(schema, client).await
    }

    /// A further connection.
    async fn again(&self) -> Self {
        Self::over(self.schema.clone(), connect_with("").await).await
    }

    async fn over(schema: SchemaName, client: Client) -> Self {
        let text = schema.statements("SELECT now, stored FROM tollgate.decide($1, $2)");
        let decide = client.prepare(&text).await.unwrap();
        Self { schema, client: Arc::new(client), decide }
    }

    async fn decide(&self, batch: &Batch) -> Result<Decided, Error> {
        let names: Vec<&[u8]> = batch.names.iter().map(Vec::as_slice).collect();
        let row = self.client.query_one(&self.decide, &[&names, &batch.numbers]).await?;
        let stored: Vec<i64> = row.get(1);
        let (cells, rest) = stored.as_chunks();
        assert_eq!((cells.len(), rest), (batch.names.len(), &[][..]));
        Ok((Timestamp::from_micros(row.get(0)), cells.to_vec()))
    }

    /// Runs statements in which `tollgate.` stands for the schema.
    async fn run(&self, text: &str) -> Result<(), Error> {
        self.client.batch_execute(&self.schema.statements(text)).await
    }

    /// A number that a query returns.
    async fn number(&self, query: &str) -> i64 {
        let query = self.schema.statements(query);
        self.client.query_one(&query, &[]).await.unwrap().get(0)
    }

    /// All rows: their names and numbers.
    async fn rows(&self) -> Vec<(Vec<u8>, [i64; 6])> {
        let text = format!(
            "SELECT key, ARRAY[value, ts, gain, token, capacity, step]::bigint[] \
             FROM {}.buckets ORDER BY key",
            self.schema
        );
        let rows = self.client.query(&text, &[]).await.unwrap();
        let cell = |numbers: Vec<i64>| *numbers.first_chunk().unwrap();
        rows.iter().map(|row| (row.get(0), cell(row.get(1)))).collect()
    }
}
