//! What the responses of a layer with one limit have in common.

use std::sync::{Arc, OnceLock};

use crate::fields::LoneTemplate;
use crate::limiter::Limit;

/// The fields and the refusals of a layer with one limit, as far as all requests share them.
pub(super) struct LoneResponse {
    pub(super) template: LoneTemplate,
    /// The limit whose numbers it has.
    limit: Arc<Limit>,
    /// The one for the numbers that the limit got next.
    next: OnceLock<Arc<LoneResponse>>,
}

/// How many numbers of its limit a layer prepares responses for. Later ones are formatted for each
/// request, so a limit whose numbers change all the time costs no memory in its layers.
const MAX_NUMBERS: usize = 8;

impl LoneResponse {
    pub(super) const fn new(template: LoneTemplate, limit: Arc<Limit>) -> Self {
        Self { template, limit, next: OnceLock::new() }
    }

    /// Whether it has the numbers of this very limit.
    #[inline(always)]
    pub(super) fn is_for(&self, limit: &Limit) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.limit), limit)
    }

    /// The one for a limit that stands in place of its own, made by `make` if there is none yet.
    #[cold]
    pub(super) fn replaced<'r>(
        mut self: &'r Arc<Self>,
        limit: &Limit,
        make: impl FnOnce() -> Option<Self>,
    ) -> Option<&'r Arc<Self>> {
        let mut make = Some(make);
        for _ in 1..MAX_NUMBERS {
            if self.next.get().is_none()
                && let Some(next) = make.take().and_then(|make| make())
            {
                // Another request may have added the same one meanwhile; then this one is dropped.
                let _ = self.next.set(Arc::new(next));
            }
            self = self.next.get()?;
            if self.is_for(limit) {
                return Some(self);
            }
        }
        None
    }
}
