//! The one error of all calls.

use std::error::Error as StdError;
use std::time::Duration;
use std::{fmt, slice};

use super::snapshot::{Level, Snapshot, Speech};
use super::{Limit, Outcome, too_large};
use crate::algebra::Terms;
use crate::backend::BackendError;

/// The work may not run: a limit refused it, its cost can never fit, or the store did not answer.
///
/// The predicates tell which, and so does [`kind`](Self::kind). The error is owned, `'static`, and as large as one pointer.
///
/// With the feature `axum`, it is a response: 429 with `Retry-After` for a refusal, 413 without it
/// for a cost that can never fit, and 503 if the store did not answer. So a handler that returns
/// `Result<_, RateLimited>` and uses `?` answers as the layer does.
///
/// # Examples
///
/// ```
/// use tollgate::{Limit, MINUTE, Quota, RateLimited, RateLimiter};
///
/// const MESSAGES: Limit = Limit::new("messages", Quota::token_bucket(10, MINUTE));
///
/// async fn send(limiter: &RateLimiter, user: &str) -> Result<&'static str, RateLimited> {
///     limiter.limit(&MESSAGES).key(user).cost(6).await?;
///     Ok("sent")
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let limiter = RateLimiter::in_memory();
/// assert_eq!(send(&limiter, "alice").await.unwrap(), "sent");
///
/// let refused = send(&limiter, "alice").await.unwrap_err();
/// assert!(refused.is_refused());
/// assert!(refused.retry_after().unwrap() <= MINUTE / 5);
/// assert_eq!(refused.snapshots()[0].remaining(), 4);
///
/// let too_large = limiter.limit(&MESSAGES).cost(11).await.unwrap_err();
/// assert!(too_large.is_too_large() && too_large.retry_after().is_none());
/// assert_eq!(
///     too_large.to_string(),
///     "cost of 11 can never fit limit `messages` (it holds at most 10: ask for less, or raise \
///      its capacity)"
/// );
/// # }
/// ```
#[doc(alias("NotUntil", "TooManyRequests"))]
#[derive(Clone)]
pub struct RateLimited(Box<RateLimitedInner>);

/// Boxed: errors are rare, and should not make every `Result` larger.
#[derive(Clone, Debug)]
struct RateLimitedInner {
    cause: RateLimitedCause,
    /// How the limiter speaks to clients, for the response that the error becomes.
    speech: Speech,
}

#[derive(Clone, Debug)]
enum RateLimitedCause {
    /// Without a time to retry if the limit grants nothing.
    Refused {
        first: Snapshot,
        /// All that refused, if it is not only the first.
        all: Option<Box<[Snapshot]>>,
        retry_after: Option<Duration>,
    },
    TooLarge {
        limit: Limit,
        cost: u64,
        terms: Terms,
    },
    Unavailable {
        limit: Limit,
        error: BackendError,
    },
}

impl RateLimited {
    /// A refusal by one limit.
    #[inline]
    pub(crate) fn refused(limit: &Limit, level: Level, retry_after: Option<Duration>) -> Self {
        // Written in place: copying it to the heap would take longer than the decision.
        Self(Box::write(
            Box::new_uninit(),
            RateLimitedInner {
                cause: RateLimitedCause::Refused {
                    first: Snapshot::new(limit, level),
                    all: None,
                    retry_after,
                },
                speech: Speech::default(),
            },
        ))
    }

    /// A refusal by these limits; `None` if there is none.
    pub(crate) fn refused_by(
        mut snapshots: impl Iterator<Item = Snapshot>,
        retry_after: Option<Duration>,
    ) -> Option<Self> {
        let (first, second) = (snapshots.next()?, snapshots.next());
        let several = |second| [first.clone(), second].into_iter().chain(snapshots).collect();
        let all = second.map(several);
        Some(Self::from_cause(RateLimitedCause::Refused { first, all, retry_after }))
    }

    /// The error of a cost that the limit can never grant on these terms: it is too large, or the
    /// limit grants nothing at all.
    #[cold]
    pub(crate) fn too_large(limit: &Limit, cost: u64, terms: Terms) -> Self {
        if limit.quota().is_none() {
            return Self::refused_for_good(limit, cost);
        }
        Self::from_cause(RateLimitedCause::TooLarge { limit: limit.clone(), cost, terms })
    }

