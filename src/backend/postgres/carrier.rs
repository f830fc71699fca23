//! Takes a batch of operations to the server, by one call of the function.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use smallvec::SmallVec;
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::aside::{Aside, BucketHashes, COMMON};
use super::lent::Lent;
use super::request::{DecideRow, Request};
use super::schema::{Schema, millis};
use super::statement_error::StatementError;
use super::store_name::STORE;
use super::sweep::Sweeper;
use super::tls::Canceller;
use crate::backend::BackendError;
use crate::backend::remote::batch::{Bounds, Carrier, Division, Job};
use crate::backend::remote::operation::Operation;
use crate::backend::remote::replay::Replay;
use crate::backend::remote::store_time::StoreTime;
#[cfg(not(test))]
use crate::clock::SystemClock;
use crate::clock::{Clock, Timestamp};

/// Calls the function on the connections of a pool.
pub(super) struct PostgresCarrier {
    pub(super) pool: Pool,
    pub(super) canceller: Canceller,
    pub(super) time: StoreTime,
    pub(super) schema: Schema,
    /// The statement of a call for all buckets, which waits for a lock only a moment.
    pub(super) common_call: String,
    /// The statement of a call for a bucket that is aside, which waits as long as callers do.
    pub(super) aside_call: String,
    pub(super) aside: Aside,
    /// The bounds of what is in flight for buckets that are aside.
    pub(super) aside_bounds: Bounds,
    /// Whether connections keep prepared statements: not behind some poolers.
    pub(super) prepares: bool,
    /// How long a caller waits.
    pub(super) deadline: Duration,
    pub(super) sweeper: Arc<Sweeper>,
    /// The time that the function sees, for tests.
    #[cfg(test)]
    pub(super) clock: Arc<dyn Clock>,
}

impl Carrier for PostgresCarrier {
    const STORE: &'static str = STORE;

    type Mark = BucketHashes;

    async fn call(&self, slot: u16, jobs: &[Job]) -> Result<Replay, BackendError> {
        let mut is_patient = false;
        let mut timed = self.time.begin(self.own_time());
        let mut is_again = false;
        loop {
            let operations = jobs.iter().map(|job| &*job.operation);
            let request = Request::new(operations, timed.around());
            #[cfg(test)]
            let request = request.with_time(self.clock.now());
            // A call for one bucket that is aside waits as long as callers do. One that names others
            // as well does so if no other is the cause.
            is_patient = is_patient || slot != COMMON && request.names().len() == 1;
            let call = if is_patient { &self.aside_call } else { &self.common_call };
            let row = match self.ask(call, &request).await {
                // The server has carried out nothing.
                Err(StatementError::Undone(_)) => self.ask(call, &request).await,
                answer => answer,
            };
            let row = match row {
                Err(StatementError::Row(error)) => {
                    let is_known = self.set_aside(is_patient, jobs, &request, &error).await;
                    let moves = |job: &Job| self.slot(&job.operation) != slot;
                    if is_again || !error.is_locked() || !is_known || jobs.iter().any(moves) {
                        return Err(error);
                    }
                    // It is the bucket of this slot, or the lock is gone.
                    (is_again, is_patient) = (true, true);
                    continue;
                }
                row => row.map_err(StatementError::into_error)?,
            };
            let lent = Lent::none(&self.canceller);
            self.sweeper.note(request.names().len(), &self.pool, lent, &self.schema);
            let unread =
                || BackendError::unavailable(STORE, "the answer of the function cannot be read");
            let answer = DecideRow::read(&row).ok_or_else(unread)?;
            match request.outside(&answer) {
                Some(now) => timed.outside(STORE, now)?,
                None => return request.replay(&answer).ok_or_else(unread),
            }
        }
    }

    fn slot(&self, operation: &Operation) -> u16 {
        self.aside.slot(operation)
    }

    fn bounds<'b>(&'b self, slot: u16, common: &'b Bounds) -> &'b Bounds {
        if slot == COMMON { common } else { &self.aside_bounds }
    }

    /// A row that fails a call is aside by now. All these errors are of calls that are undone, or
    /// were not sent.
    fn division(&self, error: &BackendError) -> Division {
        match error.is_locked() || error.is_misconfigured() {
            true => Division::BySlots,
            false => Division::None,
        }
    }

    fn mark(&self, operation: &Operation) -> BucketHashes {
        operation.names().iter().map(|name| name.own_hash()).collect()
    }

    fn late(&self, mark: &BucketHashes) -> Option<BackendError> {
        self.aside.is_locked(mark).then(|| BackendError::locked(STORE, self.deadline))
    }
}

impl PostgresCarrier {
    /// The time by the clock of this process.
    pub(super) fn own_time(&self) -> Timestamp {
        #[cfg(test)]
        return self.clock.now();
        #[cfg(not(test))]
        SystemClock::new().now()
    }

