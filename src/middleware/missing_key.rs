//! What happens to a request whose key is missing.

use std::borrow::Cow;

use http::StatusCode;

use crate::key::KeyError;

/// What happens to a request whose key [is missing](crate::key::KeyError::missing).
///
/// A key that is there but cannot be used is the client's fault: 400, whatever this says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// It is answered with this status; 500 if nothing else is set.
    ///
    /// With debug assertions (`cargo run`, `cargo test`), the body of a 500 says which key is missing and
    /// the way out, as the log does; in release builds it tells the client nothing.
    Reject(StatusCode),
    /// It passes without being charged to this limit.
    Exempt,
    /// It pays from the bucket of all requests that have no key.
    Shared,
}

/// A request without a usable key, which is not to run.
pub(super) struct NoKey {
    pub(super) status: StatusCode,
    /// What the body says of it.
    pub(super) detail: Option<Cow<'static, str>>,
}

impl NoKey {
    pub(super) fn new(status: StatusCode, error: &KeyError) -> Self {
        // Most tests install no log. Any other status was chosen for clients, and so is its body.
        let is_told = cfg!(debug_assertions) && error.is_missing() && status.is_server_error();
        Self { status, detail: is_told.then(|| error.message()) }
    }
}
