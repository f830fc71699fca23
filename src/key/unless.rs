//! Requests that are exempt.

use std::fmt;

use super::{Doubt, Extracted, Head, KeyError, KeyExtractor};

/// Exempts requests that a predicate holds for; made by [`KeyExtractor::unless`].
#[derive(Clone)]
pub struct Unless<E, P> {
    key: E,
    is_exempt: P,
}

impl<E, P> Unless<E, P> {
    pub(super) const fn new(key: E, is_exempt: P) -> Self {
        Self { key, is_exempt }
    }
}

impl<E, P> KeyExtractor for Unless<E, P>
where
    E: KeyExtractor,
    P: Fn(&Head<'_>) -> bool + Send + Sync + 'static,
{
    fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
        match (self.is_exempt)(head) {
            true => Ok(Extracted::Exempt),
            false => self.key.extract(head),
        }
    }

    fn doubt(&self, head: &Head<'_>) -> Option<Doubt> {
        self.key.doubt(head)
    }
}

impl<E: fmt::Debug, P> fmt::Debug for Unless<E, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unless").field("key", &self.key).finish_non_exhaustive()
    }
}
