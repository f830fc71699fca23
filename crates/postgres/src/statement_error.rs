//! What an error of the server means for a decision.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use deadpool_postgres::PoolError;
use tokio_postgres::error::{DbError, SqlState};

use super::store_name::STORE;
use tollgate::backend::BackendError;

/// Why a call has no answer.
#[derive(Debug)]
pub(super) enum StatementError {
    /// The server has undone the call because of other transactions. It can be sent again.
    Undone(BackendError),
    /// The call failed by a row, or by the lock of one, and can be sent again without it.
    Row(BackendError),
    /// The connection has to be made again.
    Lost(BackendError),
    /// The call failed, and the connection can be used again.
    Failed(BackendError),
}

/// The error of a statement that failed on a connection of the application, by what its client says of
/// the error: the server's code and message, if it is one of the server.
pub fn error_of(
    said: Option<(&str, &str)>,
    error: impl Into<Box<dyn Error + Send + Sync>>,
) -> BackendError {
    match said {
        Some((code, said)) => {
            StatementError::of_code(code, said, error, Duration::ZERO).into_error()
        }
        None => BackendError::unavailable(STORE, error),
    }
}

impl StatementError {
    pub(super) fn into_error(self) -> BackendError {
        match self {
            Self::Undone(error) | Self::Row(error) | Self::Lost(error) | Self::Failed(error) => {
                error
            }
        }
    }

    /// What an error of a statement means. `within` is how long a call may take.
    pub(super) fn of(error: tokio_postgres::Error, within: Duration) -> Self {
        let Some(code) = error.code().cloned() else {
            return Self::Lost(BackendError::unavailable(STORE, error));
        };
        let said = message(&error);
        // Beyond a quota or a limit, no file grows either, and the server has no code of its own for that.
        let routine = error.as_db_error().and_then(DbError::routine);
        let grows = routine.is_some_and(|name| name.starts_with("md") && name.ends_with("extend"));
        let code = if grows { DISK_FULL } else { code.code() };
        Self::of_code(code, &said, error, within)
    }

    /// What an error of the server means, by its code and its message.
    pub(super) fn of_code(
        code: &str,
        said: &str,
        error: impl Into<Box<dyn Error + Send + Sync>>,
        within: Duration,
    ) -> Self {
        match code {
            // Serialization failure, deadlock.
            "40001" | "40P01" => Self::Undone(BackendError::unavailable(STORE, error)),
            // Cancelled by a timeout.
            "57014" => Self::Failed(BackendError::timeout(STORE, within)),
            // A lock was not to be had in time.
            "55P03" => Self::Row(BackendError::locked(STORE, within)),
            DISK_FULL => Self::Failed(BackendError::full(STORE, error)),
            // An earlier statement of the transaction has failed.
            "25P02" => Self::Lost(BackendError::unavailable(STORE, error)),
            // The server has become a standby, which cannot write, nor read an unlogged table.
            "25006" | "0A000" => Self::Lost(BackendError::unavailable(STORE, error)),
            // No such schema, function or table.
            "3F000" | "42883" | "42P01" => Self::Failed(misconfigured(said, NO_SCHEMA)),
            // Objects of others: no such column, or others of these names.
            // Constraints of others, or none of ours.
            "42703" | "42710" | "42809" | "42P07" | "42P10" | "42P13" | "23502" | "23505" => {
                Self::Failed(misconfigured(said, FOREIGN_SCHEMA))
            }
            // A column of another type. The functions of a connection keep the type that they have seen.
            "42804" => Self::Lost(misconfigured(said, FOREIGN_SCHEMA)),
            // Numbers that no bucket has: out of range, a division by zero, a check.
            "22003" | "22012" | "23514" => Self::Row(misconfigured(said, FOREIGN_NUMBERS)),
            // No right to it, or a row that a policy refuses.
            "42501" => Self::Row(misconfigured(said, NO_RIGHTS)),
            "TOLLH" => Self::Row(misconfigured(said, HIDDEN)),
            // No such prepared statement, or one of this name already.
            "26000" | "42P05" => Self::Lost(misconfigured(said, POOLER)),
            class if is_outage(class) => Self::Lost(BackendError::unavailable(STORE, error)),
            // The message alone: the details of an error may quote a row, and with it a key.
            _ => Self::Failed(BackendError::misconfigured(STORE, format!("{said} ({code})"))),
        }
    }

    /// What an error on the way to a connection means.
    pub(super) fn of_pool(error: PoolError, within: Duration) -> Self {
        match error {
            PoolError::Timeout(_) => Self::Lost(BackendError::timeout(STORE, within)),
            PoolError::Backend(error) => Self::Lost(of_connect(error)),
            error => Self::Lost(BackendError::unavailable(STORE, error)),
        }
    }
}

/// What an error while connecting means.
fn of_connect(error: tokio_postgres::Error) -> BackendError {
    match error.code().map(SqlState::code) {
        None => BackendError::unavailable(STORE, error),
        // A pooler refuses the settings of a connection that it cannot keep.
        Some("08P01") => misconfigured(&message(&error), POOLER),
        Some(code) if is_outage(code) => BackendError::unavailable(STORE, error),
        Some(_) => BackendError::misconfigured(STORE, error),
    }
}

const DISK_FULL: &str = "53100";

/// Whether the server or the network is down, or the server is too busy.
fn is_outage(code: &str) -> bool {
    matches!(code.get(..2), Some("08" | "53" | "57" | "58"))
}

/// The error of a schema that is not there, or of an earlier version.
pub(super) fn no_schema() -> BackendError {
    BackendError::misconfigured(STORE, NO_SCHEMA)
}

const NO_SCHEMA: &str = "the schema of the store is missing or of another version: connect \
     once as a role that may make it, or run its files";
const FOREIGN_SCHEMA: &str = "the schema has objects of another program or role: name another \
     one by `PostgresBuilder::schema`, or migrate as the role that made it";
const FOREIGN_NUMBERS: &str = "a row of the table holds numbers that are not those of a bucket, or \
     the clock of the server is wrong: delete the row, or set the clock";
const HIDDEN: &str = "give the owner of the table a policy that shows it all rows, or set none";
const NO_RIGHTS: &str = "the role needs USAGE on the schema, SELECT on its table `versions` and \
     EXECUTE on its functions; to make the schema, it needs CREATE on the database";
const POOLER: &str = "behind a pooler such as PgBouncer, set `PostgresBuilder::through_pooler`";

fn misconfigured(said: &str, hint: &str) -> BackendError {
    BackendError::misconfigured(STORE, format!("{said} ({hint})"))
}

/// What a row is charged with may be what fails a call: a trigger or a check of others. Then the row
/// itself shows nothing.
#[derive(Debug)]
struct UnnamedRow(BackendError);

impl fmt::Display for UnnamedRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.cause() {
            Some(cause) => write!(f, "{cause}"),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Error for UnnamedRow {}

/// The error of a call that failed by a row that the server does not name.
pub(super) fn of_unnamed_row(error: BackendError) -> BackendError {
    BackendError::misconfigured(STORE, UnnamedRow(error))
}

pub(super) fn is_of_unnamed_row(error: &BackendError) -> bool {
    error.cause().is_some_and(|cause| cause.is::<UnnamedRow>())
}

/// What the server said.
fn message(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
}
