//! The error of a request without a usable key.

use std::borrow::Cow;
use std::fmt;

/// The error of a request without a usable key.
///
/// Errors are equal if they are of one kind and say the same.
#[derive(Clone)]
pub struct KeyError {
    words: Words,
    kind: KeyErrorKind,
}

/// What an error says.
#[derive(Clone)]
enum Words {
    Text(Cow<'static, str>),
    /// Of something with this name. It is worded where it is shown: of the requests that lack a key,
    /// many pass or have another one.
    Of(Box<str>, fn(&str) -> String),
}

/// In ascending order of severity: a tuple reports the worst error of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum KeyErrorKind {
    Missing,
    Misconfigured,
    Empty,
    Invalid,
}

impl KeyError {
    /// The key is missing, which may be due to the client or to a misconfiguration.
    ///
    /// The message goes to the log and should say how to fix the configuration. Clients do not see
    /// it, except in builds with debug assertions, where a layer adds it to the body of a 500.
    pub fn missing(message: impl Into<Cow<'static, str>>) -> Self {
        Self { words: Words::Text(message.into()), kind: KeyErrorKind::Missing }
    }

    /// As [`missing`](Self::missing), with words about a name.
    pub(super) fn missing_named(name: &str, words: fn(&str) -> String) -> Self {
        Self { words: Words::Of(name.into(), words), kind: KeyErrorKind::Missing }
    }

    /// The key is missing because of a misconfiguration, so that no request can have it.
    ///
    /// [`is_missing`](Self::is_missing) is true for it too. It is logged once: as an error,
    /// whatever `missing_key` is set to, or as a warning if [another key](super::KeyExtractor::or)
    /// takes its place.
    pub fn misconfigured(message: impl Into<Cow<'static, str>>) -> Self {
        Self { words: Words::Text(message.into()), kind: KeyErrorKind::Misconfigured }
    }

    /// The key is present but cannot be used, because the request is malformed.
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self { words: Words::Text(message.into()), kind: KeyErrorKind::Invalid }
    }

    /// The key is present but empty; all requests without a name would share one bucket.
    ///
    /// It is handled like an [`invalid`](Self::invalid) key, and logged once as a warning.
    pub fn empty(message: impl Into<Cow<'static, str>>) -> Self {
        Self { words: Words::Text(message.into()), kind: KeyErrorKind::Empty }
    }

    /// Whether the key is missing.
    #[must_use]
    pub const fn is_missing(&self) -> bool {
        matches!(self.kind, KeyErrorKind::Missing | KeyErrorKind::Misconfigured)
    }

    /// Whether the key is missing because of a misconfiguration, so that no request can have it.
    #[must_use]
    pub const fn is_misconfigured(&self) -> bool {
        matches!(self.kind, KeyErrorKind::Misconfigured)
    }

    /// Whether the key is present but empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        matches!(self.kind, KeyErrorKind::Empty)
    }

    pub(crate) fn message(&self) -> Cow<'static, str> {
        match &self.words {
            Words::Text(text) => text.clone(),
            Words::Of(name, words) => words(name).into(),
        }
    }

    /// Of two errors in one request, a mistake of the client is reported rather than a
    /// misconfiguration.
    pub(super) fn is_worse_than(&self, other: &Self) -> bool {
        self.kind > other.kind
    }
}

impl PartialEq for KeyError {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.message() == other.message()
    }
}

impl Eq for KeyError {}

impl fmt::Debug for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut error = f.debug_struct("KeyError");
        error.field("message", &self.message()).field("kind", &self.kind).finish()
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}

impl std::error::Error for KeyError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_worded_where_it_is_shown() {
        let silent = KeyError::missing_named("x-user", |_| {
            panic!("an error that is not shown is not worded")
        });
        assert!(silent.clone().is_missing() && !silent.is_misconfigured() && !silent.is_empty());
        let shown = KeyError::missing_named("x-user", |name| format!("no `{name}`"));
        assert_eq!(shown.to_string(), "no `x-user`");
        assert_eq!(shown, KeyError::missing("no `x-user`"));
        assert_ne!(shown, KeyError::invalid("no `x-user`"));
    }
}
