//! The limiter: limits by name and key, decided by a backend.

mod all;
mod ask;
#[cfg(feature = "middleware")]
mod bill;
mod call;
mod decision;
mod error;
mod limit;
#[cfg(feature = "middleware")]
mod more;
mod penalty;
mod permit;
mod question;
mod queue;
mod random;
mod rate_limited;
mod reservation;
mod share;
mod standing;
mod store;
mod unstoppable;

use std::sync::Arc;

pub use self::all::{All, AllCall};
#[cfg(feature = "middleware")]
pub(crate) use self::ask::{Ask, Wish, ask};
#[cfg(feature = "middleware")]
pub(crate) use self::bill::Bill;
pub use self::call::{CheckCall, LimitCall, ResetCall, ValueCall};
pub use self::decision::{Decision, Refusal};
pub use self::error::Error;
pub use self::limit::{Limit, LimitError};
#[cfg(feature = "middleware")]
pub(crate) use self::more::take_more;
pub use self::penalty::{Penalizing, PenaltyCall};
pub use self::permit::{Permit, Settling};
pub use self::question::Call;
use self::queue::Lines;
#[cfg(feature = "middleware")]
pub(crate) use self::queue::{Booking, Spot, Used, Waiting};
pub(crate) use self::random::Random;
pub use self::rate_limited::RateLimited;
pub use self::reservation::{Ready, Reservation};
#[cfg(feature = "middleware")]
pub(crate) use self::share::{Share, Shares, complete, said};
#[cfg(feature = "middleware")]
pub(crate) use self::standing::Stand;
pub use self::standing::Standing;
use self::store::Store;
#[cfg(feature = "middleware")]
pub(crate) use self::unstoppable::Unstoppable;
use crate::backend::Backend;
#[cfg(feature = "memory")]
use crate::backend::Memory;

/// Decides, for each request, whether its work may run now.
///
/// A limiter is a handle: clones share its buckets. It needs no list of limits. Every
/// [`Limit`] names itself at the call, and two that share a name share their buckets.
///
/// # Examples
///
/// ```
/// use tollgate::{Decision, HOUR, Limit, Quota, RateLimiter};
///
/// const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::RateLimited> {
/// let limiter = RateLimiter::in_memory();
/// let decision = limiter.limit(&LOGIN).key("alice").await?;
/// if let Decision::Refused(refusal) = &decision {
///     println!("come back in {:?}", refusal.retry_after());
/// }
/// assert!(decision.is_admitted());
///
/// // A limit for everybody, given where it is needed, and left by `?` where it refuses.
/// let sign_ups = Limit::new("sign-ups", Quota::fixed_window(1_000, HOUR));
/// let permit = limiter.limit(&sign_ups).await?.into_result()?;
/// assert_eq!(permit.remaining(), 999);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RateLimiter {
    shared: Arc<Shared>,
}

/// What the clones of a limiter share.
#[derive(Debug)]
struct Shared {
    store: Store,
    lines: Lines,
    random: Random,
}

impl RateLimiter {
    /// A limiter that keeps its buckets in `backend`.
    #[must_use]
    pub fn new(backend: impl Backend) -> Self {
        let (store, lines, random) = (Store::of(backend), Lines::new(), Random::default());
        Self { shared: Arc::new(Shared { store, lines, random }) }
    }

    /// A limiter that keeps its buckets in this process, at most
    /// [`Memory::MAX_KEYS`](crate::backend::Memory::MAX_KEYS) of them.
    #[cfg(feature = "memory")]
    #[must_use]
    pub fn in_memory() -> Self {
        Self::new(Memory::new())
    }

