//! Takes a batch of operations to the server, by one call of the function.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use smallvec::SmallVec;
use tokio::time::{Instant, timeout};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::aside::{Aside, BucketHashes, COMMON, NEW};
use super::lent::Lent;
use super::request::{DecideRow, Request};
use super::schema::{Schema, millis};
use super::statement_error::{StatementError, is_of_unnamed_row, of_unnamed_row};
use super::store_name::STORE;
use super::sweep::Sweeper;
use super::tls::Canceller;
use tollgate::backend::BackendError;
#[cfg(not(test))]
use tollgate::clock::SystemClock;
use tollgate::clock::{Clock, Timestamp};
use tollgate_kit::batch::{Bounds, Carrier, Division, Job};
use tollgate_kit::operation::NamedOperation;
use tollgate_kit::overdue::Overdue;
use tollgate_kit::replay::Replay;
use tollgate_kit::store_time::StoreTime;

/// Calls the function on the connections of a pool.
pub(super) struct PostgresCarrier {
    pub(super) pool: Pool,
    pub(super) canceller: Canceller,
    /// How late the tasks of connections are, unless these are another pool's.
    pub(super) overdue: Overdue,
    pub(super) time: StoreTime,
    pub(super) schema: Schema,
    /// The statement of a call for all buckets, which waits for a lock only a moment.
    pub(super) common_call: String,
    /// The statement of a call that waits for a lock as long as it is told.
    pub(super) patient_call: String,
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

    type Mark = Mark;

    async fn call(&self, slot: u16, jobs: &[Job]) -> Result<Replay, BackendError> {
        let mut timed = self.time.begin(self.own_time());
        let mut is_again = false;
        loop {
            let operations = jobs.iter().map(|job| &job.operation);
            let request = Request::new(operations, timed.around());
            #[cfg(test)]
            let request = request.with_time(self.clock.now());
            let is_one = request.names().len() == 1;
            if slot == NEW
                && jobs.len() > 1
                && let Some(error) = self.aside.just_full()
            {
                self.find_rows(jobs, &request).await;
                return Err(error);
            }
            let is_aside = Aside::is_aside(slot);
            let waits = is_again || is_aside && is_one;
            if is_aside && !is_one {
                // Others want the other rows: none of them is held while this one is waited for.
                self.wait_for_rows(jobs, &request).await?;
            }
            let patience = waits.then(|| self.time_left(jobs));
            let row = match self.ask(&request, patience).await {
                // The server has carried out nothing.
                Err(StatementError::Undone(_)) => self.ask(&request, patience).await,
                answer => answer,
            };
            let row = match row {
                Err(StatementError::Row(error)) => {
                    let is_free = match error.is_locked() {
                        true if waits && is_one => self.note_sick(jobs, &request, &[1]),
                        false if is_one => self.note_sick(jobs, &request, &[-1]),
                        _ => self.set_aside(jobs, &request).await,
                    };
                    // Many calls want the row, and none keeps it.
                    if is_free && error.is_locked() && !is_aside && !is_again {
                        is_again = true;
                        continue;
                    }
                    let is_unnamed = is_free && !error.is_locked();
                    return Err(if is_unnamed { of_unnamed_row(error) } else { error });
                }
                Err(StatementError::Failed(error)) if error.is_full() => {
                    self.aside.note_full(hashes(jobs), &error);
                    let are_there = self.find_rows(jobs, &request).await;
                    // A row that changes needs room on its page, until what it was before goes.
                    if are_there && !is_again {
                        is_again = true;
                        continue;
                    }
                    return Err(error);
                }
                row => row.map_err(StatementError::into_error)?,
            };
            let lent = Lent::none(&self.canceller);
            self.sweeper.note(request.names().len(), &self.pool, lent, &self.schema);
            let unread =
                || BackendError::unavailable(STORE, "the answer of the function cannot be read");
            let answer = DecideRow::read(&row).ok_or_else(unread)?;
            self.note_found(jobs, &request, &answer);
            match request.outside(&answer) {
                Some(now) => timed.outside(STORE, now)?,
                None => return request.replay(&answer).ok_or_else(unread),
            }
        }
    }

    fn slot(&self, operation: &NamedOperation) -> u16 {
        self.aside.slot(operation)
    }

