//! Where buckets live: the stores, and the contract between a limiter and its store.
//!
//! | store | for |
//! |---|---|
//! | [`Memory`] | one process: the default, with the feature `memory`; [saved](Memory::save_to) for the next one if wanted |
//! | `Redis`, in [`tollgate-redis`](https://docs.rs/tollgate-redis) | any number of processes that share their buckets |
//! | `Postgres`, in [`tollgate-postgres`](https://docs.rs/tollgate-postgres) | the same, in a database that there is already |
//! | `Embedded`, in [`tollgate-embedded`](https://docs.rs/tollgate-embedded) | one process whose limits survive a restart |
//! | `Optimistic`, in [`tollgate-optimistic`](https://docs.rs/tollgate-optimistic) | any store that can compare and swap |
//! | `Leasing`, in [`tollgate-leasing`](https://docs.rs/tollgate-leasing) | a wrapper for limits that are hotter than a store |
//! | your own | any other store: implement [`Backend`], most easily by [`BucketStore`]; the crate `tollgate-conformance` has its tests |
//!
//! Wrappers around any of them, for the day on which a store is not well:
//!
//! | wrapper | for |
//! |---|---|
//! | [`CircuitBreaker`] | a store that hangs: calls fail at once instead of at their deadline |
//! | [`DenyCache`] | floods: a bucket that is known to be short refuses without a trip |
//! | [`Fallback`] | outages: this process decides by numbers of its own until the store is back |
//!
//! They are composed from the store outwards:
//!
//! ```
//! use tollgate::RateLimiter;
//! use tollgate::backend::{CircuitBreaker, DenyCache, Fallback, Memory};
//!
//! # let redis = Memory::new();
//! let store = DenyCache::new(CircuitBreaker::new(redis));
//! let limiter = RateLimiter::new(Fallback::new(store, Memory::new()).nodes(4));
//! # drop(limiter);
//! ```
//!
//! # Examples
//!
//! A limiter takes its store when it is made. The rest of the program does not depend on which it
//! is:
//!
//! ```
//! use tollgate::RateLimiter;
//! use tollgate::backend::Memory;
//!
//! let limiter = RateLimiter::new(Memory::new().max_keys(100_000));
//! # drop(limiter);
//! ```
//!
//! # Design
//!
//! One operation does nearly everything: [`Backend::apply`] takes a list of [`Charge`]s, all or
//! nothing, and reports what each bucket holds. [`adjust`](Backend::adjust) and
//! [`reset`](Backend::reset) are the other two, and [`debtors`](Backend::debtors) lists buckets for
//! operators, where a store can. A backend adds no rule of its own. It applies the
//! functions of [`algebra`](crate::algebra) to the states that it has stored, atomically, at the
//! time of its own clock. A store that can read and write records gets all of that from
//! [`BucketStore`].
//!
//! A limit in shards is charged where there is more. A charge that names [two
//! shards](Charge::second_shard) is paid by the fuller one, or by both, as
//! [`charge_pair`](crate::algebra::charge_pair) says. It is still one charge, which can be part of
//! any list, and its two buckets are read, decided and written in one step.
//!
//! The trait has no type parameters, and its answers no lifetimes, so a
//! [`RateLimiter`](crate::RateLimiter) is one type whatever its store. A store that answers at
//! once, like [`Memory`], returns [`Answer::Ready`], which needs no allocation and no `await`.

mod adjustment;
mod answer;
mod apply;
mod charge;
mod circuit_breaker;
// The suite is compiled into the unit tests, which play its random calls: as a dependency, it would
// bring another copy of every type.
#[cfg(test)]
#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    unused_macros,
    reason = "unit tests use parts of it"
)]
#[path = "../../crates/conformance/src/lib.rs"]
pub(crate) mod conformance;
mod debtors;
mod deny_cache;
mod error;
mod error_text;
mod fallback;
mod key;
mod key_parts;
mod key_text;
mod limit_head;
#[cfg(feature = "memory")]
mod memory;
mod on_failure;
mod origin;
mod owned;
mod receipt;
mod record;
mod repeats;
mod reset_log;
#[cfg(test)]
#[cfg(feature = "memory")]
mod tests;

use std::fmt;
use std::sync::Arc;