    /// Takes tokens from a limit: one, from the bucket that everybody shares, unless
    /// [`key`](LimitCall::key) and [`cost`](LimitCall::cost) say otherwise.
    ///
    /// # Errors
    ///
    /// Awaiting it fails if the cost can never fit, or if the backend could not decide. A refusal
    /// is no error: see [`Decision`].
    ///
    /// # Cancel safety
    ///
    /// The memory store answers the first poll, so there is nothing to cancel. With another store
    /// the tokens may be taken although nobody waits for the answer.
    #[inline]
    pub fn limit<'a: 'l, 'l>(&'a self, limit: &'l Limit) -> LimitCall<'a, 'l> {
        LimitCall::new(self, limit)
    }

    /// Takes tokens from several limits: from all of them, or from none.
    ///
    /// It is one step for the store, so nobody sees half of it. The refusal names every limit that
    /// has refused, and tells the longest wait.
    ///
    /// # Errors
    ///
    /// As [`limit`](Self::limit).
    ///
    /// # Cancel safety
    ///
    /// As [`limit`](Self::limit).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limit, MINUTE, Quota, RateLimited, RateLimiter, SECOND};
    ///
    /// static PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(10, SECOND));
    /// static LLM_TOKENS: Limit = Limit::new("llm-tokens", Quota::token_bucket(40_000, MINUTE));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), RateLimited> {
    /// let limiter = RateLimiter::in_memory();
    /// let both = limiter.all().limit(&PER_CLIENT).key("alice").limit(&LLM_TOKENS).cost(900);
    /// let permit = both.await?.into_result()?;
    /// let left: Vec<_> = permit.standings().map(|standing| standing.remaining()).collect();
    /// assert_eq!(left, [9, 39_100]);
    /// # Ok(())
    /// # }
    /// ```
    pub const fn all(&self) -> All<'_> {
        All::new(self)
    }

    /// Looks what [`limit`](Self::limit) would answer, and takes nothing.
    ///
    /// # Errors
    ///
    /// As [`limit`](Self::limit).
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed, so nothing can be half done.
    #[inline]
    pub fn check<'a: 'l, 'l>(&'a self, limit: &'l Limit) -> CheckCall<'a, 'l> {
        CheckCall::new(self, limit)
    }

    /// Makes a bucket as if it had never been used, or [penalized](Self::penalize), or
    /// [blocked](Self::block).
    ///
    /// # Errors
    ///
    /// Awaiting it fails if the backend could not do it.
    ///
    /// # Cancel safety
    ///
    /// As [`limit`](Self::limit).
    ///
    /// # Examples
    ///
    /// ```
    /// # use tollgate::{HOUR, Limit, Quota, RateLimiter};
    /// # const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// # let limiter = RateLimiter::in_memory();
    /// let _ = limiter.limit(&LOGIN).key("alice").cost(5).await?;
    /// limiter.reset(&LOGIN).key("alice").await?;
    /// assert_eq!(limiter.value(&LOGIN).key("alice").await?.remaining(), 5);
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn reset<'a>(&'a self, limit: &'a Limit) -> ResetCall<'a> {
        ResetCall::new(self, limit)
    }

    /// Looks how a bucket stands.
    ///
    /// # Errors
    ///
    /// Awaiting it fails if the backend could not say.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed, so nothing can be half done.
    #[inline]
    pub fn value<'a>(&'a self, limit: &'a Limit) -> ValueCall<'a> {
        ValueCall::new(self, limit)
    }

    /// Draws all jitter, the shards that pay and the requests of a sample from this seed from here on, so
    /// that a test gets the same in each run.
    ///
    /// The clones of a limiter draw from one sequence.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        self.shared.random.reseed(seed);
        self
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        self.shared.store.backend()
    }

    /// The store, if it is the one of this process.
    #[cfg(feature = "memory")]
    #[inline]
    pub(crate) fn memory(&self) -> Option<&Memory> {
        match &self.shared.store {
            Store::Memory(memory) => Some(memory),
            Store::Other(_) => None,
        }
    }

    pub(crate) fn random(&self) -> &Random {
        &self.shared.random
    }

    pub(crate) fn lines(&self) -> &Lines {
        &self.shared.lines
    }
}
