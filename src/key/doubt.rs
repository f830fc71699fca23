//! What looks like a mistake in the set-up.

use std::borrow::Cow;
use std::fmt;

use super::Key;

/// A sign that the set-up is not what it was meant to be, for the log; see
/// [`KeyExtractor::doubt`](super::KeyExtractor::doubt).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    message: Cow<'static, str>,
    always: Option<Key>,
}

impl Doubt {
    /// To be told as soon as one request raises it.
    pub fn now(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), always: None }
    }

    /// To be told if all of the first requests raise it with this same key.
    pub fn if_always(key: impl Into<Key>, message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), always: Some(key.into()) }
    }

    /// The key with which all requests have to raise it, if one is not enough.
    #[must_use]
    pub const fn always(&self) -> Option<&Key> {
        self.always.as_ref()
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
