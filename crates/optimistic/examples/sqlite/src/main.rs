//! Limits in a file of SQLite, shared by all processes that open it.
//!
//! ```sh
//! cargo run -- /tmp/limits.db   # in two terminals: ten requests an hour between them
//! cargo test                    # the tests that every store of tollgate passes
//! ```

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, ErrorCode, OptionalExtension, TransactionBehavior, params};
use tollgate::backend::BackendError;
use tollgate::{HOUR, Limit, Quota, RateLimiter, Timestamp};
use tollgate_optimistic::{Optimistic, Swap, SwapScan, SwapStore};

/// How long a call waits for another process that writes. Less than the deadline of the store.
const PATIENCE: Duration = Duration::from_millis(40);

#[derive(Clone, Debug)]
struct Sqlite(Arc<Mutex<Connection>>);

impl Sqlite {
    fn open(path: &str) -> rusqlite::Result<Self> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(PATIENCE)?;
        // Readers do not wait for a writer. A crash of the machine may lose the last writes.
        connection.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
             CREATE TABLE IF NOT EXISTS buckets
                 (key TEXT PRIMARY KEY, value BLOB NOT NULL, full_at INTEGER) WITHOUT ROWID;
             CREATE INDEX IF NOT EXISTS buckets_full_at ON buckets (full_at)",
        )?;
        Ok(Self(Arc::new(Mutex::new(connection))))
    }

    /// Deletes buckets that have been full for a minute: an absent bucket is full as well.
    async fn sweep(&self) -> Result<usize, BackendError> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let before = i64::try_from(now.as_micros()).unwrap_or(i64::MAX) - 60_000_000;
        let delete = "DELETE FROM buckets WHERE full_at < ?1";
        self.run(move |connection| connection.execute(delete, [before])).await
    }

    /// Runs statements on a thread that may block.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, BackendError> {
        let connection = Arc::clone(&self.0);
        let task = tokio::task::spawn_blocking(move || {
            work(&mut connection.lock().unwrap_or_else(PoisonError::into_inner))
        });
        match task.await {
            Ok(done) => done.map_err(failure),
            Err(panicked) => Err(BackendError::unavailable(Self::NAME, panicked)),
        }
    }
}

/// What the limiter is told of a failure: only `unavailable` is an outage, in which
/// `OnFailure::Admit` admits. Clients can bring about the other two.
fn failure(error: rusqlite::Error) -> BackendError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            BackendError::locked(Sqlite::NAME, PATIENCE)
        }
        Some(ErrorCode::DiskFull) => BackendError::full(Sqlite::NAME, error),
        _ => BackendError::unavailable(Sqlite::NAME, error),
    }
}

/// A [`Swap`] that borrows nothing.
struct OwnedSwap {
    key: String,
    old: Option<Vec<u8>>,
    new: Option<Vec<u8>>,
    full_at: Option<i64>,
}

impl SwapStore for Sqlite {
    const NAME: &'static str = "sqlite";
    const SWAPS_SEVERAL: bool = true;

    async fn load(&self, key: &str) -> Result<Option<Vec<u8>>, BackendError> {
        let key = key.to_owned();
        self.run(move |connection| value(connection, &key)).await
    }

    async fn swap(&self, swap: &Swap<'_>) -> Result<bool, BackendError> {
        self.swap_all(std::slice::from_ref(swap)).await
    }

    async fn swap_all(&self, swaps: &[Swap<'_>]) -> Result<bool, BackendError> {
        let owned = swaps.iter().map(|swap| OwnedSwap {
            key: swap.key().to_owned(),
            old: swap.old().map(<[u8]>::to_vec),
            new: swap.new_value().map(<[u8]>::to_vec),
            full_at: swap.full_at().map(Timestamp::as_micros),
        });
        let swaps: Vec<_> = owned.collect();
        self.run(move |connection| {
            // Takes the lock for writing at once: no other process writes after the comparison.
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for swap in &swaps {
                if value(&transaction, &swap.key)? != swap.old {
                    return Ok(false);
                }
            }
            for OwnedSwap { key, new, full_at, .. } in &swaps {
                match new {
                    Some(new) => transaction
                        .prepare_cached("INSERT OR REPLACE INTO buckets VALUES (?1, ?2, ?3)")?
                        .execute(params![key, new, full_at])?,
                    None => transaction
                        .prepare_cached("DELETE FROM buckets WHERE key = ?1")?
                        .execute([key])?,
                };
            }
            transaction.commit()?;
            Ok(true)
        })
        .await
    }

    async fn scan(
        &self,
        first: &str,
        behind: &str,
        max: usize,
    ) -> Result<Option<SwapScan>, BackendError> {
        let (first, behind) = (first.to_owned(), behind.to_owned());
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let select = "SELECT key, value FROM buckets WHERE key >= ?1 AND key < ?2 ORDER BY key LIMIT ?3";
        self.run(move |connection| {
            let mut statement = connection.prepare_cached(select)?;
            let rows = statement.query_map(params![first, behind, max], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
            rows.collect::<rusqlite::Result<SwapScan>>().map(Some)
        })
        .await
    }
}

fn value(connection: &Connection, key: &str) -> rusqlite::Result<Option<Vec<u8>>> {
    let mut statement = connection.prepare_cached("SELECT value FROM buckets WHERE key = ?1")?;
    statement.query_row([key], |row| row.get(0)).optional()
}

const REPORTS: Limit = Limit::new("reports", Quota::token_bucket(10, HOUR));

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "limits.db".to_owned());
    let sqlite = Sqlite::open(&path)?;
    println!("{} buckets had been full for a minute", sqlite.sweep().await?);
    let limiter = RateLimiter::new(Optimistic::new(sqlite));
    for _ in 0..6 {
        match limiter.limit(&REPORTS).key("alice").await {
            Ok(permit) => println!("admitted, {} left", permit.remaining()),
            Err(refused) => println!("{refused}"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(name: &str) -> Sqlite {
        let path = std::env::temp_dir().join(format!("tollgate-{}-{name}.db", std::process::id()));
        Sqlite::open(&path.to_string_lossy()).expect("the folder for temporary files is there")
    }

    /// The suite makes some hundred calls at once, which wait for each other here.
    const DEADLINE: Duration = Duration::from_secs(10);

    mod conformance {
        use super::*;

        tollgate_conformance::conformance!(|clock| {
            Optimistic::new(Sqlite::open(":memory:").unwrap()).clock(clock).deadline(DEADLINE)
        });
    }

    /// Two limiters with connections of their own, as two processes have them.
    #[tokio::test(flavor = "multi_thread")]
    async fn two_limiters_on_one_file_admit_the_capacity_together() {
        let limiter =
            || RateLimiter::new(Optimistic::new(open("shared")).deadline(DEADLINE).tries(1_000));
        let tasks = [limiter(), limiter()].into_iter().flat_map(|limiter| {
            (0..10).map(move |_| {
                let limiter = limiter.clone();
                tokio::spawn(async move { limiter.limit(&REPORTS).key("alice").await.is_ok() })
            })
        });
        let mut admitted = 0;
        for task in tasks.collect::<Vec<_>>() {
            admitted += usize::from(task.await.unwrap());
        }
        assert_eq!(admitted, 10);
    }
}
