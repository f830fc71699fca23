//! Decisions of tollgate inside the transactions of [`sqlx`] on PostgreSQL.
//!
//! The store is that of `tollgate-postgres`. [`Sqlx`] lets it decide on a connection of `sqlx`, so that
//! the tokens are taken if, and only if, the transaction commits. The
//! [guide](https://docs.rs/tollgate-postgres/latest/tollgate_postgres/guide/index.html) says when that is worth it.

#![warn(clippy::unwrap_used, clippy::expect_used)]
#![cfg_attr(not(test), warn(clippy::as_conversions, clippy::indexing_slicing))]
#![cfg_attr(docsrs, feature(doc_cfg))]

use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use tollgate::backend::BackendError;
use tollgate_postgres::PostgresConnection;
use tollgate_postgres::kit::{error_of, unreadable};

/// A connection of `sqlx` on which [`Postgres::in_transaction`] decides.
///
/// [`Postgres::in_transaction`]: tollgate_postgres::Postgres::in_transaction
///
/// # Examples
///
/// ```no_run
/// use sqlx::PgPool;
/// use tollgate::{HOUR, Limit, Quota, RateLimiter};
/// use tollgate_postgres::Postgres;
/// use tollgate_sqlx::Sqlx;
///
/// const ORDERS: Limit = Limit::new("orders", Quota::token_bucket(10, HOUR));
///
/// async fn order(
///     pool: &PgPool,
///     store: &Postgres,
///     limiter: &RateLimiter,
///     user: &str,
/// ) -> Result<(), Box<dyn std::error::Error>> {
///     let mut transaction = pool.begin().await?;
///     sqlx::query("INSERT INTO orders (user_name) VALUES ($1)")
///         .bind(user)
///         .execute(&mut *transaction)
///         .await?;
///     store
///         .in_transaction(Sqlx::new(&mut transaction), async |store| {
///             limiter.with_backend(store).limit(&ORDERS).key(user).await.map(drop)
///         })
///         .await?;
///     // Without this line, neither the order is stored nor is a token taken.
///     transaction.commit().await?;
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Sqlx<'c>(&'c mut PgConnection);

impl<'c> Sqlx<'c> {
    /// Decides on this connection; a transaction and a connection of a pool lend theirs.
    #[must_use]
    pub const fn new(connection: &'c mut PgConnection) -> Self {
        Self(connection)
    }
}

impl PostgresConnection for Sqlx<'_> {
    async fn call(
        &mut self,
        call: &str,
        names: &[&[u8]],
        numbers: &[i64],
    ) -> Result<(i64, Vec<i64>), BackendError> {
        // Nothing of it comes from a request: the schema is the only part that is not constant, and
        // the store has checked it.
        let query = sqlx::query(AssertSqlSafe(call));
        // The connection is the application's: it keeps no statement of ours.
        let query = query.persistent(false).bind(names).bind(numbers);
        let row = query.fetch_optional(&mut *self.0).await.map_err(failed)?;
        let row = row.ok_or_else(unreadable)?;
        Ok((row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?))
    }
}

fn failed(error: sqlx::Error) -> BackendError {
    let told = error.as_database_error();
    let said = told.and_then(|told| Some((told.code()?.into_owned(), told.message().to_owned())));
    error_of(said.as_ref().map(|(code, said)| (code.as_str(), said.as_str())), error)
}