    fn bounds<'b>(&'b self, slot: u16, common: &'b Bounds) -> &'b Bounds {
        if slot == COMMON { common } else { &self.aside_bounds }
    }

    /// What fails a call has another slot by now. All these errors are of calls that are undone, or were
    /// not sent. On a full disk a row that is there may need room as well, but a new one surely does.
    fn division(&self, slot: u16, error: &BackendError) -> Division {
        if error.is_full() && slot != NEW || is_of_unnamed_row(error) {
            Division::OneByOne
        } else if error.is_full() || error.is_locked() || error.is_misconfigured() {
            Division::BySlots
        } else {
            Division::None
        }
    }

    fn mark(&self, operation: &NamedOperation) -> Mark {
        let buckets = operation.names().iter().map(|name| name.own_hash()).collect();
        Mark { buckets, overdue: self.overdue.total() }
    }

    /// The first of the jobs of a call has had no more time; the others may wait again.
    fn retries(&self, slot: u16, job: &Job, error: &BackendError) -> bool {
        let left = job.deadline.saturating_duration_since(Instant::now());
        Aside::is_aside(slot) && error.is_locked() && left > self.margin().saturating_add(TICK)
    }

    fn late(&self, slot: u16, mark: &Mark) -> Option<BackendError> {
        // What has a slot of its own waits for a row, or for others who do.
        if Aside::is_aside(slot) || self.aside.is_locked(&mark.buckets) {
            return Some(BackendError::locked(STORE, self.deadline));
        }
        // As where a caller itself is late.
        let overdue = self.overdue.total().saturating_sub(mark.overdue);
        (overdue >= self.deadline / 2).then(|| BackendError::overloaded(STORE, self.deadline))
    }
}

/// What tells why an operation is late.
#[derive(Debug)]
pub(super) struct Mark {
    buckets: BucketHashes,
    /// How late this process had been by then in all, with what it writes and reads.
    overdue: Duration,
}

impl PostgresCarrier {
    /// The time by the clock of this process.
    pub(super) fn own_time(&self) -> Timestamp {
        #[cfg(test)]
        return self.clock.now();
        #[cfg(not(test))]
        SystemClock::new().now()
    }

    /// Waits until no row of a call is locked, and holds none meanwhile.
    ///
    /// # Errors
    ///
    /// If one is still locked when callers have to be answered. It is set aside.
    async fn wait_for_rows(&self, jobs: &[Job], request: &Request<'_>) -> Result<(), BackendError> {
        let time_left = self.time_left(jobs);
        let sick = match self.sick(request.names(), time_left, time_left).await {
            // The call itself tells more.
            Err(StatementError::Undone(_)) => return Ok(()),
            sick => sick.map_err(StatementError::into_error)?,
        };
        self.note_sick(jobs, request, &sick);
        match sick.iter().any(|place| *place > 0) {
            true => Err(BackendError::locked(STORE, self.deadline)),
            false => Ok(()),
        }
    }

    /// Sets the buckets aside by whose rows a call has failed. Returns whether there are none.
    async fn set_aside(&self, jobs: &[Job], request: &Request<'_>) -> bool {
        let row = common_lock_patience(self.deadline);
        match self.sick(request.names(), self.deadline / 2, row).await {
            Ok(sick) => self.note_sick(jobs, request, &sick),
            Err(told) => {
                // The table itself.
                if told.into_error().is_locked() {
                    self.aside.note_table();
                }
                false
            }
        }
    }

    /// Sets buckets aside, named as by [`sick`](Self::sick). Returns whether there are none.
    fn note_sick(&self, jobs: &[Job], request: &Request<'_>, sick: &[i32]) -> bool {
        for place in sick {
            let index = usize::try_from(place.unsigned_abs()).ok().and_then(|at| at.checked_sub(1));
            let Some(sick) = index.and_then(|index| request.names().get(index)) else { continue };
            let mut named = jobs.iter().flat_map(|job| job.operation.names());
            if let Some(name) = named.find(|name| name.as_ref() == *sick) {
                self.aside.note(name, *place > 0);
            }
        }
        sick.is_empty()
    }

