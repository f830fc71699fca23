//! Where buckets live: the contract between the limiter and its store, and the engines.
//!
//! # Design
//!
//! One operation carries everything: [`Backend::apply`] takes a list of [`Charge`]s, all or
//! nothing, and reports what each bucket holds. [`adjust`](Backend::adjust) and
//! [`reset`](Backend::reset) are the other two. A backend adds no rule of its own: it applies the
//! functions of [`algebra`](crate::algebra) to what it has stored, atomically, at the time that
//! its own clock shows. A store that can read and write records gets that for nothing: it is a
//! [`BucketStore`].
//!
//! A limit in shards is charged where there is more: a charge that names
//! [two shards](Charge::second_shard) is paid by the fuller one, or by both, as
//! [`charge_pair`](crate::algebra::charge_pair) says. It is still one charge, which can be part of
//! any list, and its two buckets are read, decided and written as one.
//!
//! The trait is free of type parameters and lifetimes in its answers, so that a
//! [`RateLimiter`](crate::RateLimiter) is one type whatever its store. A store that answers at
//! once, like [`Memory`], returns [`Answer::Ready`], which costs no allocation and no `await`.

mod adjustment;
mod answer;
mod apply;
mod charge;
mod error;
mod key;
mod key_parts;
mod limit_head;
#[cfg(feature = "memory")]
mod memory;
mod record;
#[cfg(feature = "redis")]
mod redis;
mod repeats;
mod reset_log;
#[cfg(test)]
#[cfg(feature = "memory")]
mod tests;

use std::fmt;
use std::sync::Arc;

pub use self::adjustment::{Adjustment, Change};
pub use self::answer::{Answer, Applied, Reading};
pub use self::apply::{BucketStore, adjust_all, apply_all, reset_all};
pub use self::charge::{BucketId, Charge};
pub use self::error::BackendError;
pub use self::key::Key;
pub(crate) use self::limit_head::LimitHead;
#[cfg(feature = "memory")]
pub use self::memory::Memory;
#[cfg(feature = "memory")]
pub(crate) use self::memory::{
    LinePlace, LineTicket, LineTimer, LineWaiter, UnknownBucket, WaiterStatus,
};
pub use self::record::BucketRecord;
#[cfg(feature = "redis")]
pub use self::redis::{ColdStart, HashTag, Redis, RedisBuilder};
pub(crate) use self::repeats::Repeats;
pub(crate) use self::reset_log::{ResetLog, ResetMark};

/// A store of buckets.
///
/// # The contract
///
/// * A bucket is identified by its [`BucketId`] alone. One that is not stored is
///   [absent](crate::algebra::Bucket::absent), with [`BucketId::phase`] for its windows.
/// * Each call reads the clock once, and no other call is seen half done.
/// * A bucket that is [full](crate::algebra::Bucket::full_at) and [droppable
///   then](crate::algebra::Bucket::is_droppable_when_full) may be dropped, as an absent one is full
///   as well. No answer depends on whether it was, whatever its numbers become, as long as no call
///   is decided by a time before it was full. A store that alone reads its clock, like a Redis
///   server, may drop it at that very instant. A store whose clock may go back keeps it for as much
///   longer; [`Memory`] keeps it for a second.
/// * The time of a state may be one to come, as after a [block](crate::algebra::block) or when the
///   clock has gone back. No time has passed for it then, and it is kept until it is full.
/// * A state that was stored for other numbers is [rescaled](crate::algebra::rescale) when it is
///   read, never misread. If it is full by those numbers, it counts as absent in all respects.
/// * A bucket that is named twice is charged twice, in the order of the charges; each reading of it
///   shows what it holds in the end.
/// * The shards of a limit are buckets like any others, and may be stored apart; those that one
///   call names are still charged as one.
///
/// # Cancel safety
///
/// An answer that is [`Pending`](Answer::Pending) may be dropped at any time. Whether the operation
/// still takes effect is then unknown, but it takes effect at most once and never in part.
///
/// # Examples
///
/// A backend around a backend, which counts what is refused:
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use tollgate::algebra::Verdict;
/// use tollgate::backend::{Adjustment, Answer, Applied, Backend, BucketId, Charge, Memory};
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
    note = "for buckets in this process use `RateLimiter::in_memory()`; numbers are not told to the \
            limiter, but to a `Limit`, which each call names: `limiter.limit(&LIMIT)`"
)]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Takes all charges, or none of them if one is refused.
    ///
    /// Charges are taken in the order given, so a bucket named twice is charged twice. A charge
    /// that only looks is judged like the others, and nothing is stored for it. Nothing is stored
    /// for a refusal or a charge of zero units either, with two exceptions for charges that take:
    ///
    /// * A bucket that does not [equal a full one](crate::algebra::Bucket::is_droppable_when_full)
    ///   when absent is stored on its first use, as it begins to fill then.
    /// * If the list is refused, each bucket that is stored in other numbers than those of the
    ///   charge is stored in these: [rescaled](crate::algebra::rescale) and
    ///   [refreshed](crate::algebra::Bucket::refresh), with nothing taken. Its client is told a
    ///   wait by the new numbers, which holds only if the bucket gains by these from then on. A
    ///   bucket that counts as absent is not stored for this. One that the list names by several
    ///   numbers is stored in those of the last charge that takes.
    ///
    /// An ordinary charge is what [`charge`](crate::algebra::charge) says. One that names [two
    /// shards](Charge::second_shard) is what [`charge_pair`](crate::algebra::charge_pair) says:
    ///
    /// 1. The fuller shard has the units: admitted, and it pays for all.
    /// 2. Both together have them: admitted. Both pay, and are left with as much as each other.
    /// 3. The fuller shard alone can reserve them on the terms of the charge: reserved.
    /// 4. Both together can, each within the terms: reserved, and both pay as in 2.
    /// 5. Refused, with the smallest wait after which the two shards have the units.
    ///
    /// Of two shards that hold the same, the charge's own counts as the fuller. The one that does
    /// not pay is not stored for this charge, unless this is its first use and it does not forget.
    /// Other charges may name the same shards: a later charge of the list finds what the earlier
    /// ones left, as when an ordinary bucket is named twice. (For this, a refused charge counts as
    /// if it had been taken, so that each wait covers the charges before it.)
    ///
    /// There is one [`Reading`] for each bucket that is named: in the order of the charges, and the
    /// two of a two-choices charge next to each other, its own shard first. Both have the verdict
    /// and the wait of the charge, and each the [units](Reading::units) that its bucket has paid.
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied>;

    /// Makes all adjustments, or none of them if a bucket does not
    /// [allow](Adjustment::is_allowed) one.
    ///
    /// First every bucket is checked as it stands before the call. Then each adjustment is made in
    /// order, as [`Adjustment::apply_to`] says. Nothing is stored for a bucket that is not stored
    /// and from which none [takes](Adjustment::takes): it is full, or was never used.
    ///
    /// There is one [`Reading`] for each adjustment, in order, with the state of its bucket
    /// afterwards. Every reading says [`Admitted`](crate::algebra::Verdict::Admitted) if the
    /// adjustments were made, and [`Refused`](crate::algebra::Verdict::Refused) if none was; it has
    /// no wait and no units.
    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied>;

    /// Forgets these buckets, all at once, so that their next use is their first.
    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()>;
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
}
