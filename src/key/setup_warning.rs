//! Warnings about a possible misconfiguration.

use std::borrow::Cow;
use std::fmt;

use crate::backend::Key;

/// A warning about a possible misconfiguration, for the log.
///
/// See [`KeyExtractor::setup_warning`](super::KeyExtractor::setup_warning).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupWarning {
    message: Cow<'static, str>,
    common_key: Option<Key>,
}

impl SetupWarning {
    /// Makes a warning that is logged at the first request that raises it.
    pub fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), common_key: None }
    }

    /// Makes a warning that is logged only if each of the first thousand requests raises it, all
    /// with this key.
    pub fn with_common_key(key: impl Into<Key>, message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), common_key: Some(key.into()) }
    }

    /// The key with which all requests have to raise the warning; `None` if one request is enough.
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
