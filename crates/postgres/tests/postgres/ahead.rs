//! Buckets that a server with a wrong clock has written, on one whose clock is right.

use std::time::Duration;

use tokio_postgres::{Client, NoTls, Row};
use tollgate::RateLimiter;
use tollgate_postgres::Postgres;
use tollgate_testing::ahead::{self, Rows};
use tollgate_testing::postgres::Server;
use tollgate_testing::traffic::wait_until;

/// The table of a schema of its own.
struct Table {
    schema: String,
    client: Client,
    limiter: RateLimiter,
}

impl Table {
    async fn set_up() -> Self {
        let server = Server::shared();
        let schema = server.unused_name();
        let store = Postgres::at(server.settings()).schema(&schema);
        let store = store.deadline(Duration::from_secs(10)).connect().await.unwrap();
        let (client, connection) =
            tokio_postgres::connect(&server.settings(), NoTls).await.unwrap();
        tokio::spawn(connection);
        Self { schema, client, limiter: RateLimiter::new(store) }
    }

    /// Runs a statement about the rows. Returns its only row.
    async fn run(&self, text: &str) -> Row {
        let text = text.replace("buckets", &format!("{}.buckets", self.schema));
        self.client.query_one(&text, &[]).await.unwrap()
    }
}

/// The row of the bucket of this key, which is that of one limit.
fn of(key: &str) -> String {
    format!("split_part(convert_from(key, 'UTF8'), ':', 3) = '{key}'")
}

/// All numbers of a row.
const NUMBERS: &str = "ARRAY[value, ts, gain, token, capacity, step]::bigint[]";

impl Rows for Table {
    async fn move_ahead(&self, key: &str, micros: i64) {
        self.run(&format!("UPDATE buckets SET ts = ts + {micros} WHERE {} RETURNING 1", of(key)))
            .await;
    }

    async fn numbers(&self, key: &str) -> [i64; 6] {
        let row = self.run(&format!("SELECT {NUMBERS} FROM buckets WHERE {}", of(key))).await;
        row.get::<_, Vec<i64>>(0).try_into().unwrap()
    }

    async fn now(&self) -> i64 {
        self.run("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").await.get(0)
    }
}

#[tokio::test]
async fn a_bucket_of_a_time_years_ahead_gains_from_now_on() {
    let table = Table::set_up().await;
    ahead::a_bucket_of_a_time_years_ahead_gains_from_now_on(&table.limiter, &table).await;
}

#[tokio::test]
async fn what_was_used_stays_used() {
    let table = Table::set_up().await;
    ahead::what_was_used_stays_used(&table.limiter, &table).await;
}

#[tokio::test]
async fn blocks_debts_and_times_a_little_ahead_stay() {
    let table = Table::set_up().await;
    ahead::blocks_debts_and_times_a_little_ahead_stay(&table.limiter, &table).await;
}

/// A sweep gives such a row a time that has come, or that comes within a step, so that it fills and
/// goes. Blocks, debts, and times that are an hour ahead at most stay as they are.
#[tokio::test]
async fn a_sweep_lets_buckets_of_times_years_ahead_fill_and_go() {
    let table = Table::set_up().await;
    let now = table.now().await;
    let (years, day) = (now + 315_360_000_000_000, 86_400_000_000_i64);
    // Value, time, gain and capacity, and step.
    let rows = [
        ("bucket", [9, years, 1, 10, 1]),
        ("full", [10, years, 1, 10, 1]),
        ("window", [9, years, 10, 10, day]),
        ("initial", [9, years, 1, 10, -1]),
        ("blocked", [-1, years, 1, 10, 1]),
        ("near", [9, now + 3_500_000_000, 1, 10, 1]),
        ("next", [9, now + day - 1_000_000, 10, 10, day]),
    ];
    for (key, [value, ts, gain, capacity, step]) in rows {
        let row = format!("'tollgate:a:{key}', {value}, {ts}, {gain}, 1, {capacity}, {step}");
        table.run(&format!("INSERT INTO buckets VALUES ({row}) RETURNING 1")).await;
    }
    let sweep = format!("SELECT removed FROM {}.sweep_4(0, 1000, 1000000)", table.schema);
    assert_eq!(table.run(&sweep).await.get::<_, i64>(0), 0);
    for (key, [value, before, gain, capacity, step]) in rows {
        let [left, ts, numbers @ ..] = table.numbers(key).await;
        assert_eq!((left, numbers), (value, [gain, 1, capacity, step]), "{key}");
        match key {
            "blocked" | "near" | "next" => assert_eq!(ts, before, "{key}"),
            _ => {
                let behind = (before - ts) % step;
                assert!((now..now + 60_000_000 + step.abs()).contains(&ts), "{key}: {ts}");
                assert_eq!(behind, 0, "{key} keeps its phase");
            }
        }
    }
    // The sweep changes no row again, and the first two are full a second later.
    let window = table.numbers("window").await;
    wait_until("they are gone", async || {
        table.run(&sweep).await;
        table.run("SELECT count(*) FROM buckets").await.get::<_, i64>(0) == 5
    })
    .await;
    assert_eq!(table.numbers("window").await, window);
}
