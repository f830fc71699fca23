//! Warnings about what is probably a misconfiguration.

use std::borrow::Cow;
use std::fmt;

use crate::backend::Key;

/// A sign of a misconfiguration, for the log; see
/// [`KeyExtractor::setup_warning`](super::KeyExtractor::setup_warning).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupWarning {
    message: Cow<'static, str>,
    common_key: Option<Key>,
}

impl SetupWarning {
    /// A warning that is logged at the first request that shows the sign.
    pub fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), common_key: None }
    }

    /// A warning that is logged only if the first thousand requests all show the sign, and all with this
    /// key.
    pub fn with_common_key(key: impl Into<Key>, message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), common_key: Some(key.into()) }
    }

    /// The key that all requests have to share; `None` if one request is enough.
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
