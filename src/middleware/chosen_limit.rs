//! What a rule chooses for a request: a limit, or none.

use std::sync::Arc;

use crate::limiter::Limit;

/// What [`Rule::limit_with`](super::Rule::limit_with) may choose: a limit, or none.
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

/// `None` is not limited.
impl<L: Into<Self>> From<Option<L>> for ChosenLimit {
    fn from(limit: Option<L>) -> Self {
        limit.map_or(Self(None), L::into)
    }
}
