//! The error of an adapter whose inner stream, sink or body has errors of its own.

use std::error::Error as StdError;
use std::fmt;

use crate::limiter::RateLimited;

/// The error of a throttled stream of results, sink or body: of what is inside, or of the limit.
///
/// Its source is that error. [`RateLimited::find`] finds the error of the limit also where others
/// have wrapped this one, as axum does for bodies.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ThrottleError<E> {
    /// The stream, the sink or the body inside has failed.
    Inner(E),
    /// The limit did not let an item pass. See the [module docs](super#when-an-item-cannot-pass).
    RateLimited(RateLimited),
}

impl<E> ThrottleError<E> {
    /// The error of what is inside, if it is one.
    #[must_use]
    pub fn into_inner(self) -> Option<E> {
        match self {
            Self::Inner(error) => Some(error),
            Self::RateLimited(_) => None,
        }
    }

    /// The error of the limit, if it is one.
    #[must_use]
    pub const fn rate_limited(&self) -> Option<&RateLimited> {
        match self {
            Self::RateLimited(error) => Some(error),
            Self::Inner(_) => None,
        }
    }
}

impl<E> fmt::Display for ThrottleError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inner(_) => "the throttled stream, sink or body failed",
            Self::RateLimited(_) => "the limit did not admit an item",
        })
    }
}

impl<E: StdError + 'static> StdError for ThrottleError<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(match self {
            Self::Inner(error) => error,
            Self::RateLimited(error) => error,
        })
    }
}