pub use self::adjustment::{Adjustment, Change};
pub(crate) use self::answer::FEW;
#[cfg(feature = "memory")]
pub(crate) use self::answer::MOST;
pub use self::answer::{Answer, Applied, Reading};
pub use self::apply::{BucketStore, adjust_all, apply_all, reset_all};
pub use self::charge::{BucketId, Charge};
pub use self::circuit_breaker::CircuitBreaker;
pub use self::debtors::{Debtor, DebtorQuery, DebtorReport};
pub use self::deny_cache::DenyCache;
pub use self::error::BackendError;
pub use self::fallback::Fallback;
pub use self::key::{IntoKey, Key};
pub(crate) use self::limit_head::LimitHead;
#[cfg(feature = "memory")]
pub use self::memory::Memory;
#[cfg(feature = "memory")]
pub(crate) use self::memory::{
    LinePlace, LineTicket, LineTimer, LineWaiter, Taken, TakenPair, UnknownBucket, WaiterStatus,
};
pub use self::on_failure::OnFailure;
pub(crate) use self::origin::Origin;
pub use self::owned::{OwnedAdjustment, OwnedBucketId, OwnedCharge};
pub use self::receipt::Receipt;
pub use self::record::BucketRecord;
pub(crate) use self::repeats::Repeats;
pub(crate) use self::reset_log::{ResetLog, ResetMark};

