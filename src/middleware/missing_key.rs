//! What happens to a request whose key is missing.

use http::StatusCode;

/// What happens to a request whose key [is missing](crate::key::KeyError::missing).
///
/// A key that is present but cannot be used is a mistake of the client. Such a request is answered
/// with 400, whatever is set here.
#[doc(alias("UnableToExtractKey", "anonymous"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// The request is answered with this status; 500 by default.
    Reject(StatusCode),
    /// The request passes without being charged to this limit.
    Exempt,
    /// The request takes its tokens from one bucket for all requests without a key.
    Shared,
}
