//! Why a request has no key.

use std::borrow::Cow;
use std::fmt;

/// A request without a key that can be used; the message says how to come by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError {
    message: Cow<'static, str>,
    kind: KeyErrorKind,
}

/// The later, the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum KeyErrorKind {
    Missing,
    Misconfigured,
    Empty,
    Invalid,
}

impl KeyError {
    /// The key is not there: the client left it out, or the server is misconfigured.
    ///
    /// The message goes to the log, not to the client: it should say how to fix the configuration.
    pub fn missing(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), kind: KeyErrorKind::Missing }
    }

    /// The key is not there because the server is misconfigured: no request could have it.
    ///
    /// It is [missing](Self::is_missing). It is logged once as an error, whatever happens to requests
    /// without a key, and as a warning where [another key](super::KeyExtractor::or) takes its place.
    pub fn misconfigured(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), kind: KeyErrorKind::Misconfigured }
    }

    /// The key is there but cannot be used: the client's fault.
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), kind: KeyErrorKind::Invalid }
    }

    /// The key is there but empty, which would be one bucket for all clients without one: as
    /// [`invalid`](Self::invalid), and the log warns of it once.
    pub fn empty(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), kind: KeyErrorKind::Empty }
    }

    /// Whether the key is not there at all.
    #[must_use]
    pub const fn is_missing(&self) -> bool {
        matches!(self.kind, KeyErrorKind::Missing | KeyErrorKind::Misconfigured)
    }

    /// Whether the key is not there, and no request could have it.
    #[must_use]
    pub const fn is_misconfigured(&self) -> bool {
        matches!(self.kind, KeyErrorKind::Misconfigured)
    }

    /// Whether the key is there, and empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        matches!(self.kind, KeyErrorKind::Empty)
    }

    pub(super) fn message(&self) -> Cow<'static, str> {
        self.message.clone()
    }

    /// Of two mistakes in one request, the client's own counts, or else the one that is sure.
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
