//! What the routes know.

use super::error::AdminError;
use tollgate::limiter::{Limit, RateLimiter};

/// The limiter, and the limits by which it is looked into.
pub(super) struct AdminState {
    limiter: RateLimiter,
    limits: Vec<Limit>,
}

impl AdminState {
    pub(super) const fn new(limiter: RateLimiter, limits: Vec<Limit>) -> Self {
        Self { limiter, limits }
    }

    pub(super) const fn limiter(&self) -> &RateLimiter {
        &self.limiter
    }

    pub(super) fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// A limit with the numbers in force, to show them. Calls get the limit itself, since the limiter
    /// finds the numbers in force by it.
    pub(super) fn in_force(&self, limit: &Limit) -> Limit {
        // They were given to a limit of this name before.
        Limit::try_new(limit.name(), self.limiter.quota(limit)).unwrap_or_else(|_| limit.clone())
    }

    /// The limit of this name.
    pub(super) fn limit(&self, name: &str) -> Result<&Limit, AdminError> {
        let found = self.limits.iter().find(|limit| limit.name() == name);
        found.ok_or_else(|| AdminError::unknown_limit(name, &self.limits))
    }
}
