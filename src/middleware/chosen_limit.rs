//! What a rule may choose for a request.

use std::sync::Arc;

use crate::limiter::Limit;

/// What [`Rule::limit_with`](super::Rule::limit_with) may choose: a limit, or none.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a limit that `limit_with` may choose",
    note = "return a `Limit`, a `&'static Limit`, an `Arc<Limit>`, or an `Option` of one"
)]
pub trait IntoChosenLimit {
    /// The limit that a request is held to; `None` if it is held to none.
    fn into_chosen_limit(self) -> Option<Arc<Limit>>;
}

impl IntoChosenLimit for Limit {
    fn into_chosen_limit(self) -> Option<Arc<Limit>> {
        Some(Arc::new(self))
    }
}

impl IntoChosenLimit for &Limit {
    fn into_chosen_limit(self) -> Option<Arc<Limit>> {
        Some(Arc::new(self.clone()))
    }
}

impl IntoChosenLimit for Arc<Limit> {
    fn into_chosen_limit(self) -> Option<Arc<Limit>> {
        Some(self)
    }
}

impl<L: IntoChosenLimit> IntoChosenLimit for Option<L> {
    fn into_chosen_limit(self) -> Option<Arc<Limit>> {
        self.and_then(L::into_chosen_limit)
    }
}
