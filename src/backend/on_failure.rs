//! What happens to requests while the store fails.

/// What happens to requests while the store fails.
///
/// [`Admit`](Self::Admit) applies to outages only. Whatever is set here, a request is answered with
/// 503 if a client could cause the failure itself, since it could otherwise pass as often as it
/// likes:
///
/// * The store can never decide the request: its buckets are in several slots of a cluster, the
///   value under the name of a bucket is not a bucket, or the numbers are too large. This is logged
///   once.
/// * The decision is late because this process is busy, or because too many of its calls wait to be
///   sent, while the store does answer. A client causes that by flooding the process.
/// * A transaction of PostgreSQL holds the row of the bucket. A client causes that by requests whose
///   transactions decide (`Postgres::in_transaction`).
/// * The store has no room for the bucket. A client fills it by making up keys.
///
/// A misconfiguration, such as a wrong password, is answered with 503 as well: otherwise no limit
/// would count until an operator notices.
/// [`BackendError::is_outage`](crate::backend::BackendError::is_outage) defines an outage; the guides of
/// the stores have tables of their errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFailure {
    /// Requests are answered with 503, so none passes without being charged.
    #[default]
    #[doc(alias("fail_closed", "fail closed"))]
    Refuse,
    /// During an outage, requests pass without being charged. They are logged, and
    /// [counted](crate::RateLimiter::passed_uncounted).
    #[doc(alias("fail_open", "fail open", "passOnStoreError"))]
    Admit,
}
