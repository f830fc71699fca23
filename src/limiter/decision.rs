//! What the limiter decided.

use std::time::Duration;

use smallvec::SmallVec;

use super::{Permit, RateLimited, Reservation, Standing};

/// Whether the work may run.
///
/// It borrows the limiter and the limit, even where the limit is a `static`; a constant can be
/// borrowed for ever. To return it, to store it or to move it to a task,
/// [`into_owned`](Self::into_owned) makes it free of them: in a struct it is a `Decision<'static>`
/// or a `Permit<'static>`.
///
/// ```
/// # use tollgate::{Limit, MINUTE, Quota, RateLimited, RateLimiter};
/// const MAILS: Limit = Limit::new("mails", Quota::token_bucket(10, MINUTE));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = RateLimiter::in_memory();
/// let permit = limiter.limit(&MAILS).cost(5).await?.into_result()?.into_owned();
/// drop(limiter);
/// let task = tokio::spawn(async move { permit.settle(2).await });
/// assert_eq!(task.await??.remaining(), 8);
/// # Ok(())
/// # }
/// ```
///
/// A refusal is an answer like any other, not an error. Where a handler wants to leave by `?`,
/// [`into_result`](Self::into_result) makes it one.
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "work that was refused must not run"]
pub enum Decision<'a> {
    /// The tokens were there: the work may run now.
    Admitted(Permit<'a>),
    /// The tokens will be there: the work may run at a known instant. Only requests that
    /// [reserve](super::LimitCall::reserve) are told so.
    Reserved(Reservation),
    /// The tokens are not there, and nothing was taken.
    Refused(Refusal<'a>),
}

impl<'a> Decision<'a> {
    /// Whether the work may run now.
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        matches!(self, Self::Admitted(_))
    }

    /// When a refused request may come back; `None` if it was not refused.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Admitted(_) | Self::Reserved(_) => None,
            Self::Refused(refusal) => Some(refusal.retry_after()),
        }
    }

    /// This decision on its own, to be moved to where the limiter and the limit are not.
    pub fn into_owned(self) -> Decision<'static> {
        match self {
            Self::Admitted(permit) => Decision::Admitted(permit.into_owned()),
            Self::Reserved(reservation) => Decision::Reserved(reservation),
            Self::Refused(refusal) => Decision::Refused(refusal.into_owned()),
        }
    }

    /// The permit, or the refusal as an error to leave a handler with.
    ///
    /// A reservation is given up, as its work may not run now: [`ready`](Self::ready) waits for it.
    ///
    /// # Errors
    ///
    /// If the request was refused, or its turn is still to come.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Key, Limit, MINUTE, Quota, RateLimited, RateLimiter};
    ///
    /// const MESSAGES: Limit = Limit::new("messages", Quota::token_bucket(10, MINUTE));
    ///
    /// async fn send(limiter: &RateLimiter, user: &str) -> Result<&'static str, RateLimited> {
    ///     limiter.limit(&MESSAGES).key(user).await?.into_result()?;
    ///     Ok("sent")
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # assert!(send(&RateLimiter::in_memory(), "alice").await.is_ok());
    /// # }
    /// ```
    pub fn into_result(self) -> Result<Permit<'a>, RateLimited> {
        match self {
            Self::Admitted(permit) => Ok(permit),
            Self::Reserved(reservation) => Err(reservation.as_refusal().into()),
            Self::Refused(refusal) => Err(refusal.into()),
        }
    }

    /// Waits for the turn if it is reserved, and gives the permit, or the refusal as an error.
    ///
    /// # Errors
    ///
    /// If the request was refused.
    ///
    /// # Panics
    ///
    /// As [`Reservation::ready`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives a reservation up. What was taken at once stays taken.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limit, Quota, RateLimited, RateLimiter, SECOND};
    ///
    /// static CALLS: Limit = Limit::new("calls", Quota::token_bucket(100, SECOND).capacity(1));
    ///
    /// async fn call(limiter: &RateLimiter) -> Result<&'static str, RateLimited> {
    ///     let most = Duration::from_secs(1);
    ///     let _permit = limiter.limit(&CALLS).reserve_within(most).await?.ready().await?;
    ///     Ok("called")
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let limiter = RateLimiter::in_memory();
    /// # for _ in 0..3 {
    /// #     assert!(call(&limiter).await.is_ok());
    /// # }
    /// # }
    /// ```
    pub async fn ready(self) -> Result<Permit<'a>, RateLimited> {
        match self {
            Self::Admitted(permit) => Ok(permit),
            Self::Reserved(reservation) => Ok(reservation.ready().await),
            Self::Refused(refusal) => Err(refusal.into()),
        }
    }
}

/// The tokens were not there; nothing was taken.
///
/// # Examples
///
/// ```
/// use tollgate::{Decision, Limit, MINUTE, Quota, RateLimiter, SECOND};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let limit = Limit::new("calls", Quota::token_bucket(6, MINUTE).capacity(1));
/// let limiter = RateLimiter::in_memory();
/// let _ = limiter.limit(&limit).await?;
///
/// let Decision::Refused(refusal) = limiter.limit(&limit).await? else { unreachable!() };
/// assert!(refusal.retry_after() <= 10 * SECOND);
/// assert_eq!(refusal.limits()[0].limit().name(), "calls");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Refusal<'l> {
    refused: SmallVec<[Standing<'l>; 1]>,
    retry_after: Duration,
}

impl<'l> Refusal<'l> {
    /// Refused by these; all limits together would have let it run after `wait`.
    pub(super) const fn new(
        refused: SmallVec<[Standing<'l>; 1]>,
        wait: Duration,
        jitter: Duration,
    ) -> Self {
        Self { refused, retry_after: wait.saturating_add(jitter) }
    }

    /// Refused by the only limit that was asked.
    #[cfg(feature = "memory")]
    #[inline]
    pub(super) fn of_one(standing: Standing<'l>) -> Self {
        let retry_after = standing.wait();
        Self { refused: SmallVec::from_buf([standing]), retry_after }
    }

    /// The smallest wait after which the same request is admitted, if nobody else comes first; and
    /// the [jitter](super::LimitCall::jitter), where there is any.
    ///
    /// Of several limits it is the longest. A limit in shards may refuse once more if it draws others
    /// then. A request that [reserves](super::LimitCall::reserve) may get its turn earlier than that.
    #[must_use]
    pub const fn retry_after(&self) -> Duration {
        self.retry_after
    }

    /// How each limit stands that refused.
    #[must_use]
    pub fn limits(&self) -> &[Standing<'l>] {
        &self.refused
    }

    /// This on its own, to be moved to where the limiter and the limits are not.
    #[must_use]
    pub fn into_owned(self) -> Refusal<'static> {
        let Self { refused, retry_after } = self;
        let refused = refused.into_iter().map(Standing::into_owned).collect();
        Refusal { refused, retry_after }
    }
}
