//! The connections of `sqlx` that can decide.

use std::time::Duration;

use sqlx::{AssertSqlSafe, PgConnection, Row as _, Transaction};

use super::connection::{PostgresConnection, unreadable};
use super::statement_error::StatementError;
use super::store_name::STORE;
use crate::backend::BackendError;

impl PostgresConnection for &mut PgConnection {
    async fn call(
        &mut self,
        call: &str,
        names: &[&[u8]],
        numbers: &[i64],
    ) -> Result<(i64, Vec<i64>), BackendError> {
        // Nothing of it comes from a request: the schema is the only part that is not constant, and
        // `SchemaName` has checked it.
        let query = sqlx::query(AssertSqlSafe(call));
        // The connection is the application's: it keeps no statement of ours.
        let query = query.persistent(false).bind(names).bind(numbers);
        let row = query.fetch_optional(&mut **self).await.map_err(failed)?;
        let row = row.ok_or_else(unreadable)?;
        Ok((row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?))
    }
}

impl PostgresConnection for &mut Transaction<'_, sqlx::Postgres> {
    async fn call(
        &mut self,
        call: &str,
        names: &[&[u8]],
        numbers: &[i64],
    ) -> Result<(i64, Vec<i64>), BackendError> {
        let mut connection: &mut PgConnection = self;
        PostgresConnection::call(&mut connection, call, names, numbers).await
    }
}

fn failed(error: sqlx::Error) -> BackendError {
    let said = error.as_database_error().and_then(|told| {
        let code = told.code()?.into_owned();
        Some((code, told.message().to_owned()))
    });
    match said {
        Some((code, said)) => {
            StatementError::of_code(&code, &said, error, Duration::ZERO).into_error()
        }
        None => BackendError::unavailable(STORE, error),
    }
}
