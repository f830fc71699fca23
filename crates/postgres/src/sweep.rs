//! Removes rows of buckets that are full again, in passing.
//!
//! # Design
//!
//! A full bucket equals an absent one, so its row only takes space. For each lot of buckets that a
//! process names, it lets the server look at some pages of the table, one part after the other. So
//! the work grows with the traffic, there is no timer, and a table without traffic does not grow
//! either. The pages are enough to look at four rows for each bucket that is named: a flood of
//! made-up keys is removed faster than it comes. If they are not full again, and there are more than
//! there may be, as large a share is removed of those in the pages. So the table has up to a third more
//! than it may while a flood of new keys lasts.
//!
//! A sweep takes a connection of the pool, for which it stands in line behind the decisions that
//! came before it. A connection of its own would stay open while nothing is swept, and would be one
//! more than the application has set for a pool of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use deadpool_postgres::{Pool, Timeouts};
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};

use super::lent::Lent;
use super::schema::Schema;

/// Where the sweep of this process stands.
#[derive(Debug)]
pub(super) struct Sweeper {
    /// How many buckets the table may have.
    max_keys: i64,
    /// How many buckets were named since the last sweep.
    named: AtomicUsize,
    next_page: AtomicI64,
    is_running: AtomicBool,
}

impl Sweeper {
    pub(super) fn new(max_keys: usize) -> Self {
        let max_keys = i64::try_from(max_keys).unwrap_or(i64::MAX);
        let (named, next_page, is_running) = Default::default();
        Self { max_keys, named, next_page, is_running }
    }

    /// Notes that a call named so many buckets, and starts a sweep if it is time for one.
    pub(super) fn note(self: &Arc<Self>, buckets: usize, pool: &Pool, lent: Lent, schema: &Schema) {
        let before = self.named.fetch_add(buckets, Ordering::Relaxed);
        if before.saturating_add(buckets) < LOT || self.is_running.swap(true, Ordering::Relaxed) {
            return;
        }
        self.named.store(0, Ordering::Relaxed);
        let (sweeper, pool, statement) =
            (SweepGuard(Arc::clone(self)), pool.clone(), schema.sweep().to_owned());
        tokio::spawn(async move {
            // A sweep that fails costs nothing but space, until the next one, at other pages.
            if sweeper.0.sweep(&pool, lent, &statement).await.is_none() {
                sweeper.0.next_page.fetch_add(PAGES, Ordering::Relaxed);
            }
        });
    }

    async fn sweep(&self, pool: &Pool, mut lent: Lent, statement: &str) -> Option<()> {
        // Its turn comes, however busy the connections are, as the pool serves callers in their
        // order. It is no part of a decision, so it waits longer than those would.
        let turn = Timeouts { wait: None, ..pool.timeouts() };
        let connection = timeout(LONGEST_TURN, pool.timeout_get(&turn)).await.ok()?;
        let connection = lent.keep(connection.ok()?);
        let first = self.next_page.load(Ordering::Relaxed);
        let arguments: [(&(dyn ToSql + Sync), Type); 3] =
            [(&first, Type::INT8), (&PAGES, Type::INT8), (&self.max_keys, Type::INT8)];
        // A connection whose answer has not come is closed with the guard, and its statement ended.
        let rows = timeout(LONGEST, connection.query_typed(statement, &arguments)).await.ok()?;
        lent.give_back();
        let rows = rows.ok()?;
        let pages: i64 = rows.first()?.try_get(0).ok()?;
        let next = first.saturating_add(PAGES);
        self.next_page.store(if next < pages { next } else { 0 }, Ordering::Relaxed);
        Some(())
    }
}

/// A sweep that runs; the next one may start when it is dropped.
struct SweepGuard(Arc<Sweeper>);

impl Drop for SweepGuard {
    fn drop(&mut self) {
        self.0.is_running.store(false, Ordering::Relaxed);
    }
}

/// After how many named buckets a sweep starts.
const LOT: usize = 1_500;

/// How many pages it looks at. A page has about sixty rows.
const PAGES: i64 = 100;

/// How long it may wait for a connection. A new one could be waited for without an end: the pool of an
/// application need not set how long one may take.
const LONGEST_TURN: Duration = Duration::from_secs(600);

/// How long its statement may take: it needs milliseconds.
const LONGEST: Duration = Duration::from_secs(5);
