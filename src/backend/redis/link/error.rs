//! The error of a call, in words for an operator.

use std::error::Error;
use std::fmt;

use ::redis::RedisError;

use crate::backend::BackendError;

/// A message, and the error that caused it.
#[derive(Debug)]
pub(super) struct LinkError {
    text: String,
    cause: Option<LinkErrorCause>,
    scattered: bool,
}

#[derive(Debug)]
enum LinkErrorCause {
    Client(RedisError),
    Backend(BackendError),
}

impl LinkError {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), cause: None, scattered: false }
    }

    pub(super) fn with_cause(text: impl Into<String>, cause: RedisError) -> Self {
        Self { cause: Some(LinkErrorCause::Client(cause)), ..Self::new(text) }
    }

    pub(super) fn with_backend_cause(text: impl Into<String>, cause: BackendError) -> Self {
        Self { cause: Some(LinkErrorCause::Backend(cause)), ..Self::new(text) }
    }

    /// Marks the error of a call whose keys are in several places for now.
    pub(super) const fn scattered(mut self) -> Self {
        self.scattered = true;
        self
    }

    /// Whether that mark is on the cause of an error.
    pub(super) fn is_scattered(error: &BackendError) -> bool {
        let error = error.source().and_then(|source| source.downcast_ref::<Self>());
        error.is_some_and(|error| error.scattered)
    }

    /// An error reply of the server `name`, without the arguments that it quotes: they may hold a
    /// password or identify a client.
    pub(super) fn reply(name: &str, error: &RedisError) -> Self {
        let code = error.code().unwrap_or("ERR");
        let own =
            |detail: &str| detail.split(", with args beginning with").next().map(str::to_owned);
        Self::new(match error.detail().and_then(own) {
            Some(detail) => format!("{name} answered `{code} {detail}`"),
            None => format!("{name} answered `{code}`"),
        })
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for LinkError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self.cause.as_ref()? {
            // The client's error repeats its source in its own message.
            LinkErrorCause::Client(cause) => Some(cause.source().unwrap_or(cause)),
            // The message says already what the backend's error adds.
            LinkErrorCause::Backend(cause) => Some(cause.source().unwrap_or(cause)),
        }
    }
}

impl From<LinkError> for BackendError {
    fn from(error: LinkError) -> Self {
        Self::unavailable("redis", error)
    }
}
