//! A local store that decides while another one fails.
//!
//! # Design
//!
//! **Kept warm.** While all is well, each charge that the store has taken is taken in the local store
//! as well, by the local numbers, and each settlement, penalty and reset is repeated there. A charge
//! empties a local bucket at most, and puts none into debt. So a client that has used up its limit
//! finds an empty local bucket when the store fails, and not a full one.
//!
//! **One store for each permit.** The answer of the local store is marked, the permit keeps the mark,
//! and what it gives back carries it. So a permit that was paid locally is settled locally, also when
//! the store is back. What was paid in the store comes back to a local bucket as far as that has paid
//! it too: a bucket that was short has paid a part, and the mark tells which.
//!
//! ```text
//!           charge                    store answers          charge in the local store too
//! limiter ─────────▶ Fallback ─▶ store ─────────▶ permit         (its answer does not matter)
//!                       │          ✗ outage
//!                       └─▶ local store ────────▶ permit, marked ─▶ settled in the local store
//! ```
//!
//! **No debt.** The local store reserves nothing. A slot in it would mean nothing to the queues of the
//! limiter, whose instants are those of the store.

mod numbers;
#[cfg(test)]
#[cfg(feature = "memory")]
mod tests;
mod understudy;

use std::sync::Arc;

use self::understudy::Understudy;
use super::Backend;
use super::adjustment::Adjustment;
use super::answer::{Answer, Applied};
use super::charge::{BucketId, Charge};
use super::debtors::{DebtorQuery, DebtorReport};
use super::error::BackendError;
use super::origin::Origin;
use super::owned::{OwnedAdjustment, OwnedBucketId, OwnedCharge};
use crate::quota::{Quota, QuotaError};

/// Decides by a local store while another store fails.
///
/// During an [outage](BackendError::is_outage), a request is decided by the local store, by numbers
/// of its own: a part of the limit's that [`nodes`](Self::nodes) says, or what
/// [`quota`](Self::quota) says for a limit by name. Clients get ordinary answers: 200, or 429 with
/// the time to come back.
///
/// * **Which limits.** All, except those with an [`on_failure`](crate::Limit::on_failure) of their
///   own: `Refuse` refuses the request with 503, and `Admit` admits it uncounted. Of several limits
///   in a call, one that refuses decides for all, and one that admits is not counted.
/// * **The switch.** The local buckets are kept warm: they have what this process has taken from the
///   store lately. A client that has used up its limit through this process does not find a full
///   bucket. What it took through other processes is not known here.
/// * **Permits** are settled and refunded in the store that they were paid in. If that is the other
///   store, a local bucket that has paid a part of the charge gets back no more than that.
/// * **Waiting.** In an outage, a request that would have to wait is refused, with the time at which
///   the local bucket has its tokens. Requests that wait already keep their instants.
/// * **The log and observers** hear of an outage and its end as without a fallback, with how many
///   requests were admitted and refused meanwhile.
/// * **Peeks** go to the store alone, and fail while it does; so do lists of
///   [debtors](crate::RateLimiter::debtors).
/// * **Resets, penalties and blocks** are made in the store and in the local store. If the store
///   fails, the call fails, and the local part has been done.
/// * A cost that the local numbers can never hold is not decided: it fails as without a fallback.
///
/// # How much is admitted
///
/// With `n` nodes and `nodes(n)`, all local buckets of a key gain together what the limit gains. When
/// the store fails, they hold at most one capacity in addition to what the store has admitted; when
/// it comes back, its bucket has not been charged for the outage. So each switch can admit one
/// capacity more than the limit, or one token for each node if that is more, and nothing else does.
///
/// # Order
///
/// It is the outermost wrapper: around a [`DenyCache`](super::DenyCache), which is around a
/// [`CircuitBreaker`](super::CircuitBreaker). Without a breaker, each request waits for the deadline
/// of the store before it is decided here. Do not put one fallback into another: what the inner one
/// has granted could then not be given back, and is not.
///
/// # Examples
///
/// ```
/// use tollgate::backend::{CircuitBreaker, Fallback, Memory};
/// use tollgate::{HOUR, Limit, MINUTE, OnFailure, Quota, RateLimiter};
///
/// const API: Limit = Limit::new("api", Quota::token_bucket(600, MINUTE));
/// // No password is tried while attempts cannot be counted.
/// const LOGIN: Limit =
///     Limit::new("login", Quota::token_bucket(5, HOUR)).on_failure(OnFailure::Refuse);
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use tollgate::backend::{Adjustment, Answer, Applied, Backend, BackendError, BucketId, Charge};
/// # #[derive(Debug)] struct Down;
/// # fn fail<T>() -> Answer<T> { Answer::Ready(Err(BackendError::unavailable("down", "it is down"))) }
/// # impl Backend for Down {
/// #     fn apply(&self, _: &[Charge<'_>]) -> Answer<Applied> { fail() }
/// #     fn adjust(&self, _: &[Adjustment<'_>]) -> Answer<Applied> { fail() }
/// #     fn reset(&self, _: &[BucketId<'_>]) -> Answer<()> { fail() }
/// # }
/// # let redis = Down;
/// let store = Fallback::new(CircuitBreaker::new(redis), Memory::new()).nodes(3);
/// let limiter = RateLimiter::new(store);
///
/// // Redis is down: a third of the limit is left to this process.
/// let permit = limiter.limit(&API).key("alice").await?;
/// assert_eq!(permit.remaining(), 199);
/// assert!(limiter.limit(&LOGIN).key("alice").await.unwrap_err().is_outage());
/// # Ok(())
/// # }
/// ```
#[doc(alias("insurance", "insuranceLimiter", "degraded", "failover", "local"))]
#[derive(Debug)]
pub struct Fallback<B, L> {
    store: B,
    local: Arc<Understudy<L>>,
}

