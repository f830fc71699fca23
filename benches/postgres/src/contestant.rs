//! What is measured: a bare statement or a decision, each by the connections of a pool.

use deadpool_postgres::{Manager, Pool};
use tokio_postgres::NoTls;
use tollgate::{Limit, Quota, RateLimiter, SECOND};
use tollgate_postgres::Postgres;

use std::num::NonZeroUsize;
use std::time::Duration;

/// It never refuses.
pub static LIMIT: Limit =
    Limit::new("bench", Quota::token_bucket(1_000_000, SECOND).capacity(1_000_000_000));

/// The same for the keys of one bucket each, in one, eight and 32 shards.
pub static HOT: [Limit; 3] = [
    Limit::new("hot-1", HOT_QUOTA),
    Limit::new("hot-8", HOT_QUOTA.shards(8)),
    Limit::new("hot-32", HOT_QUOTA.shards(32)),
];
const HOT_QUOTA: Quota = Quota::token_bucket(1_000_000, SECOND).capacity(1_000_000_000);

/// What a task does over and over.
#[derive(Clone)]
pub enum Contestant {
    /// `SELECT 1`: the round trip and a statement that does nothing.
    SelectOne(Pool),
    /// A row for each key, updated in place: what a counter takes that is no limit.
    Upsert(Pool),
    /// A decision.
    Ours(RateLimiter, &'static Limit),
}

impl Contestant {
    pub async fn once(&self, key: u64) {
        match self {
            Self::SelectOne(pool) => {
                let client = pool.get().await.unwrap();
                let statement = client.prepare_cached("SELECT 1").await.unwrap();
                client.query_one(&statement, &[]).await.unwrap();
            }
            Self::Upsert(pool) => {
                let client = pool.get().await.unwrap();
                let statement = client.prepare_cached(UPSERT).await.unwrap();
                let name = format!("bench:n{key}");
                client.query_one(&statement, &[&name.as_bytes()]).await.unwrap();
            }
            Self::Ours(limiter, limit) => drop(limiter.limit(limit).key(key).await.unwrap()),
        }
    }
}

/// Made as the table of the limits is, but for its columns.
pub const TABLE: &str = "CREATE UNLOGGED TABLE plain (key bytea PRIMARY KEY, value bigint NOT NULL, \
                         ts bigint NOT NULL) WITH (fillfactor = 70)";

const UPSERT: &str = "INSERT INTO plain VALUES ($1, 1, 1) ON CONFLICT (key) DO UPDATE SET \
                      value = plain.value + 1, ts = plain.ts + 1 RETURNING value";

/// A pool of connections to a server.
pub fn pool(settings: &str, connections: NonZeroUsize) -> Pool {
    let manager = Manager::new(settings.parse().unwrap(), NoTls);
    Pool::builder(manager).max_size(connections.get()).build().unwrap()
}

/// A limiter whose store uses all connections of a pool.
pub async fn limiter(pool: &Pool, connections: NonZeroUsize) -> RateLimiter {
    let store = Postgres::with_pool(pool.clone()).connections(connections);
    // Bare statements have no deadline either.
    let store = store.deadline(Duration::from_secs(60)).connect().await.unwrap();
    RateLimiter::new(store)
}
