//! The connections of the application that can decide, by their clients.

use std::time::Duration;

use tokio_postgres::GenericClient;
use tokio_postgres::types::{ToSql, Type};

use super::statement_error::StatementError;
use super::store_name::STORE;
use tollgate::backend::BackendError;

/// A connection, or a transaction, on which [`Postgres::in_transaction`] decides.
///
/// It is implemented for
///
/// * shared references to the clients and transactions of `tokio-postgres`; a transaction of
///   `deadpool-postgres` is passed as `&*transaction`;
/// * `tollgate_sqlx::Sqlx`, for the connections and transactions of `sqlx`.
///
/// [`Postgres::in_transaction`]: super::Postgres::in_transaction
pub trait PostgresConnection {
    /// Calls the function of the schema: `call` is a statement with two parameters, of the types
    /// `bytea[]` and `bigint[]`. Returns the two columns of its only row.
    fn call(
        &mut self,
        call: &str,
        names: &[&[u8]],
        numbers: &[i64],
    ) -> impl Future<Output = Result<(i64, Vec<i64>), BackendError>> + Send;
}

impl<C: GenericClient + Sync> PostgresConnection for &C {
    async fn call(
        &mut self,
        call: &str,
        names: &[&[u8]],
        numbers: &[i64],
    ) -> Result<(i64, Vec<i64>), BackendError> {
        let typed: [(&(dyn ToSql + Sync), Type); 2] =
            [(&names, Type::BYTEA_ARRAY), (&numbers, Type::INT8_ARRAY)];
        // The statement is not prepared: the connection is the application's.
        let failed = |error| StatementError::of(error, Duration::ZERO).into_error();
        let rows = self.query_typed(call, &typed).await.map_err(failed)?;
        let row = rows.first().ok_or_else(unreadable)?;
        Ok((row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?))
    }
}

/// The error of an answer that is not that of the function.
#[must_use]
pub fn unreadable() -> BackendError {
    BackendError::unavailable(STORE, "the answer of the function cannot be read")
}
