//! A refusal, as an error to leave a function with.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use super::{Error, Refusal};

/// The request is not to run: it was refused, or nobody could decide.
///
/// With the feature `axum` it is a response as well, so a handler that returns
/// `Result<_, RateLimited>` answers 429 with `Retry-After` by `?`.
#[derive(Clone, Debug)]
pub struct RateLimited(Cause);

#[derive(Clone, Debug)]
enum Cause {
    Refused(Box<Refusal<'static>>),
    Failed(Error),
}

impl RateLimited {
    /// Finds it in an error or in what caused that, however deep.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::error::Error;
    /// use tollgate::{Limit, MINUTE, Quota, RateLimited, RateLimiter};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn Error>> {
    /// let limit = Limit::new("uploads", Quota::token_bucket(1, MINUTE));
    /// let limiter = RateLimiter::in_memory();
    /// limiter.limit(&limit).await?.into_result()?;
    ///
    /// let refused = limiter.limit(&limit).await?.into_result().unwrap_err();
    /// let wrapped = std::io::Error::other(refused);
    /// let found = RateLimited::find(&wrapped).expect("it is in there");
    /// assert!(found.retry_after().is_some());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn find<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref() {
                return Some(found);
            }
            // An I/O error passes over the error that it wraps, and on to that one's cause.
            if let Some(inner) = error.downcast_ref::<std::io::Error>().and_then(|io| io.get_ref())
            {
                next = Some(inner);
                continue;
            }
            next = error.source();
        }
        None
    }

    /// The refusal; `None` if nobody could decide.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal<'static>> {
        match &self.0 {
            Cause::Refused(refusal) => Some(refusal),
            Cause::Failed(_) => None,
        }
    }

    /// The error; `None` if it was a decision.
    #[must_use]
    pub fn error(&self) -> Option<&Error> {
        match &self.0 {
            Cause::Refused(_) => None,
            Cause::Failed(error) => Some(error),
        }
    }

    /// When the request may come back, if a limit refused it.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.refusal().map(Refusal::retry_after)
    }
}

impl From<Refusal<'_>> for RateLimited {
    fn from(refusal: Refusal<'_>) -> Self {
        Self(Cause::Refused(Box::new(refusal.into_owned())))
    }
}

impl From<Error> for RateLimited {
    fn from(error: Error) -> Self {
        Self(Cause::Failed(error))
    }
}

impl fmt::Display for RateLimited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Cause::Refused(refusal) => {
                f.write_str("refused by limit ")?;
                for (index, standing) in refusal.limits().iter().enumerate() {
                    let separator = if index == 0 { "" } else { ", " };
                    write!(f, "{separator}`{}`", standing.limit().name())?;
                }
                write!(f, " (retry after {:?})", refusal.retry_after())
            }
            Cause::Failed(error) => error.fmt(f),
        }
    }
}

impl StdError for RateLimited {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.0 {
            Cause::Refused(_) => None,
            // The error speaks through this one, so its cause comes next.
            Cause::Failed(error) => error.source(),
        }
    }
}
