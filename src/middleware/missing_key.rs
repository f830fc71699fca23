//! What happens to a request whose key is missing.

use http::StatusCode;

/// What happens to a request whose key [is missing](crate::key::KeyError::missing).
///
/// A key that is there but cannot be used is the client's fault: 400, whatever this says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// It is answered with this status; 500 if nothing else is set.
    Reject(StatusCode),
    /// It passes without being charged to this limit.
    Exempt,
    /// It pays from the bucket of all requests that have no key.
    Shared,
}
