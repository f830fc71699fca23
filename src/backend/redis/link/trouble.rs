//! Why there is no answer, as an operator reads it.

use std::error::Error;
use std::fmt;

use ::redis::RedisError;

use crate::backend::BackendError;

/// What went wrong, and the client's own error behind it.
#[derive(Debug)]
pub(super) struct Trouble {
    text: String,
    cause: Option<Cause>,
    scattered: bool,
}

#[derive(Debug)]
enum Cause {
    Client(RedisError),
    Backend(BackendError),
}

impl Trouble {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), cause: None, scattered: false }
    }

    pub(super) fn caused(text: impl Into<String>, cause: RedisError) -> Self {
        Self { cause: Some(Cause::Client(cause)), ..Self::new(text) }
    }

    pub(super) fn because(text: impl Into<String>, cause: BackendError) -> Self {
        Self { cause: Some(Cause::Backend(cause)), ..Self::new(text) }
    }

    /// Says that the keys of the call are in several places for now.
    pub(super) const fn scattered(mut self) -> Self {
        self.scattered = true;
        self
    }

    /// Whether that is why an error was told.
    pub(super) fn is_scattered(error: &BackendError) -> bool {
        let trouble = error.source().and_then(|source| source.downcast_ref::<Self>());
        trouble.is_some_and(|trouble| trouble.scattered)
    }

    /// An error reply of the server `name`, in its own words, without those that it was asked in: these
    /// may be the password, or who a client is.
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

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Trouble {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self.cause.as_ref()? {
            // The client's error speaks for its own source, and has it as its source nevertheless.
            Cause::Client(cause) => Some(cause.source().unwrap_or(cause)),
            // What a backend's error adds has been said.
            Cause::Backend(cause) => Some(cause.source().unwrap_or(cause)),
        }
    }
}

impl From<Trouble> for BackendError {
    fn from(trouble: Trouble) -> Self {
        Self::unavailable("redis", trouble)
    }
}
