//! The error of a text that cannot be read.

use std::fmt;

/// The error of a text that is not a quota, an instant, a key or a network. The message quotes the
/// text, cut to a readable length, and says what to write.
///
/// # Examples
///
/// ```
/// use tollgate::Timestamp;
///
/// let error = "2026-01-31 12:00".parse::<Timestamp>().unwrap_err();
/// assert!(error.to_string().starts_with("`2026-01-31 12:00` is not a time in UTC"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    message: Box<str>,
}

impl ParseError {
    pub(crate) fn new(message: String) -> Self {
        Self { message: message.into() }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ParseError {}
