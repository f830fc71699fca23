//! The lines of a store, as wrappers hand them on.

use std::any::Any;
use std::fmt;

/// The lines of [`Memory`](super::Memory) in which reservations wait, as
/// [`Backend::lines`](super::Backend::lines) returns them.
///
/// A wrapper can only hand them on:
///
/// ```
/// use tollgate::backend::{
///     Adjustment, Answer, Applied, Backend, BucketId, Charge, Lines, Memory,
/// };
/// use tollgate::{Limit, Quota, RateLimited, RateLimiter, SECOND};
///
/// /// Prints what is asked.
/// #[derive(Debug)]
/// struct Printed<B>(B);
///
/// impl<B: Backend> Backend for Printed<B> {
///     fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
///         println!("{charges:?}");
///         self.0.apply(charges)
///     }
///     fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
///         println!("{adjustments:?}");
///         self.0.adjust(adjustments)
///     }
///     fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
///         println!("{ids:?}");
///         self.0.reset(ids)
///     }
///     fn lines(&self) -> Option<Lines<'_>> {
///         self.0.lines()
///     }
/// }
///
/// const SPACED: Limit = Limit::new("spaced", Quota::token_bucket(1, SECOND).capacity(0));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), RateLimited> {
/// let limiter = RateLimiter::new(Printed(Memory::new()));
/// let first = limiter.limit(&SPACED).reserve().await?;
/// let second = limiter.limit(&SPACED).reserve().await?;
/// // The second moves forward at once.
/// drop(first);
/// assert!(limiter.waiting(&SPACED).longest() <= SECOND);
/// # drop(second);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct Lines<'s>(&'s (dyn Any + Send + Sync));

impl<'s> Lines<'s> {
    /// The lines of this store.
    #[cfg(feature = "memory")]
    pub(super) const fn of(store: &'s (dyn Any + Send + Sync)) -> Self {
        Self(store)
    }

    /// The store, which is named by its type so that this file knows no store.
    #[doc(hidden)]
    #[must_use]
    pub fn store<S: Any>(&self) -> Option<&'s S> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}
