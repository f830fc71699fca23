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
    /// The key is not there: perhaps the request's fault, perhaps the set-up's.
    ///
    /// The message goes to the log, not to the client: it should say how to mend the set-up.
    pub fn missing(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), kind: KeyErrorKind::Missing }
    }

    /// The key is not there, and surely the set-up's fault: no request could have it.
    ///
    /// It is [missing](Self::is_missing), and the log tells it once as an error, whatever becomes of
    /// requests without a key; and as a warning where [another key](KeyExtractor::or) takes its place.
    pub fn misconfigured(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), kind: KeyErrorKind::Misconfigured }
    }

    /// The key is there but no key: surely the request's fault.
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), kind: KeyErrorKind::Invalid }
    }

    /// The key is there but empty, which would be one bucket for all who have none: as
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
