//! What a change has to know of the charge that it settles.

use super::origin::Origin;
use super::reset_log::ResetMark;
use crate::algebra::{State, Units};

/// What the store that took units wants to be told when they are settled, refunded or undone: which
/// of several stores took them, before or after which reset, and what they left in the bucket.
///
/// A wrapper that makes [`Reading`](super::Reading)s or [`Adjustment`](super::Adjustment)s of its own,
/// for instance to rename buckets, hands it on. A refund without it may give tokens back twice, such as
/// those that a reset has forgiven, or to a store that did not take them.
///
/// # Examples
///
/// A wrapper that gives each application of a shared store its own buckets:
///
/// ```
/// use tollgate::backend::{
///     Adjustment, Answer, Applied, Backend, BucketId, Charge, Key, Memory,
/// };
/// use tollgate::{HOUR, Limit, Quota, RateLimiter};
///
/// #[derive(Debug)]
/// struct Prefixed<B> {
///     inner: B,
///     prefix: &'static str,
/// }
///
/// impl<B: Backend> Prefixed<B> {
///     fn names<'a>(&self, ids: impl Iterator<Item = BucketId<'a>>) -> Vec<String> {
///         ids.map(|id| format!("{}-{}", self.prefix, id.limit())).collect()
///     }
/// }
///
/// impl<B: Backend> Backend for Prefixed<B> {
///     fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
///         let names = self.names(charges.iter().map(|one| one.id()));
///         let renamed = charges.iter().zip(&names).map(|(one, name)| {
///             one.with_id(BucketId::new(name, one.id().key()).shard(one.id().shard_index()))
///         });
///         self.inner.apply(&renamed.collect::<Vec<_>>())
///     }
///
///     fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
///         let names = self.names(adjustments.iter().map(|one| one.id()));
///         let renamed = adjustments.iter().zip(&names).map(|(one, name)| {
///             one.with_id(BucketId::new(name, one.id().key()).shard(one.id().shard_index()))
///         });
///         self.inner.adjust(&renamed.collect::<Vec<_>>())
///     }
///
///     fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
///         let names = self.names(ids.iter().copied());
///         let renamed = ids.iter().zip(&names).map(|(id, name)| {
///             BucketId::new(name, id.key()).shard(id.shard_index())
///         });
///         self.inner.reset(&renamed.collect::<Vec<_>>())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let limiter = RateLimiter::new(Prefixed { inner: Memory::new(), prefix: "shop" });
/// let limit = Limit::new("reports", Quota::token_bucket(1, HOUR));
/// limiter.limit(&limit).await.unwrap().refund().await.unwrap();
/// assert!(limiter.limit(&limit).await.is_ok());
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Receipt {
    /// How many resets the store knew of; `None` if a reset since then makes no difference.
    pub(super) mark: Option<ResetMark>,
    /// The store that took the units.
    pub(super) origin: Origin,
    /// What the local store of a fallback has not paid of them. It gets that much less back.
    pub(super) unpaid: Units,
    /// What the charge left in the bucket, if the caller knows.
    pub(super) charged: Option<State>,
}

impl Receipt {
    pub(super) const NONE: Self =
        Self { mark: None, origin: Origin::Store, unpaid: 0, charged: None };

    pub(crate) const fn new(mark: ResetMark, origin: Origin, unpaid: Units, left: State) -> Self {
        Self { mark: Some(mark), origin, unpaid, charged: Some(left) }
    }

    /// What the charge left in the bucket: for a store that keeps part of its tokens elsewhere.
    #[doc(hidden)]
    #[must_use]
    pub const fn charged(&self) -> Option<State> {
        self.charged
    }
}