    /// The places, from 1 on, of the buckets whose rows fail a call. Those that are not locked are
    /// below zero.
    async fn sick(
        &self,
        names: &[&[u8]],
        table: Duration,
        row: Duration,
    ) -> Result<Vec<i32>, StatementError> {
        let (table, row) = (millis(table), millis(row));
        let typed: [(&(dyn ToSql + Sync), Type); 3] =
            [(&names, Type::BYTEA_ARRAY), (&table, Type::INT4), (&row, Type::INT4)];
        let row = self.query(self.schema.sick(), false, &typed).await?;
        row.try_get(0).map_err(|error| StatementError::of(error, self.deadline))
    }

    /// Asks which of the rows of a call that has failed are there, and returns whether all are. If that
    /// fails as well, none are known.
    async fn find_rows(&self, jobs: &[Job], request: &Request<'_>) -> bool {
        let look = request.look();
        #[cfg(test)]
        let look = look.with_time(self.clock.now());
        let row = self.ask(&look, None).await.ok();
        let Some(answer) = row.as_ref().and_then(DecideRow::read) else { return false };
        self.note_found(jobs, request, &answer);
        request.places().iter().all(|place| answer.is_there(*place))
    }

    /// Notes which rows of a call were there.
    fn note_found(&self, jobs: &[Job], request: &Request<'_>, answer: &DecideRow) {
        let found = hashes(jobs).zip(request.places());
        let found = found.filter(|(_, place)| answer.is_there(**place));
        self.aside.note_found(found.map(|(bucket, _)| bucket));
    }

    /// How long a call of these jobs may wait for a lock, so that the first of their callers who has to
    /// be answered learns that it was one.
    fn time_left(&self, jobs: &[Job]) -> Duration {
        let first = jobs.iter().map(|job| job.deadline).min();
        let left = first.map(|first| first.saturating_duration_since(Instant::now()));
        left.unwrap_or_default().saturating_sub(self.margin())
    }

    /// The time that an answer needs.
    fn margin(&self) -> Duration {
        self.deadline / 5
    }

    /// Sends a request once. It waits so long for a lock, or else only a moment.
    async fn ask(
        &self,
        request: &Request<'_>,
        patience: Option<Duration>,
    ) -> Result<Row, StatementError> {
        let arguments: [(&(dyn ToSql + Sync), Type); 2] =
            [(&request.names(), Type::BYTEA_ARRAY), (&request.numbers(), Type::INT8_ARRAY)];
        let Some(patience) = patience.map(millis) else {
            return self.query(&self.common_call, self.prepares, &arguments).await;
        };
        let [names, numbers] = arguments;
        self.query(&self.patient_call, self.prepares, &[names, numbers, (&patience, Type::INT4)])
            .await
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
        let (names, numbers, patience): (&[&[u8]], &[i64], i32) = (&[], &[0, 0], 1);
        let typed: [(&(dyn ToSql + Sync), Type); 2] =
            [(&names, Type::BYTEA_ARRAY), (&numbers, Type::INT8_ARRAY)];
        connection.query_typed(&self.common_call, &typed).await?;
        let [names, numbers] = typed;
        let patience: (&(dyn ToSql + Sync), Type) = (&patience, Type::INT4);
        let typed = [names.clone(), numbers, patience.clone()];
        connection.query_typed(&self.patient_call, &typed).await?;
        let typed = [names, patience.clone(), patience];
        connection.query_typed(self.schema.sick(), &typed).await.map(drop)
    }

    /// How long an answer may take. It is longer than callers wait, so that a server which is
    /// merely slow keeps its connections, and is not sent more and more.
    pub(super) fn patience(&self) -> Duration {
        patience(self.deadline)
    }
}

/// The hashes of all buckets that these jobs name, in order.
fn hashes(jobs: &[Job]) -> impl Iterator<Item = u64> {
    jobs.iter().flat_map(|job| job.operation.names()).map(|name| name.own_hash())
}

/// The least time for which the server waits for a lock.
const TICK: Duration = Duration::from_millis(1);

/// How long an answer may take if callers wait until this deadline.
pub(super) fn patience(deadline: Duration) -> Duration {
    deadline.max(Duration::from_secs(1))
}

/// How long the server waits for a lock in a transaction of the caller, who waits until this deadline.
/// It is less, so that the caller learns that it was a lock.
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
