//! What calls and layers of a limiter do unless they say otherwise.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::events::Observers;
use crate::backend::OnFailure;

/// What its calls and layers do unless they say otherwise. Handles may differ in that.
#[derive(Clone, Debug, Default)]
pub(super) struct Defaults {
    pub(super) on_failure: OnFailure,
    pub(super) speech: Speech,
    /// Whether the limiter admits everything and counts nothing.
    pub(super) is_off: bool,
    pub(super) observers: Option<Arc<Observers>>,
}

/// How a limiter speaks to clients: header fields and the wording of refusals. Only the middleware
/// knows them, so here they have no type.
#[derive(Clone, Default)]
pub(crate) struct Speech {
    style: Option<Arc<dyn Any + Send + Sync>>,
    /// Whether clients are not shown how limits stand, since no store has decided.
    is_silent: bool,
}

impl Speech {
    /// The same with another style. What is silent stays so.
    pub(crate) fn with_style(&self, style: impl Any + Send + Sync) -> Self {
        Self { style: Some(Arc::new(style)), is_silent: self.is_silent }
    }

    pub(super) const fn is_default(&self) -> bool {
        self.style.is_none() && !self.is_silent
    }

    /// The same, for what no store has decided.
    pub(super) fn silenced(&self) -> Self {
        Self { style: self.style.clone(), is_silent: true }
    }

    pub(crate) const fn is_silent(&self) -> bool {
        self.is_silent
    }

    pub(crate) fn get<T: Any>(&self) -> Option<&T> {
        self.style.as_deref()?.downcast_ref()
    }
}

impl fmt::Debug for Speech {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.style.is_some() { "Speech(..)" } else { "Speech(default)" })
    }
}
