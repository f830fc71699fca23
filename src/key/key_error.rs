//! Why a request has no key.

use std::borrow::Cow;
use std::fmt;

/// Why a request has no usable key; the message says how to get one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError {
    message: Cow<'static, str>,
    kind: KeyErrorKind,
}

/// In ascending order of severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum KeyErrorKind {
    Missing,
    Misconfigured,
    Empty,
    Invalid,
}

impl KeyError {
    /// The key is missing, because of the request or because of a misconfiguration.
    ///
    /// The message goes to the log: it should say how to fix the configuration. Clients do not read it,
    /// but for builds with debug assertions: there a layer adds it to the body of a 500.
    pub fn missing(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), kind: KeyErrorKind::Missing }
    }

    /// The key is missing because of a misconfiguration: no request could have it.
    ///
    /// [`is_missing`](Self::is_missing) is true for it too. It is logged once: as an error, however
    /// requests without a key are handled, or as a warning if [another
    /// key](super::KeyExtractor::or) takes its place.
    pub fn misconfigured(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), kind: KeyErrorKind::Misconfigured }
    }

    /// The key is there but cannot be used: the request is malformed.
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), kind: KeyErrorKind::Invalid }
    }

    /// The key is there but empty, so that all requests without a name would share one bucket.
    ///
    /// It is handled like an [`invalid`](Self::invalid) key, and logged once as a warning.
    pub fn empty(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), kind: KeyErrorKind::Empty }
    }

    /// Whether the key is missing.
    #[must_use]
    pub const fn is_missing(&self) -> bool {
        matches!(self.kind, KeyErrorKind::Missing | KeyErrorKind::Misconfigured)
    }

    /// Whether the key is missing because of a misconfiguration, so that no request could have it.
    #[must_use]
    pub const fn is_misconfigured(&self) -> bool {
        matches!(self.kind, KeyErrorKind::Misconfigured)
    }

    /// Whether the key is there but empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        matches!(self.kind, KeyErrorKind::Empty)
    }

    pub(crate) fn message(&self) -> Cow<'static, str> {
        self.message.clone()
    }

    /// Of two errors in one request, the client's own is reported; without one, a misconfiguration.
    pub(super) fn is_worse_than(&self, other: &Self) -> bool {
        self.kind > other.kind
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for KeyError {}