/// A store of buckets, which a [`RateLimiter`](crate::RateLimiter) asks for every decision.
///
/// # The contract
///
/// * A bucket is identified by its [`BucketId`] alone. A bucket that is not stored is
///   [absent](crate::algebra::Bucket::absent), with [`BucketId::phase`] for its windows.
/// * Each call reads the clock once. A call is atomic: no other call sees it half done.
/// * A bucket that is [full](crate::algebra::Bucket::full_at), and [droppable
///   then](crate::algebra::Bucket::is_droppable_when_full), may be dropped, because an absent one
///   is full as well. No answer may depend on whether it was, whatever its quota becomes, as long
///   as no call is decided at a time before it was full. A store that alone reads its clock, like a
///   Redis server, may drop it at that very instant. A store whose clock may go back by some time
///   has to keep the bucket for that much longer; [`Memory`] keeps it for a second.
/// * The time of a state may lie in the future, after a [block](crate::algebra::block) or if the
///   clock has gone back. Then no time has passed for it, and it is kept until it is full.
/// * A state that was stored for another quota of the limit is [rescaled](crate::algebra::rescale)
///   when it is read. If it is full by the old quota, it counts as absent in all respects. If it
///   does not [yield](crate::algebra::Bucket::yields_to) to the new one, a charge follows
///   [`charge_slower`](crate::algebra::charge_slower).
/// * A bucket that is named twice is charged twice, in the order of the charges. Each reading of it
///   shows what it holds after all of them.
/// * The shards of a limit are buckets like any others, and may be stored apart. The two shards of
///   one charge are still charged in one step.
///
/// # Wrappers
///
/// A wrapper around another backend returns what that returns, also for the operations that have a
/// default: without them, what the inner store can do fails with an error that says so. If it makes
/// readings or adjustments of its own, it hands on their [`Receipt`].
///
/// Requests that wait stand in one line only in the [`Memory`] store, and behind a wrapper that hands
/// on its [`lines`](Self::lines). Behind any other they have instants of their own, as on a shared
/// store.
///
/// # Cancel safety
///
/// An answer that is [`Pending`](Answer::Pending) may be dropped at any time. Whether the operation
/// still takes effect is then unknown, but it takes effect at most once and never in part.
///
/// # Examples
///
/// A wrapper around another backend that counts refusals; [`OwnedCharge`] has one that answers
/// later:
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use tollgate::algebra::Verdict;
/// use tollgate::backend::{
///     Adjustment, Answer, Applied, Backend, BucketId, Charge, DebtorQuery, DebtorReport, Memory,
/// };
/// use tollgate::{HOUR, Limit, Quota, RateLimiter};
///
/// #[derive(Debug)]
/// struct Counting<B> {
///     inner: B,
///     refused: &'static AtomicU64,
/// }
///
/// impl<B: Backend> Backend for Counting<B> {
///     fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
///         let refused = self.refused;
///         let count = move |applied: &Applied| {
///             refused.fetch_add(u64::from(applied.verdict() == Verdict::Refused), Ordering::Relaxed);
///         };
///         match self.inner.apply(charges) {
///             Answer::Ready(answer) => Answer::Ready(answer.inspect(count)),
///             Answer::Pending(answer) => {
///                 Answer::pending(async move { answer.await.inspect(count) })
///             }
///         }
///     }
///
///     fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
///         self.inner.adjust(adjustments)
///     }
///
///     fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
///         self.inner.reset(ids)
///     }
///
///     fn charges_several(&self) -> bool {
///         self.inner.charges_several()
///     }
///
///     fn answers_at_once(&self) -> bool {
///         self.inner.answers_at_once()
///     }
///
///     fn debtors(&self, query: &DebtorQuery) -> Answer<DebtorReport> {
///         self.inner.debtors(query)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// static REFUSED: AtomicU64 = AtomicU64::new(0);
/// let limiter = RateLimiter::new(Counting { inner: Memory::new(), refused: &REFUSED });
/// let limit = Limit::new("reports", Quota::token_bucket(1, HOUR));
/// assert!(limiter.limit(&limit).await.is_ok());
/// for _ in 0..2 {
///     assert!(limiter.limit(&limit).await.unwrap_err().is_refused());
/// }
/// assert_eq!(REFUSED.load(Ordering::Relaxed), 2);
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a store for buckets",
    note = "for buckets in this process use `RateLimiter::in_memory()`; the numbers of a limit belong \
            to a `Limit`, which each call names: `limiter.limit(&LIMIT)`",
    note = "a builder, such as `Redis::at(..)`, makes a store by `.connect().await?`"
)]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Takes all charges, or none of them if one is refused.
    ///
    /// Charges are taken in the order given. A charge that only looks is judged like the others,
    /// and nothing is stored for it. Nothing is stored for a refusal or a charge of zero units
    /// either, with two exceptions for charges that take:
    ///
    /// * A bucket that does not [equal a full one](crate::algebra::Bucket::is_droppable_when_full)
    ///   when it is absent is stored on its first use, because it starts to fill then.
    /// * If the list is refused, each bucket that is stored for another quota and
    ///   [yields](crate::algebra::Bucket::yields_to) to that of the charge is
    ///   [rescaled](crate::algebra::rescale) and [refreshed](crate::algebra::Bucket::refresh), and
    ///   stored for the quota of the charge, with nothing taken. The client is told a wait by the
    ///   new quota, and that wait only holds if the bucket gains by it from then on. A bucket that
    ///   counts as absent is not stored for this. If the list names a bucket with several quotas,
    ///   this is done for one charge after the other.
    ///
    /// An ordinary charge follows [`charge`](crate::algebra::charge). One that names [two
    /// shards](Charge::second_shard) follows [`charge_pair`](crate::algebra::charge_pair). The
    /// first rule that holds decides:
    ///
    /// 1. The fuller shard has the units: admitted, and it pays for all.
    /// 2. Both together have them: admitted. Both pay, and are left with equal values.
    /// 3. The fuller shard alone can reserve them on the terms of the charge: reserved.
    /// 4. Both together can reserve them, each within the terms: reserved, and both pay as in 2.
    /// 5. Otherwise refused, with the smallest wait after which the two shards have the units.
    ///
    /// Of two shards that hold the same, the charge's own counts as the fuller. A shard that does
    /// not pay is not stored for this charge, unless this is its first use and it is not droppable
    /// when full. Other charges may name the same shards: a later charge of the list finds what the
    /// earlier ones left. For this, a refused charge counts as if it had been taken, so that each
    /// wait covers the charges before it.
    ///
    /// The answer has one [`Reading`] for each bucket that is named, in the order of the charges.
    /// The two of a two-choices charge stand next to each other, its own shard first. Both have the
    /// verdict and the wait of the charge, and each has the [units](Reading::units) that its bucket
    /// has paid.
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied>;

    /// Makes all adjustments, or none of them if a bucket does not
    /// [allow](Adjustment::is_allowed) one.
    ///
    /// First every bucket is checked as it stands before the call. Then each adjustment is made in
    /// order, as [`Adjustment::apply_to`] says. A bucket of which some is used by another quota
    /// stays counted in that, and the adjustment is converted to it. An adjustment that does not
    /// [take](Adjustment::takes) stores nothing for a bucket that is not stored: that bucket is
    /// full, or was never used.
    ///
    /// The answer has one [`Reading`] for each adjustment, in order, with the state of its bucket
    /// afterwards. Every reading is [`Admitted`](crate::algebra::Verdict::Admitted) if the
    /// adjustments were made, and [`Refused`](crate::algebra::Verdict::Refused) if none was. It has
    /// no wait and no units.
    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied>;

    /// Forgets these buckets, in one step. Their next use is their first.
    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()>;

    /// Whether one call can take from the buckets of several limits; true unless this is
    /// implemented.
    ///
    /// The contract asks for it. A store that cannot change several values in one step returns
    /// false, and calls that would need it fail. A [layer](crate::RateLimitLayer) of several limits
    /// is then refused when it is built, and not with each of its requests. A wrapper around
    /// another backend returns what that returns.
    ///
    /// It is about the store itself, and not about keys: a cluster of Redis returns true, although
    /// it cannot take from buckets in different slots.
    fn charges_several(&self) -> bool {
        true
    }

    /// Whether each call is answered at once ([`Answer::Ready`]), and needs no runtime; false unless
    /// this is implemented.
    ///
    /// [`LimitCall::now`](crate::limiter::LimitCall::now) asks such a store alone. A wrapper around
    /// another backend returns what that returns.
    fn answers_at_once(&self) -> bool {
        false
    }

    /// The memory store in whose lines reservations wait, first in, first out; `None` unless this is
    /// implemented.
    ///
    /// With `None`, which is right for every wrapper, they wait [as on a shared
    /// store](crate::_guide::queueing#with-redis-or-a-store-of-your-own). A wrapper that hands on each
    /// call as it is, to count or to log, may return what the other backend returns, and always the
    /// same. It is then not asked for reservations, also not by a layer with a queue, but for what
    /// these give back. A wrapper that renames buckets, or decides itself, must return `None`: the
    /// lines would grant its tokens a second time. The suite in `tollgate-conformance` finds buckets
    /// that are renamed.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::backend::{Adjustment, Answer, Applied, Backend, BucketId, Charge, Memory};
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
    ///     fn lines(&self) -> Option<&Memory> {
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
    /// assert!(limiter.peek(&SPACED).longest_wait() <= SECOND);
    /// # drop(second);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "memory")]
    fn lines(&self) -> Option<&Memory> {
        None
    }

    /// Lists buckets of one limit that are in debt or blocked: for operators, and for no decision.
    ///
    /// A store that can go through its records by the name of a limit lets
    /// [`DebtorQuery::debtor`] judge each of them, and answers a [`Page`](DebtorReport::Page). One
    /// that keeps no names may answer a [`Count`](DebtorReport::Count). Any other store is
    /// [`Unsupported`](DebtorReport::Unsupported), as all are that do not implement this. An empty
    /// page would say that no bucket is in debt.
    ///
    /// * It changes nothing.
    /// * It looks at a bounded number of records in a call, and keeps the deadline of the store, so
    ///   that no decision waits for it. It says by a cursor where to go on.
    /// * From the first page to the last, each bucket that is on the list all the while comes at
    ///   least once. If nothing changes meanwhile, each comes exactly once.
    /// * Each page is judged at its own time, and has no more than
    ///   [so many](DebtorQuery::get_max) buckets.
    /// * The shards of a limit are buckets like any others.
    /// * A cursor that the store has not made is an error that [says
    ///   so](BackendError::is_unknown_cursor).
    ///
    /// A wrapper around another backend returns what that returns.
    fn debtors(&self, query: &DebtorQuery) -> Answer<DebtorReport> {
        let _ = query;
        Answer::Ready(Ok(DebtorReport::Unsupported))
    }
}

impl<B: Backend + ?Sized> Backend for Arc<B> {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        (**self).apply(charges)
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        (**self).adjust(adjustments)
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        (**self).reset(ids)
    }

    fn charges_several(&self) -> bool {
        (**self).charges_several()
    }

    fn answers_at_once(&self) -> bool {
        (**self).answers_at_once()
    }

    #[cfg(feature = "memory")]
    fn lines(&self) -> Option<&Memory> {
        (**self).lines()
    }

    fn debtors(&self, query: &DebtorQuery) -> Answer<DebtorReport> {
        (**self).debtors(query)
    }
}

/// What stores outside of this crate use besides the contract.
pub(crate) mod kit {
    pub use super::adjustment::micros;
    pub use super::answer::Remarks;
    pub use super::apply::{CellStore, absent, adjust_list, apply_list, apply_one};
    pub use super::key::{Part, next_part};
    pub use super::key_text::{KeySink, is_plain, write_key, write_text};
    pub use super::limit_head::LimitHead;
    pub use super::record::Found;
}