impl<B: Backend, L: Backend> Fallback<B, L> {
    /// Lets `local` decide while `store` fails, for now by the full numbers of each limit.
    ///
    /// The local store has to answer at once, as [`Memory`](super::Memory) does: it is charged with
    /// each request, and what it answers later is not waited for while the store works.
    #[must_use]
    pub fn new(store: B, local: L) -> Self {
        Self { store, local: Arc::new(Understudy::new(local)) }
    }

    /// Sets how many nodes share the limits; 1 if not set. In an outage, each has that part of the
    /// rate and of the capacity, but a capacity of one token at least. Zero counts as one.
    ///
    /// For a limit in shards, each of its shards has that part.
    #[doc(alias = "share")]
    #[must_use]
    pub fn nodes(mut self, nodes: u32) -> Self {
        self.change(|local| local.numbers.set_nodes(nodes));
        self
    }

    /// Sets the numbers of a limit in an outage, by the name of the limit, in place of its part.
    ///
    /// For a limit in shards, give this quota as many shards.
    ///
    /// # Errors
    ///
    /// If the quota contradicts itself or does not fit. It is also an error if it grants
    /// [nothing](Quota::none): a limit that says [`OnFailure::Refuse`](crate::Limit::on_failure) has
    /// that meaning, and its error says that the store has failed.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tollgate::backend::{Fallback, Memory};
    /// use tollgate::{MINUTE, Quota};
    ///
    /// # fn run(redis: Memory) -> Result<(), tollgate::quota::QuotaError> {
    /// let store = Fallback::new(redis, Memory::new())
    ///     .nodes(4)
    ///     .quota("exports", Quota::token_bucket(1, MINUTE))?;
    /// # drop(store);
    /// # Ok(())
    /// # }
    /// # run(Memory::new()).unwrap();
    /// ```
    pub fn quota(mut self, limit: &str, quota: Quota) -> Result<Self, QuotaError> {
        let mut result = Ok(());
        self.change(|local| result = local.numbers.set_quota(limit, &quota));
        result.map(|()| self)
    }

    /// How many requests the local store has admitted in place of the store.
    #[must_use]
    pub fn admitted(&self) -> u64 {
        self.local.admitted()
    }

