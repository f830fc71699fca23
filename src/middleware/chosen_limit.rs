//! The limit that a rule has chosen for a request.

use std::sync::Arc;

use crate::limiter::Limit;

/// What the function of [`Rule::limit_with`](super::Rule::limit_with) returns: a limit, or none.
#[derive(Clone, Debug)]
pub struct ChosenLimit(pub(super) Option<Arc<Limit>>);

impl From<Limit> for ChosenLimit {
    fn from(limit: Limit) -> Self {
        Self(Some(Arc::new(limit)))
    }
}

impl From<&Limit> for ChosenLimit {
    fn from(limit: &Limit) -> Self {
        limit.clone().into()
    }
}

impl From<Arc<Limit>> for ChosenLimit {
    fn from(limit: Arc<Limit>) -> Self {
        Self(Some(limit))
    }
}

impl From<&Arc<Limit>> for ChosenLimit {
    fn from(limit: &Arc<Limit>) -> Self {
        Arc::clone(limit).into()
    }
}

/// With `None`, the request is not limited.
impl<L: Into<Self>> From<Option<L>> for ChosenLimit {
    fn from(limit: Option<L>) -> Self {
        limit.map_or(Self(None), L::into)
    }
}
