//! Penalties, blocks and resets: taking tokens whatever the bucket holds, closing a bucket for a time,
//! and making it new.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use smallvec::SmallVec;

use super::Limit;
use super::detached::DetachOnDrop;
use super::engine::RateLimiter;
use super::peek::read;
use super::progress::{BucketCall, Progress};
use super::rate_limited::RateLimited;
use super::snapshot::Snapshot;
use crate::algebra::Units;
use crate::backend::{Adjustment, Answer, Applied, BackendError, BucketId, IntoKey, Key};
use crate::clock::Timestamp;

impl RateLimiter {
    /// Takes tokens from a bucket whatever it holds, into debt if need be.
    ///
    /// Use it for clients that have done something which should cost more than a request. While the
    /// bucket is in debt, every request is refused or waits. The debt is paid off as the bucket
    /// refills.
    ///
    /// The debt is not bounded by [`max_reserved`](crate::Quota::max_reserved), but only by what can
    /// be counted. That is at least `max_reserved`, or ten times the capacity if that is not set. What
    /// is beyond is not owed: [`Snapshot::tokens`] says what is, and the log warns once of the limit.
    /// A limit in shards pays evenly from all shards. Reservations that were made before keep their
    /// instants. Zero tokens take nothing. [`reset`](Self::reset) undoes a penalty.
    ///
    /// # Errors
    ///
    /// Awaiting it fails if the store failed or did not answer. It is refused if the limit was made
    /// with a quota that grants [nothing](crate::Quota::none), as such a bucket cannot be counted.
    ///
    /// # Cancel safety
    ///
    /// The store is asked at the first poll. It completes the penalty even if the call is dropped
    /// after that. A store that answers later needs a tokio runtime for that: the one in which the
    /// call is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
    ///
    /// static PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(10, MINUTE));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::RateLimited> {
    /// let limiter = RateLimiter::in_memory();
    /// let snapshot = limiter.penalize(&PER_CLIENT, 25).key("scanner").await?;
    /// assert_eq!(snapshot.tokens().to_string(), "-15");
    /// assert_eq!(snapshot.wait(), Some(MINUTE * 3 / 2));
    ///
    /// limiter.reset(&PER_CLIENT).key("scanner").await?;
    /// assert_eq!(limiter.peek(&PER_CLIENT).key("scanner").await?.remaining(), 10);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("penalty", "debit"))]
    #[inline]
    pub fn penalize<'l>(&'l self, limit: &'l Limit, tokens: u64) -> ChangeCall<'l, Snapshot> {
        ChangeCall::new(self, limit, BucketChange::Tokens(tokens))
    }

    /// Closes a bucket for `time` from now on.
    ///
    /// Until then, a request is refused, or waits until after the block. Then a token bucket starts
    /// empty. A fixed window refills at the start of a window only, so it stays closed until the
    /// window ends in which the block does; the next window has one token less, or a part of one if
    /// the limit is in shards. Where windows begin with the
    /// [first use](crate::Quota::from_first_use), the block of a full bucket begins one. `Retry-After` and [`Snapshot::wait`] have the exact time.
    /// [`algebra::block`](crate::algebra::block) is the formula.
    ///
    /// * Of two blocks, the one that ends later counts. A [penalty](Self::penalize) during a block
    ///   is added to it. Debt from before is paid off meanwhile.
    /// * Reservations that were made before keep their instants; those that are made later come
    ///   after the block. If one from before is cancelled, its slot goes to the next waiter as
    ///   always, even to one that came later. So no more work runs during the block than was
    ///   promised before it.
    /// * On a token bucket, neither refunds nor a changed quota end a block early, but by a part of the
    ///   [step](crate::Quota#what-is-exact) in which it counts. They can open a fixed window, but not
    ///   before the window starts in which the block ends.
    /// * A block ends in the year 2255 at the latest. A memory store at its bound evicts blocked
    ///   buckets last, but only half of [its bound](crate::backend::Memory::max_keys) is for
    ///   blocked keys.
    ///
    /// [`reset`](Self::reset) undoes a block. A `time` of zero changes nothing.
    ///
    /// # Errors
    ///
    /// As [`penalize`](Self::penalize).
    ///
    /// # Cancel safety
    ///
    /// As [`penalize`](Self::penalize).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimiter};
    ///
    /// static PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(10, MINUTE));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::RateLimited> {
    /// let limiter = RateLimiter::in_memory();
    /// limiter.block(&PER_CLIENT, HOUR).key("scanner").await?;
    /// let refused = limiter.limit(&PER_CLIENT).key("scanner").await.unwrap_err();
    /// assert!(refused.retry_after() > Some(HOUR - MINUTE));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("blacklist", "blocklist", "lock_out", "ban"))]
    #[inline]
    pub fn block<'l>(&'l self, limit: &'l Limit, time: Duration) -> ChangeCall<'l, Snapshot> {
        ChangeCall::new(self, limit, BucketChange::Block(time))
    }

