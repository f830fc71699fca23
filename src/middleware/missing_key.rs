//! What happens to a request without a key.

use std::borrow::Cow;

use http::StatusCode;

use crate::key::KeyError;

/// What happens to a request if its key [is missing](crate::key::KeyError::missing).
///
/// A key that is present but cannot be used is a mistake of the client. Such a request is answered
/// with 400, whatever is set here.
#[doc(alias("UnableToExtractKey", "anonymous"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// The request is answered with this status; 500 by default.
    ///
    /// With debug assertions (`cargo run`, `cargo test`), the body of a 500 says which key is
    /// missing and the way out, as the log does. In release builds it tells the client nothing.
    Reject(StatusCode),
    /// The request passes without being charged to this limit.
    Exempt,
    /// The request takes its tokens from one bucket for all requests without a key.
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