    /// Sets the buckets aside by whose rows a call has failed. Returns whether they are known.
    async fn set_aside(
        &self,
        is_patient: bool,
        jobs: &[Job],
        request: &Request<'_>,
        error: &BackendError,
    ) -> bool {
        let names = request.names();
        let places = match names {
            // It has waited as long as callers do, so there is no time to ask for more.
            [_] if is_patient => vec![1],
            _ => match self.sick(names).await {
                Ok(places) => places,
                Err(told) => {
                    // The table itself.
                    if told.into_error().is_locked() {
                        self.aside.note_table();
                    }
                    return false;
                }
            },
        };
        let place = |place: i32| usize::try_from(place).ok()?.checked_sub(1);
        let sick: Vec<&[u8]> =
            places.into_iter().filter_map(|one| names.get(place(one)?).copied()).collect();
        let named = jobs.iter().flat_map(|job| job.operation.names());
        self.aside.note(named.filter(|name| sick.contains(&name.as_ref())), error.is_locked());
        true
    }

    /// The places of the buckets whose rows fail a call, from 1 on.
    async fn sick(&self, names: &[&[u8]]) -> Result<Vec<i32>, StatementError> {
        // The rest of the time that callers have.
        let patience = millis(self.deadline / 2);
        let typed: [(&(dyn ToSql + Sync), Type); 2] =
            [(&names, Type::BYTEA_ARRAY), (&patience, Type::INT4)];
        let row = self.query(self.schema.sick(), false, &typed).await?;
        row.try_get(0).map_err(|error| StatementError::of(error, self.deadline))
    }

    /// Sends a request once.
    async fn ask(&self, call: &str, request: &Request<'_>) -> Result<Row, StatementError> {
        let arguments: [(&(dyn ToSql + Sync), Type); 2] =
            [(&request.names(), Type::BYTEA_ARRAY), (&request.numbers(), Type::INT8_ARRAY)];
        self.query(call, self.prepares, &arguments).await
    }

    /// The row of a statement. A connection that is lost, or that does not answer, leaves the pool.
    pub(super) async fn query(
        &self,
        statement: &str,
        prepares: bool,
        typed: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Row, StatementError> {
        let mut lent = Lent::none(&self.canceller);
        let answer = timeout(self.patience(), async {
            let connection = self.pool.get().await;
            let connection =
                connection.map_err(|error| StatementError::of_pool(error, self.deadline))?;
            let connection = lent.keep(connection);
            let rows = if prepares {
                let arguments: SmallVec<[_; 4]> = typed.iter().map(|(one, _)| *one).collect();
                match connection.prepare_cached(statement).await {
                    Ok(statement) => connection.query(&statement, &arguments).await,
                    Err(error) => Err(error),
                }
            } else {
                connection.query_typed(statement, typed).await
            };
            let failed = |error| {
                let error = StatementError::of(error, self.deadline);
                if !matches!(error, StatementError::Row(_)) {
                    connection.statement_cache.clear();
                }
                error
            };
            let row = rows.map_err(failed)?.into_iter().next();
            row.ok_or_else(|| StatementError::Failed(BackendError::internal(STORE, "no row")))
        });
        let answer = answer.await;
        match answer {
            Ok(Err(StatementError::Lost(error))) => Err(StatementError::Lost(error)),
            Ok(answer) => {
                lent.give_back();
                answer
            }
            Err(_) => Err(StatementError::Lost(BackendError::timeout(STORE, self.deadline))),
        }
    }

    /// Makes calls that name no bucket: they show whether the functions are there, and may be called.
    pub(super) async fn try_out(&self, connection: &Client) -> Result<(), tokio_postgres::Error> {
        let (names, numbers, patience): (&[&[u8]], &[i64], _) = (&[], &[0, 0], 1);
        let typed: [(&(dyn ToSql + Sync), Type); 2] =
            [(&names, Type::BYTEA_ARRAY), (&numbers, Type::INT8_ARRAY)];
        connection.query_typed(self.schema.call(), &typed).await?;
        connection.query_typed(&self.aside_call, &typed).await?;
        let typed: [(&(dyn ToSql + Sync), Type); 2] =
            [(&names, Type::BYTEA_ARRAY), (&patience, Type::INT4)];
        connection.query_typed(self.schema.sick(), &typed).await.map(drop)
    }

    /// How long an answer may take. It is longer than callers wait, so that a server which is
    /// merely slow keeps its connections, and is not sent more and more.
    pub(super) fn patience(&self) -> Duration {
        patience(self.deadline)
    }
}

/// How long an answer may take if callers wait until this deadline.
pub(super) fn patience(deadline: Duration) -> Duration {
    deadline.max(Duration::from_secs(1))
}

/// How long the server waits for a lock if callers wait until this deadline. It is less, so that a
/// caller learns that it was a lock, which a client can cause.
pub(super) fn lock_patience(deadline: Duration) -> Duration {
    deadline.saturating_sub(deadline / 5)
}

/// How long it waits for a lock in a call for all buckets.
pub(super) fn common_lock_patience(deadline: Duration) -> Duration {
    Duration::from_millis(100).min(deadline / 5)
}

impl fmt::Debug for PostgresCarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresCarrier")
            .field("schema", &self.schema)
            .field("prepares", &self.prepares)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
