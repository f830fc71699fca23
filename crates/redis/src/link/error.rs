//! The error of a call, worded for an operator.

use std::error::Error;
use std::fmt;
use std::io;

use ::redis::{ErrorKind, RedisError};

use super::failure::{Failure, code_and_detail};
use tollgate::backend::BackendError;

/// A message, and the error that caused it.
#[derive(Debug)]
pub(super) struct LinkError {
    text: String,
    cause: Option<LinkErrorCause>,
    failure: Failure,
    scattered: bool,
}

#[derive(Debug)]
enum LinkErrorCause {
    Link(Box<LinkError>),
    Io(io::Error),
    /// An input or output error.
    Client(RedisError),
    Backend(BackendError),
}

impl LinkError {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), cause: None, failure: Failure::Outage, scattered: false }
    }

    pub(super) fn with_text_cause(text: impl Into<String>, cause: impl Into<String>) -> Self {
        let cause = Box::new(Self::new(cause));
        Self { cause: Some(LinkErrorCause::Link(cause)), ..Self::new(text) }
    }

    pub(super) fn with_io_cause(text: impl Into<String>, cause: io::Error) -> Self {
        Self { cause: Some(LinkErrorCause::Io(cause)), ..Self::new(text) }
    }

    /// An error of the client library, which is no reply of a server. Its text is kept only if it
    /// comes from the system. Other texts quote what the server has sent, which may quote what was
    /// sent to it.
    pub(super) fn with_cause(text: impl Into<String>, cause: RedisError) -> Self {
        match cause.kind() {
            ErrorKind::Io => Self { cause: Some(LinkErrorCause::Client(cause)), ..Self::new(text) },
            _ => Self::with_text_cause(text, "it does not answer like a Redis server"),
        }
    }

    pub(super) fn with_backend_cause(text: impl Into<String>, cause: BackendError) -> Self {
        let failure = match cause.is_misconfigured() {
            true => Failure::Misconfigured,
            false => Failure::Outage,
        };
        Self { cause: Some(LinkErrorCause::Backend(cause)), failure, ..Self::new(text) }
    }

    /// Marks the error of a call with keys that are in several places for now.
    pub(super) const fn mark_scattered(mut self) -> Self {
        self.scattered = true;
        self
    }

    /// Whether the cause of an error has that mark.
    pub(super) fn is_scattered(error: &BackendError) -> bool {
        let error = error.cause().and_then(|cause| cause.downcast_ref::<Self>());
        error.is_some_and(|error| error.scattered)
    }

    /// An error reply of the server `name`, without the arguments that it quotes: they may hold a
    /// password or identify a client. Nor does the message show `secret`, however the reply quotes
    /// it.
    pub(super) fn reply(name: &str, error: &RedisError, secret: &str) -> Self {
        let (code, detail) = code_and_detail(error);
        let reply = match detail.split(", with args beginning with").next() {
            None | Some("") => code.to_owned(),
            Some(own) => format!("{code} {own}"),
        };
        // An empty text is found between any two letters.
        let reply = if secret.is_empty() { reply } else { reply.replace(secret, "..") };
        let (told, failure) = (printable(&reply), Failure::new(error));
        let way_out = failure.way_out(error);
        Self { failure, ..Self::new(format!("{name} answered `{told}`{way_out}")) }
    }
}

/// A text from a server, on one line of a bounded length.
fn printable(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(LONGEST_REPLY)
        .map(|letter| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter })
        .collect();
    if shown.len() < text.len() && text.chars().nth(LONGEST_REPLY).is_some() {
        shown.push_str("..");
    }
    shown
}

/// How many letters of an error reply are shown. Those of Redis are shorter.
const LONGEST_REPLY: usize = 300;

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for LinkError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self.cause.as_ref()? {
            LinkErrorCause::Link(cause) => Some(&**cause),
            LinkErrorCause::Io(cause) => Some(cause),
            // The client's error repeats its source in its own message.
            LinkErrorCause::Client(cause) => Some(cause.source().unwrap_or(cause)),
            // The message says already what the backend's error adds.
            LinkErrorCause::Backend(cause) => match cause.cause() {
                Some(cause) => Some(cause),
                None => Some(cause),
            },
        }
    }
}

impl From<LinkError> for BackendError {
    fn from(error: LinkError) -> Self {
        match error.failure {
            Failure::Outage => Self::unavailable("redis", error),
            Failure::Full => Self::full("redis", error),
            Failure::Misconfigured => Self::misconfigured("redis", error),
            Failure::Undecidable => Self::undecidable("redis", error),
        }
    }
}
