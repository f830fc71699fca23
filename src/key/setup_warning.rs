//! What looks like a mistake in the set-up.

use std::borrow::Cow;
use std::fmt;

use crate::backend::Key;

/// A sign that the set-up is not what it was meant to be, for the log; see
/// [`KeyExtractor::doubt`](super::KeyExtractor::doubt).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupWarning {
    message: Cow<'static, str>,
    common_key: Option<Key>,
}

impl SetupWarning {
    /// To be told as soon as one request raises it.
    pub fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), common_key: None }
    }

    /// To be told if all of the first requests raise it with this same key.
    pub fn with_common_key(key: impl Into<Key>, message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), common_key: Some(key.into()) }
    }

    /// The key with which all requests have to raise it, if one is not enough.
    #[must_use]
    pub const fn common_key(&self) -> Option<&Key> {
        self.common_key.as_ref()
    }
}

impl fmt::Display for SetupWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