    /// A refusal by a limit that grants nothing. No store is asked for it.
    #[cold]
    pub(super) fn refused_for_good(limit: &Limit, cost: u64) -> Self {
        let (first, all) = (Snapshot::of_nothing(limit, cost), None);
        Self::from_cause(RateLimitedCause::Refused { first, all, retry_after: None })
    }

    #[cold]
    pub(crate) fn unavailable(limit: &Limit, error: BackendError) -> Self {
        Self::from_cause(RateLimitedCause::Unavailable { limit: limit.clone(), error })
    }

    fn from_cause(cause: RateLimitedCause) -> Self {
        Self(Box::new(RateLimitedInner { cause, speech: Speech::default() }))
    }

    /// The same error, of a limiter that speaks so.
    #[inline]
    pub(crate) fn with_speech(mut self, speech: &Speech) -> Self {
        if !speech.is_default() {
            self.0.speech = speech.clone();
        }
        self
    }

    pub(crate) const fn speech(&self) -> &Speech {
        &self.0.speech
    }

    /// Finds a `RateLimited` in an error or in its chain of sources.
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
    /// limiter.limit(&limit).await?;
    ///
    /// let refused = limiter.limit(&limit).await.unwrap_err();
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
            // The `source()` of an I/O error is the source of the error inside of it, so that one
            // is skipped.
            if let Some(inner) = error.downcast_ref::<std::io::Error>().and_then(|io| io.get_ref())
            {
                next = Some(inner);
                continue;
            }
            next = error.source();
        }
        None
    }

    /// What became of the work: [`Refused`](Outcome::Refused), [`TooLarge`](Outcome::TooLarge) or
    /// [`Unavailable`](Outcome::Unavailable), for a `match`. The predicates say the same.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::limiter::Outcome;
    /// use tollgate::{HOUR, Limit, Quota, RateLimiter};
    ///
    /// const EXPORTS: Limit = Limit::new("exports", Quota::token_bucket(1, HOUR));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let error = RateLimiter::in_memory().limit(&EXPORTS).cost(2).await.unwrap_err();
    /// let advice = match error.kind() {
    ///     Outcome::Refused => "come back later",
    ///     Outcome::TooLarge => "ask for less",
    ///     _ => "not your fault",
    /// };
    /// assert_eq!(advice, "ask for less");
    /// # }
    /// ```
    #[doc(alias = "ErrorKind")]
    #[must_use]
    pub fn kind(&self) -> Outcome {
        match &self.0.cause {
            RateLimitedCause::Refused { .. } => Outcome::Refused,
            RateLimitedCause::TooLarge { .. } => Outcome::TooLarge,
            RateLimitedCause::Unavailable { .. } => Outcome::Unavailable,
        }
    }

    /// Whether a limit refused the work because it is short of tokens, or because its quota grants
    /// [nothing](crate::Quota::none). Nothing was taken.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.kind() == Outcome::Refused
    }

    /// Whether the limit could never grant this cost, however long the caller waits.
    #[doc(alias = "InsufficientCapacity")]
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        self.kind() == Outcome::TooLarge
    }

    /// Whether no wait helps: the cost is too large, or the limit grants nothing.
    pub(crate) fn is_for_good(&self) -> bool {
        self.is_too_large() || (self.is_refused() && self.limit().quota().is_none())
    }

    /// The cost that no wait makes fit.
    pub(super) fn cost(&self) -> u64 {
        match &self.0.cause {
            RateLimitedCause::TooLarge { cost, .. } => *cost,
            RateLimitedCause::Refused { first, .. } => first.cost(),
            RateLimitedCause::Unavailable { .. } => 0,
        }
    }

    /// The limit that could never grant the cost, and the terms that were asked for.
    pub(super) fn unfit(&self) -> Option<(&Limit, Terms)> {
        match &self.0.cause {
            RateLimitedCause::TooLarge { limit, terms, .. } => Some((limit, *terms)),
            _ => None,
        }
    }

    /// Whether there was no decision: the store failed, did not answer in time, or cannot decide
    /// this.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        self.kind() == Outcome::Unavailable
    }

    /// Whether the store failed, could not be reached, or did not answer in time.
    ///
    /// Use it to let work run uncounted during an outage. [`is_unavailable`](Self::is_unavailable)
    /// includes more, which must not let work run: calls that the store can never decide, that it
    /// has no room for, or that were late because of a flood of calls from this process. A client
    /// can cause each of these at will. [`BackendError::is_outage`] has the whole list.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{HOUR, Limit, Quota, RateLimited, RateLimiter};
    ///
    /// const SEARCHES: Limit = Limit::new("searches", Quota::token_bucket(100, HOUR));
    ///
    /// async fn search(limiter: &RateLimiter, user: &str) -> Result<&'static str, RateLimited> {
    ///     match limiter.limit(&SEARCHES).key(user).await {
    ///         Err(error) if error.is_outage() => Ok("found, uncounted"),
    ///         permit => permit.map(|_| "found"),
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// assert_eq!(search(&RateLimiter::in_memory(), "alice").await.unwrap(), "found");
    /// # }
    /// ```
    #[must_use]
    pub fn is_outage(&self) -> bool {
        self.error().is_some_and(BackendError::is_outage)
    }

    /// Whether the store did not answer in time. It may have taken the tokens.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.error().is_some_and(BackendError::is_timeout)
    }

    /// The smallest wait after which the same request is admitted. `None` unless a limit
    /// [refused](Self::is_refused), or a [`CircuitBreaker`](crate::backend::CircuitBreaker) did not
    /// ask the store: then it is the time until the breaker lets calls through.
    ///
    /// A limit that grants [nothing](crate::Quota::none) refuses without a time to come back, so it is
    /// `None` as well. So it is if the only limits that refused wait for requests [in
    /// flight](crate::Quota::in_flight) to end: that time is unknown.
    ///
    /// It is exact, and may be less than a second: for whole seconds, round up, as
    /// `wait.as_secs_f64().ceil()` does. A client that waits for `wait.as_secs()` comes too early.
    ///
    /// It holds if no other request comes first, and includes the
    /// [jitter](super::LimitCall::jitter). With several limits, it is the longest wait. A limit in
    /// shards may refuse the retry, since it may draw other shards. For a request that
    /// [reserves](super::LimitCall::reserve), it is the wait until the work could run at once; a
    /// reservation may be granted earlier.
    #[doc(alias("earliest_possible", "msBeforeNext", "wait_time_from"))]
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match &self.0.cause {
            RateLimitedCause::Refused { retry_after, .. } => *retry_after,
            RateLimitedCause::Unavailable { error, .. } => error.retry_after(),
            RateLimitedCause::TooLarge { .. } => None,
        }
    }

    fn error(&self) -> Option<&BackendError> {
        match &self.0.cause {
            RateLimitedCause::Unavailable { error, .. } => Some(error),
            _ => None,
        }
    }

    /// The limit that refused, or about which there was no decision; of several limits, the first.
    #[must_use]
    pub fn limit(&self) -> &Limit {
        match &self.0.cause {
            RateLimitedCause::Refused { first, .. } => first.limit(),
            RateLimitedCause::TooLarge { limit, .. }
            | RateLimitedCause::Unavailable { limit, .. } => limit,
        }
    }

    /// How each limit that refused stands; empty if it is no refusal.
    #[must_use]
    pub fn snapshots(&self) -> &[Snapshot] {
        match &self.0.cause {
            RateLimitedCause::Refused { first, all, .. } => {
                all.as_deref().unwrap_or(slice::from_ref(first))
            }
            RateLimitedCause::TooLarge { .. } | RateLimitedCause::Unavailable { .. } => &[],
        }
    }
}

impl fmt::Display for RateLimited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.cause {
            RateLimitedCause::Refused { first, retry_after, .. } => {
                f.write_str("refused by limit ")?;
                for (index, snapshot) in self.snapshots().iter().enumerate() {
                    let separator = if index == 0 { "" } else { ", " };
                    write!(f, "{separator}`{}`", snapshot.limit().name())?;
                }
                match retry_after {
                    Some(retry_after) => write!(f, " (retry after {retry_after:?})"),
                    None if first.limit().quota().is_none() => {
                        write!(f, " (it grants nothing: {})", first.limit().quota())
                    }
                    None => f.write_str(" (retry when a request in flight has ended)"),
                }
            }
            RateLimitedCause::TooLarge { limit, cost, terms } => {
                too_large::explain(limit, *cost, *terms, f)
            }
            RateLimitedCause::Unavailable { limit, .. } => {
                write!(f, "limit `{}` could not be decided", limit.name())
            }
        }
    }
}

impl fmt::Debug for RateLimited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RateLimited").field(&self.0.cause).finish()
    }
}

impl StdError for RateLimited {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let error: &(dyn StdError + 'static) = self.error()?;
        Some(error)
    }
}
