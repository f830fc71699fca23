//! Where a list goes on.

use std::error::Error;
use std::fmt;

use crate::backend::BackendError;
use crate::clock::excerpt;

/// Where a list of debtors goes on: printable ASCII, of which only the store knows the meaning.
///
/// It is text so that it can go through a client and come back: through a query of a URL, say, where
/// it has to be percent-encoded. A store reads no bucket of another limit for it, whatever it says.
///
/// # Examples
///
/// ```
/// use tollgate::backend::DebtorCursor;
///
/// let cursor = DebtorCursor::new("5461.17");
/// assert_eq!(cursor.as_str(), "5461.17");
/// assert_eq!(cursor, DebtorCursor::from(cursor.to_string()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DebtorCursor(Box<str>);

impl DebtorCursor {
    /// A cursor with this text.
    #[must_use]
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The text.
    #[must_use]
    pub const fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DebtorCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for DebtorCursor {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<&str> for DebtorCursor {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

/// A cursor that the store has not made.
#[derive(Debug)]
struct UnknownCursor {
    text: Box<str>,
}

impl fmt::Display for UnknownCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a cursor of this list (use the one of a page of the same limit, or none \
             for the first page)",
            self.text
        )
    }
}

impl Error for UnknownCursor {}

impl BackendError {
    /// The store has not made this cursor. It is no [outage](Self::is_outage).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::backend::{BackendError, DebtorCursor};
    ///
    /// let error = BackendError::unknown_cursor("files", &DebtorCursor::new("x"));
    /// assert!(error.is_unknown_cursor() && !error.is_outage());
    /// assert_eq!(
    ///     error.to_string(),
    ///     "files backend can never decide this: `x` is not a cursor of this list (use the one of a \
    ///      page of the same limit, or none for the first page)"
    /// );
    /// ```
    #[must_use]
    pub fn unknown_cursor(backend: &'static str, cursor: &DebtorCursor) -> Self {
        Self::undecidable(backend, UnknownCursor { text: excerpt(cursor.as_str()) })
    }

    /// Whether the call named a cursor that the store has not made.
    #[must_use]
    pub fn is_unknown_cursor(&self) -> bool {
        self.cause().is_some_and(|cause| cause.is::<UnknownCursor>())
    }
}
