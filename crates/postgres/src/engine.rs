//! The engine: turns the calls of the limiter into operations for the server.

use std::fmt;
use std::sync::Arc;

use super::carrier::PostgresCarrier;
use super::debtors;
use super::store_name::STORE;
use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BucketId, Charge, DebtorQuery, DebtorReport,
};
use tollgate::clock::{Clock, SystemClock};
use tollgate_kit::batch::Batcher;
use tollgate_kit::key_name::KeyNames;
use tollgate_kit::operation::{NamedOperation, Operation};
use tollgate_kit::pages::PageTurns;

/// A store in PostgreSQL, for any number of processes.
///
/// All processes with the same database, [schema](super::PostgresBuilder::schema) and
/// [prefix](super::PostgresBuilder::prefix) share their buckets, and all use the server's clock. A
/// decision is one statement, whatever the number of its limits, and is exactly what it would be in
/// memory. Decisions that a process makes at the same time share a statement. The guide in
/// `docs/postgres.md` of the repository says how to run the server: what it costs, what is stored,
/// which rights a role needs, and what is lost when.
///
/// A process has a pool of four [connections](super::PostgresBuilder::connections), which are
/// made when they are needed and replaced when they break. They run on the tokio runtime in which
/// the store was made, and end with that. So make one store, and clone it, or the
/// [`RateLimiter`](tollgate::RateLimiter). Clones share the pool.
///
/// # Deadlines
///
/// A call without an answer by the [`deadline`](super::PostgresBuilder::deadline) (50 ms by
/// default) fails with an error whose [`is_timeout`](tollgate::backend::BackendError::is_timeout) is true, and layers
/// answer 503. The tokens may be taken all the same: a decision is sent again only if the server
/// said that it was undone, so a lost answer never lets a client exceed the limit. The server ends
/// a statement by itself after a second, or after the deadline if that is longer.
///
/// # After a crash
///
/// The table is unlogged unless the schema was made otherwise: after a crash of the server it is
/// empty, so all buckets are full again, and a standby that takes over begins with full buckets as
/// well. A restart in order keeps the buckets.
///
/// # Examples
///
/// ```no_run
/// use tollgate_postgres::Postgres;
/// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
///
/// const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, MINUTE));
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let postgres = Postgres::connect("postgres://app:secret@127.0.0.1/app").await?;
/// let limiter = RateLimiter::new(postgres);
/// // Five a minute, over all processes.
/// let permit = limiter.limit(&LOGIN).key("alice").await?;
/// println!("{} more", permit.remaining());
/// # Ok(())
/// # }
/// ```
#[doc(alias = "postgresql")]
#[doc(alias = "sql")]
#[doc(alias = "database")]
#[doc(alias = "distributed")]
#[derive(Clone)]
pub struct Postgres {
    pub(super) batcher: Batcher<PostgresCarrier>,
    pub(super) names: Arc<KeyNames>,
    pub(super) turns: PageTurns,
}

impl Postgres {
    fn send(&self, operation: NamedOperation) -> Answer<Applied> {
        Answer::pending(self.batcher.send(operation, self.batcher.deadline()))
    }
}

impl Backend for Postgres {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        if charges.is_empty() {
            return Answer::Ready(Ok(Applied::many(SystemClock::new().now(), Vec::new())));
        }
        match NamedOperation::charges(STORE, charges, &self.names) {
            Ok(operation) => self.send(operation),
            Err(error) => Answer::Ready(Err(error)),
        }
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        if adjustments.is_empty() {
            return Answer::Ready(Ok(Applied::many(SystemClock::new().now(), Vec::new())));
        }
        self.send(NamedOperation::new(Operation::adjustments(adjustments), &self.names))
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        if ids.is_empty() {
            return Answer::Ready(Ok(()));
        }
        self.send(NamedOperation::new(Operation::resets(ids), &self.names)).map(drop)
    }

    /// Reads the table by the index of its keys. It needs the right to call the function `debtors`,
    /// which no decision needs.
    fn debtors(&self, query: &DebtorQuery) -> Answer<DebtorReport> {
        debtors::page(&self.turns, &self.batcher, &self.names, query)
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("names", &self.names).finish_non_exhaustive()
    }
}
