//! What a response says, as numbers.

use std::fmt;
use std::time::Duration;

use http::HeaderName;

use super::{ASSUMED_RESET, ASSUMED_WAIT};

/// What a response says about the limits of its server; made by [`read`](super::read).
///
/// See the [module docs](super) for an example.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    pub(super) limits: Vec<LimitReading>,
    pub(super) is_refused: bool,
    pub(super) retry_after: Option<Duration>,
    pub(super) is_final: bool,
    pub(super) scope: RefusalScope,
    pub(super) unreadable: Vec<Unreadable>,
}

impl Reading {
    /// The limits that the response names, eight at most.
    #[must_use]
    pub fn limits(&self) -> &[LimitReading] {
        &self.limits
    }

    /// Whether the status, of HTTP or of gRPC, refuses the request.
    #[must_use]
    pub const fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// How long to wait before the request is sent again, if it was refused and the response tells.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether the server asks not to send the request again (`x-should-retry: false`).
    #[must_use]
    pub const fn is_final(&self) -> bool {
        self.is_final
    }

    /// Which other requests a refusal is about.
    #[must_use]
    pub const fn scope(&self) -> RefusalScope {
        self.scope
    }

    /// The fields that could not be read, with what is assumed instead.
    #[must_use]
    pub fn unreadable(&self) -> &[Unreadable] {
        &self.unreadable
    }
}

/// Which other requests of the client a refusal is about (`X-RateLimit-Scope` of Discord).
///
/// # Examples
///
/// ```
/// use http::{HeaderMap, StatusCode};
/// use tollgate_client::{RefusalScope, read};
///
/// let mut headers = HeaderMap::new();
/// headers.insert("x-ratelimit-scope", "shared".parse().unwrap());
/// let reading = read(&headers, StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(reading.scope(), RefusalScope::Resource);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalScope {
    /// Those for the same resource only, which all clients share.
    Resource,
    /// Those of the same kind. Servers that say nothing mean this.
    #[default]
    Kind,
    /// All requests to the host.
    Host,
}

/// How one limit of a server stands.
///
/// See the [module docs](super) for an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitReading {
    pub(super) name: Box<str>,
    pub(super) quota: Option<u64>,
    pub(super) window: Option<Duration>,
    pub(super) remaining: u64,
    pub(super) reset: Option<Duration>,
}

impl LimitReading {
    /// Its name; if the server names none, that of the field.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The tokens of a window.
    #[must_use]
    pub const fn quota(&self) -> Option<u64> {
        self.quota
    }

    /// The time in which that many tokens come.
    #[must_use]
    pub const fn window(&self) -> Option<Duration> {
        self.window
    }

    /// The tokens that are left.
    #[must_use]
    pub const fn remaining(&self) -> u64 {
        self.remaining
    }

    /// The time until there are more tokens.
    #[must_use]
    pub const fn reset(&self) -> Option<Duration> {
        self.reset
    }
}

/// A field that could not be read.
///
/// # Examples
///
/// ```
/// use http::{HeaderMap, StatusCode};
/// use tollgate_client::{ASSUMED_WAIT, read};
///
/// let mut headers = HeaderMap::new();
/// headers.insert("retry-after", "soon".parse().unwrap());
/// let reading = read(&headers, StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(reading.retry_after(), Some(ASSUMED_WAIT));
/// let unreadable = reading.unreadable()[0].to_string();
/// assert_eq!(unreadable, "cannot read `retry-after: soon` (a wait of 30s is assumed)");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    pub(super) field: HeaderName,
    pub(super) value: Box<str>,
    pub(super) assumed: Assumed,
}

/// What is taken instead of a field that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Assumed {
    Wait,
    Reset,
    Nothing,
}

impl Unreadable {
    /// The name of the field.
    #[must_use]
    pub const fn field(&self) -> &HeaderName {
        &self.field
    }

    /// The first 64 bytes of its value, with escapes for what is not printable.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// What is assumed instead, in words.
    #[must_use]
    pub fn assumed(&self) -> String {
        match self.assumed {
            Assumed::Wait => format!("a wait of {ASSUMED_WAIT:?} is assumed"),
            Assumed::Reset => format!("a reset in {ASSUMED_RESET:?} is assumed"),
            Assumed::Nothing => "it changes nothing".to_owned(),
        }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read `{}: {}` ({})", self.field, self.value, self.assumed())
    }
}
