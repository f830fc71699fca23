//! The error of a cursor that no page has.

use std::error::Error;
use std::fmt;

use crate::backend::BackendError;
use crate::clock::excerpt;

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
    /// use tollgate::backend::BackendError;
    ///
    /// let error = BackendError::unknown_cursor("files", "x");
    /// assert!(error.is_unknown_cursor() && !error.is_outage());
    /// assert_eq!(
    ///     error.to_string(),
    ///     "files backend can never decide this: `x` is not a cursor of this list (use the one of a \
    ///      page of the same limit, or none for the first page)"
    /// );
    /// ```
    #[must_use]
    pub fn unknown_cursor(backend: &'static str, cursor: &str) -> Self {
        Self::undecidable(backend, UnknownCursor { text: excerpt(cursor) })
    }

    /// Whether the call named a cursor that the store has not made.
    #[must_use]
    pub fn is_unknown_cursor(&self) -> bool {
        self.cause().is_some_and(|cause| cause.is::<UnknownCursor>())
    }
}