    /// Makes a bucket as if it had never been used, [penalized](Self::penalize) or
    /// [blocked](Self::block).
    ///
    /// Where [`Rule::block_after`](crate::Rule::block_after) counts refusals, in a layer of this program,
    /// that count begins again.
    ///
    /// The reset forgives what was taken before. So a permit from before the reset returns nothing
    /// after it: the same tokens would come back twice. A settlement above what was paid is
    /// still taken. A request that waits keeps its place. What it is granted after the reset is
    /// taken from the fresh bucket, and can be returned to it.
    ///
    /// * **In memory**, this holds for all limiters on the store.
    /// * **In a store that other processes use as well**, this holds for the permits of this
    ///   limiter and its clones. Permits of other processes from before the reset still return what
    ///   they took, and so do refunds that are pending during it. That many tokens more than the
    ///   quota allows may run after the reset.
    ///
    /// A permit may also return nothing if it is held during some 60,000 resets of other keys: for
    /// 50 minutes at 20 resets a second. A hash assigns each bucket to one of 64 lists (one for
    /// each shard of a memory store of more than 65,536 keys). Each list keeps the last 1,024
    /// resets of its buckets, and a permit from before all of these returns nothing. A limit in
    /// shards counts as one key for each shard. A full list takes 16 KiB; all 64 take 1 MiB.
    ///
    /// # Errors
    ///
    /// Awaiting it fails if the store failed or did not answer.
    ///
    /// # Cancel safety
    ///
    /// A call that is dropped before a store has answered may have reset the bucket, or may not.
    /// The memory store answers the first poll.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tollgate::{HOUR, Limit, Quota, RateLimiter};
    /// # const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::RateLimited> {
    /// # let limiter = RateLimiter::in_memory();
    /// let _all = limiter.limit(&LOGIN).key("alice").cost(5).await?;
    /// limiter.reset(&LOGIN).key("alice").await?;
    /// assert_eq!(limiter.peek(&LOGIN).key("alice").await?.remaining(), 5);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("clear", "delete", "unban", "unblock", "resetKey"))]
    #[inline]
    pub fn reset<'l>(&'l self, limit: &'l Limit) -> ChangeCall<'l, ()> {
        ChangeCall::new(self, limit, BucketChange::Reset)
    }
}

/// A penalty, a block or a reset, made by [`RateLimiter::penalize`], [`RateLimiter::block`] or
/// [`RateLimiter::reset`]; await it.
///
/// Its output is `Result<T, RateLimited>`: how the limit stands then, or nothing after a reset. If the
/// key is set after the first poll, both keys are concerned: the store has been asked for the first.
#[derive(Debug)]
#[must_use = "nothing is done until it is awaited"]
pub struct ChangeCall<'l, T> {
    call: BucketCall<'l, Applied>,
    change: BucketChange,
    output: PhantomData<fn() -> T>,
}

#[derive(Clone, Copy, Debug)]
enum BucketChange {
    Tokens(u64),
    Block(Duration),
    Reset,
}

impl<'l, T> ChangeCall<'l, T> {
    #[inline]
    const fn new(limiter: &'l RateLimiter, limit: &'l Limit, change: BucketChange) -> Self {
        Self { call: BucketCall::new(limiter, limit), change, output: PhantomData }
    }

    /// Sets the key of the bucket to change; the bucket that all callers share if not set.
    #[inline]
    pub fn key(mut self, key: impl IntoKey) -> Self {
        self.call.set_key(key);
        self
    }

    fn poll_changed(&mut self, cx: &mut Context<'_>) -> Poll<Result<Applied, BackendError>> {
        let change = self.change;
        let BucketCall { limiter, limit, key, progress } = &mut self.call;
        progress.poll(cx, || change.ask(limiter, limit, key))
    }
}

impl BucketChange {
    fn ask(self, limiter: &RateLimiter, limit: &Limit, key: &Key) -> Answer<Applied> {
        let change = |id| self.of_bucket(limit, id);
        let changes: Option<SmallVec<[Adjustment<'_>; 2]>> =
            limit.shards(key).map(change).collect();
        let Some(changes) = changes else {
            let ids: SmallVec<[BucketId<'_>; 1]> = limit.shards(key).collect();
            return limiter.forget(&ids).map(|()| Applied::many(Timestamp::UNIX_EPOCH, Vec::new()));
        };
        let answer = limiter.state.backend.adjust(&changes);
        match limiter.watch_debts(&changes, answer) {
            ready @ Answer::Ready(_) => ready,
            pending => Answer::Pending(Box::pin(DetachOnDrop::new(pending))),
        }
    }

    /// `None` for a reset.
    fn of_bucket<'l>(self, limit: &'l Limit, id: BucketId<'l>) -> Option<Adjustment<'l>> {
        let bucket = limit.bucket();
        match self {
            Self::Tokens(tokens) => {
                // A number that does not fit in units takes as much as can be counted.
                let all = bucket.units(tokens).unwrap_or(Units::MAX);
                let part = share_of_shard(all, id.shard_index(), limit.quota().get_shards());
                Some(Adjustment::refund(id, bucket, part.saturating_neg()))
            }
            Self::Block(time) => Some(Adjustment::block(id, bucket, time)),
            Self::Reset => None,
        }
    }
}

/// What this shard pays of a penalty: an even part. The remainder is paid by the first shards.
fn share_of_shard(units: Units, shard: u32, count: u32) -> Units {
    let (shard, count) = (Units::from(shard), Units::from(count).max(1));
    units.div_euclid(count).saturating_add(Units::from(shard < units.rem_euclid(count)))
}

impl Future for ChangeCall<'_, Snapshot> {
    type Output = Result<Snapshot, RateLimited>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.call.begin_counting()?;
        let answer = ready!(self.poll_changed(cx));
        let BucketCall { limiter, limit, .. } = self.call;
        // The change itself costs nothing: how the limit stands for a cost of zero.
        let snapshot = answer.and_then(|changed| read(limit, 0, &changed));
        Poll::Ready(limiter.finish_call(limit, snapshot))
    }
}

impl Future for ChangeCall<'_, ()> {
    type Output = Result<(), RateLimited>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Progress::New = self.call.progress {
            self.call.limit = self.call.limiter.counting(self.call.limit);
        }
        let answer = ready!(self.poll_changed(cx));
        let BucketCall { limiter, limit, .. } = &self.call;
        Poll::Ready(answer.map(drop).map_err(|error| limiter.call_failed(limit, error)))
    }
}
