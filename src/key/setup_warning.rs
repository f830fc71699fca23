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
    scope: WarningScope,
    /// Has to differ among the requests that raise the warning.
    beside: Option<Beside>,
}

/// What stands beside a key in a request: which fields, and a number that differs if their values do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beside {
    pub(super) fields: u8,
    pub(super) values: u64,
}

impl Beside {
    /// Whether the same fields have other values.
    pub(crate) const fn differs(self, other: Self) -> bool {
        self.fields == other.fields && self.values != other.values
    }
}

/// Which requests have to raise a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WarningScope {
    One,
    EachWithKey(Key),
    Each,
}

impl SetupWarning {
    /// Makes a warning that is logged at the first request that raises it.
    pub fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), scope: WarningScope::One, beside: None }
    }

    /// Makes a warning that is logged only if each of the first thousand requests raises it, all
    /// with this key.
    pub fn with_common_key(key: impl Into<Key>, message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), scope: WarningScope::EachWithKey(key.into()), beside: None }
    }

    /// Makes a warning that is logged only if each of the first thousand requests raises it,
    /// whatever their keys are.
    pub fn in_each_request(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), scope: WarningScope::Each, beside: None }
    }

    /// The same, logged only if what stands beside the key is not the same in all of these requests.
    pub(super) fn while_differs(self, beside: Beside) -> Self {
        Self { beside: Some(beside), ..self }
    }

    pub(crate) const fn beside(&self) -> Option<Beside> {
        self.beside
    }

    /// The key with which all requests have to raise the warning; `None` if their keys do not
    /// matter.
    #[must_use]
    pub const fn common_key(&self) -> Option<&Key> {
        match &self.scope {
            WarningScope::EachWithKey(key) => Some(key),
            WarningScope::One | WarningScope::Each => None,
        }
    }

    /// Whether one request is enough to log the warning.
    #[must_use]
    pub const fn is_certain(&self) -> bool {
        matches!(self.scope, WarningScope::One)
    }
}

impl fmt::Display for SetupWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
