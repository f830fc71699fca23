//! The error of a request without a usable key.

use std::borrow::Cow;
use std::fmt;

use http::StatusCode;

/// The error of a request without a usable key.
///
/// It knows whose fault that is: its [status](Self::with_status) is the answer to the request, unless
/// the rule says otherwise by [`missing_key`](crate::Rule::missing_key).
///
/// Errors are equal if they are of one kind, and have one status and one message.
#[derive(Clone)]
pub struct KeyError {
    words: Words,
    kind: KeyErrorKind,
    status: StatusCode,
    scheme: Option<Scheme>,
}

/// The credentials that a request lacks, as a 401 has to name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "credentials"),
    expect(dead_code, reason = "only those extractors name one")
)]
pub(crate) enum Scheme {
    Bearer,
    ApiKey,
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
    /// The client has not sent the key: status 400.
    ///
    /// The message goes to the log and should say how to fix the configuration. Clients do not see
    /// it, except in builds with debug assertions, where a layer adds it to the body of the answer.
    ///
    /// # Examples
    ///
    /// A key that another layer of the server should have found:
    ///
    /// ```
    /// use http::StatusCode;
    /// use tollgate::key::KeyError;
    ///
    /// let error = KeyError::missing("no tenant (add the layer that looks it up)")
    ///     .with_status(StatusCode::INTERNAL_SERVER_ERROR);
    /// assert!(error.is_missing() && error.status().is_server_error());
    /// ```
    pub fn missing(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Words::Text(message.into()), KeyErrorKind::Missing)
    }

    /// As [`missing`](Self::missing), with words about a name.
    pub(super) fn missing_named(name: &str, words: fn(&str) -> String) -> Self {
        Self::new(Words::Of(name.into(), words), KeyErrorKind::Missing)
    }

    /// The key is missing because of a misconfiguration, so that no request can have it: status 500.
    ///
    /// [`is_missing`](Self::is_missing) is true for it too. It is logged once: as an error,
    /// whatever `missing_key` is set to, or as a warning if [another key](super::KeyExtractor::or)
    /// takes its place.
    pub fn misconfigured(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Words::Text(message.into()), KeyErrorKind::Misconfigured)
            .with_status(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The key is present but cannot be used, because the request is malformed: status 400.
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Words::Text(message.into()), KeyErrorKind::Invalid)
    }

    /// The key is present but empty; all requests without a name would share one bucket.
    ///
    /// It is handled like an [`invalid`](Self::invalid) key, and logged once as a warning.
    pub fn empty(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Words::Text(message.into()), KeyErrorKind::Empty)
    }

    const fn new(words: Words, kind: KeyErrorKind) -> Self {
        Self { words, kind, status: StatusCode::BAD_REQUEST, scheme: None }
    }

    /// Sets the status of the answer: an error of the client, or of the server if it is the server
    /// that lacks something.
    ///
    /// For a [missing](Self::missing) key, [`missing_key`](crate::Rule::missing_key) overrides it.
    #[must_use]
    pub fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// Makes it a 401 that asks for these credentials.
    #[cfg(feature = "credentials")]
    pub(super) fn asking_for(self, scheme: Scheme) -> Self {
        Self { status: StatusCode::UNAUTHORIZED, scheme: Some(scheme), ..self }
    }

    /// The status of the answer.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// The value of `WWW-Authenticate` for this error, which each 401 has to have (RFC 9110, section
    /// 15.5.2).
    pub(crate) const fn challenge(&self) -> Option<&'static str> {
        match self.scheme {
            Some(Scheme::Bearer) => Some("Bearer"),
            Some(Scheme::ApiKey) => Some("ApiKey"),
            None => None,
        }
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
        (self.kind, self.status, self.message()) == (other.kind, other.status, other.message())
    }
}

impl Eq for KeyError {}

impl fmt::Debug for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut error = f.debug_struct("KeyError");
        error.field("message", &self.message()).field("kind", &self.kind);
        error.field("status", &self.status.as_u16()).finish()
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