    /// How many requests the local store has refused in place of the store.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.local.refused()
    }

    /// Changes the local part before it is shared. No call was made yet, so there is one handle.
    fn change(&mut self, change: impl FnOnce(&mut Understudy<L>)) {
        if let Some(local) = Arc::get_mut(&mut self.local) {
            change(local);
        }
    }
}

impl<B: Backend, L: Backend> Backend for Fallback<B, L> {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        if !charges.iter().any(Charge::takes) {
            return self.store.apply(charges).map(from_store);
        }
        match self.store.apply(charges) {
            Answer::Ready(answer) => finish_charges(&self.local, charges, answer),
            Answer::Pending(answer) => {
                let owned: Vec<_> = charges.iter().map(|charge| charge.into_owned()).collect();
                let local = Arc::clone(&self.local);
                Answer::pending(async move {
                    let answer = answer.await;
                    let decided = {
                        let charges: Vec<_> = owned.iter().map(OwnedCharge::as_charge).collect();
                        finish_charges(&local, &charges, answer)
                    };
                    decided.wait().await
                })
            }
        }
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        let origins = adjustments.iter().map(Adjustment::origin);
        match origins.reduce(Origin::and).unwrap_or_default() {
            Origin::Fallback => return self.local.settle(adjustments),
            // It cannot be told which store has paid, so nothing is given back to any.
            Origin::Unknown => {
                let mut nothing = adjustments.to_vec();
                for one in nothing.iter_mut().filter(|one| one.origin() != Origin::Store) {
                    *one = one.with_change(one.change().returning_nothing());
                }
                return self.store.adjust(&nothing);
            }
            Origin::Store => {}
        }
        match self.store.adjust(adjustments) {
            Answer::Ready(answer) => {
                self.local.repeat(adjustments, answer.as_ref().ok());
                Answer::Ready(answer)
            }
            Answer::Pending(answer) => {
                let owned: Vec<_> = adjustments.iter().map(|one| one.into_owned()).collect();
                let local = Arc::clone(&self.local);
                Answer::pending(async move {
                    let answer = answer.await;
                    let adjustments: Vec<_> =
                        owned.iter().map(OwnedAdjustment::as_adjustment).collect();
                    local.repeat(&adjustments, answer.as_ref().ok());
                    answer
                })
            }
        }
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.local.forget(ids);
        match self.store.reset(ids) {
            ready @ Answer::Ready(_) => ready,
            Answer::Pending(answer) => {
                let owned: Vec<_> = ids.iter().map(|id| id.into_owned()).collect();
                let local = Arc::clone(&self.local);
                Answer::pending(async move {
                    let answer = answer.await;
                    // Again: charges may have been repeated since that were made before the reset.
                    local.forget(&owned.iter().map(OwnedBucketId::as_id).collect::<Vec<_>>());
                    answer
                })
            }
        }
    }

    fn charges_several(&self) -> bool {
        self.store.charges_several() && self.local.charges_several()
    }

    fn answers_at_once(&self) -> bool {
        self.store.answers_at_once() && self.local.answers_at_once()
    }

    /// Asks the store alone, and fails while it does.
    fn debtors(&self, query: &DebtorQuery) -> Answer<DebtorReport> {
        self.store.debtors(query)
    }
}

/// Repeats in the local store what the store has taken, or lets the local store decide.
fn finish_charges<L: Backend>(
    local: &Understudy<L>,
    charges: &[Charge<'_>],
    answer: Result<Applied, BackendError>,
) -> Answer<Applied> {
    match answer {
        Ok(applied) => Answer::Ready(Ok(from_store(local.mirror(charges, applied)))),
        Err(error) => local.decide(charges, error),
    }
}

/// The answer of the store. If that has a fallback of its own, its mark would be taken for ours.
fn from_store(applied: Applied) -> Applied {
    match applied.origin() {
        Origin::Store => applied,
        Origin::Fallback | Origin::Unknown => applied.with_origin(Origin::Unknown),
    }
}
