//! Takes a batch of operations to the server, by one call of the function.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::lent::Lent;
use super::request::{DecideRow, Request};
use super::schema::Schema;
use super::statement_error::StatementError;
use super::store_name::STORE;
use super::sweep::Sweeper;
use crate::backend::BackendError;
use crate::backend::remote::batch::{Carrier, Job};
use crate::backend::remote::replay::Replay;
use crate::backend::remote::store_time::StoreTime;
#[cfg(not(test))]
use crate::clock::SystemClock;
use crate::clock::{Clock, Timestamp};

/// Calls the function on the connections of a pool.
pub(super) struct PostgresCarrier {
    pub(super) pool: Pool,
    pub(super) time: StoreTime,
    pub(super) schema: Schema,
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

    async fn call(&self, jobs: &[Job]) -> Result<Replay, BackendError> {
        let mut timed = self.time.begin(self.own_time());
        loop {
            let operations = jobs.iter().map(|job| &*job.operation);
            let request = Request::new(operations, timed.around());
            #[cfg(test)]
            let request = request.with_time(self.clock.now());
            let row = match self.ask(&request).await {
                // The server has carried out nothing.
                Err(StatementError::Undone(_)) => self.ask(&request).await,
                answer => answer,
            };
            let row = row.map_err(StatementError::into_error)?;
            self.sweeper.note(request.names().len(), &self.pool, &self.schema);
            let unread =
                || BackendError::unavailable(STORE, "the answer of the function cannot be read");
            let answer = DecideRow::read(&row).ok_or_else(unread)?;
            match request.outside(&answer) {
                Some(now) => timed.outside(STORE, now)?,
                None => return request.replay(&answer).ok_or_else(unread),
            }
        }
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

    /// Sends a request once. A connection that is lost, or that does not answer, leaves the pool.
    async fn ask(&self, request: &Request<'_>) -> Result<Row, StatementError> {
        let mut lent = Lent::default();
        let answer = timeout(self.patience(), async {
            let connection = self.pool.get().await;
            let connection =
                connection.map_err(|error| StatementError::of_pool(error, self.deadline))?;
            let connection = lent.keep(connection);
            let call = self.schema.call();
            let arguments: [&(dyn ToSql + Sync); 2] = [&request.names(), &request.numbers()];
            let answer = if self.prepares {
                match connection.prepare_cached(call).await {
                    Ok(statement) => connection.query_one(&statement, &arguments).await,
                    Err(error) => Err(error),
                }
            } else {
                let [names, numbers] = arguments;
                let typed = [(names, Type::BYTEA_ARRAY), (numbers, Type::INT8_ARRAY)];
                let rows = connection.query_typed(call, &typed).await;
                return match rows.map(|rows| rows.into_iter().next()) {
                    Ok(Some(row)) => Ok(row),
                    Ok(None) => {
                        Err(StatementError::Failed(BackendError::internal(STORE, "no row")))
                    }
                    Err(error) => Err(StatementError::of(error, self.deadline)),
                };
            };
            answer.map_err(|error| {
                connection.statement_cache.clear();
                StatementError::of(error, self.deadline)
            })
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

    /// Makes a call that names no bucket: it shows whether the function is there, and may be called.
    pub(super) async fn try_out(&self, connection: &Client) -> Result<(), tokio_postgres::Error> {
        let (names, numbers): (&[&[u8]], &[i64]) = (&[], &[0, 0]);
        let typed: [(&(dyn ToSql + Sync), Type); 2] =
            [(&names, Type::BYTEA_ARRAY), (&numbers, Type::INT8_ARRAY)];
        connection.query_typed(self.schema.call(), &typed).await.map(drop)
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

impl fmt::Debug for PostgresCarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresCarrier")
            .field("schema", &self.schema)
            .field("prepares", &self.prepares)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
