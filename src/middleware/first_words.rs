//! What a layer takes, with words of our own for what it does not take.

use super::rule::Rule;
use crate::quota::tokens_of;

/// A [`Rule`], or a [`Limit`](crate::Limit), which becomes a rule without further settings.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a rule of a layer",
    note = "a layer takes a `&Limit` or a `Rule`, and others by `and`: \
            `limiter.layer(&A).and(Rule::new(&B).key(..))`"
)]
pub trait IntoRule {
    /// Converts the value into a rule.
    fn into_rule(self) -> Rule;
}

#[diagnostic::do_not_recommend]
impl<T: Into<Rule>> IntoRule for T {
    fn into_rule(self) -> Rule {
        self.into()
    }
}

/// The tokens that each request takes: an integer of any type.
///
/// One below zero, or above what a `u64` holds, is more than any limit can grant.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a cost in tokens",
    note = "a cost is an integer; give a closure to `cost_with`: `.cost_with(|head| ..)`"
)]
pub trait IntoCost {
    /// Converts the value into tokens.
    fn into_cost(self) -> u64;
}

#[diagnostic::do_not_recommend]
impl<T: TryInto<u64>> IntoCost for T {
    fn into_cost(self) -> u64 {
        tokens_of(self)
    }
}
