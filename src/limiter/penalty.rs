//! Penalties and blocks: taking tokens whatever the bucket holds, and closing a bucket for a time.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use smallvec::SmallVec;

use super::Limit;
use super::detached::DetachOnDrop;
use super::engine::RateLimiter;
use super::peek::read;
use super::progress::BucketCall;
use super::rate_limited::RateLimited;
use super::snapshot::Snapshot;
use crate::algebra::Units;
use crate::backend::{Adjustment, Answer, Applied, BucketId, Key};

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
    pub fn penalize<'l>(&'l self, limit: &'l Limit, tokens: u64) -> PenaltyCall<'l> {
        PenaltyCall { call: BucketCall::new(self, limit), penalty: Penalty::Tokens(tokens) }
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
    pub fn block<'l>(&'l self, limit: &'l Limit, time: Duration) -> PenaltyCall<'l> {
        PenaltyCall { call: BucketCall::new(self, limit), penalty: Penalty::Block(time) }
    }
}

/// A penalty or a block, made by [`RateLimiter::penalize`] or [`RateLimiter::block`]; await it.
///
/// Its output is `Result<Snapshot, RateLimited>`: how the limit stands then. If the key is set
/// after the first poll, both keys are concerned: the store has been asked for the first.
#[derive(Debug)]
#[must_use = "nothing is done until it is awaited"]
pub struct PenaltyCall<'l> {
    call: BucketCall<'l, Applied>,
    penalty: Penalty,
}

#[derive(Clone, Copy, Debug)]
enum Penalty {
    Tokens(u64),
    Block(Duration),
}

impl PenaltyCall<'_> {
    /// Sets the key of the bucket to penalize or to block; the bucket that all callers share if not
    /// set.
    #[inline]
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        self.call.set_key(key);
        self
    }
}

impl Penalty {
    fn of_bucket<'l>(self, limit: &'l Limit, id: BucketId<'l>) -> Adjustment<'l> {
        let bucket = limit.bucket();
        match self {
            Self::Tokens(tokens) => {
                // A number that does not fit in units takes as much as can be counted.
                let all = bucket.units(tokens).unwrap_or(Units::MAX);
                let part = share_of_shard(all, id.shard_index(), limit.quota().get_shards());
                Adjustment::refund(id, bucket, part.saturating_neg())
            }
            Self::Block(time) => Adjustment::block(id, bucket, time),
        }
    }
}

/// What this shard pays of a penalty: an even part. The remainder is paid by the first shards.
fn share_of_shard(units: Units, shard: u32, count: u32) -> Units {
    let (shard, count) = (Units::from(shard), Units::from(count).max(1));
    units.div_euclid(count).saturating_add(Units::from(shard < units.rem_euclid(count)))
}

impl Future for PenaltyCall<'_> {
    type Output = Result<Snapshot, RateLimited>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { call, penalty } = &mut *self;
        call.begin_counting()?;
        let BucketCall { limiter, limit, key, progress } = call;
        let submit = || {
            let changes: SmallVec<[Adjustment<'_>; 2]> =
                limit.shards(key).map(|id| penalty.of_bucket(limit, id)).collect();
            let answer = limiter.backend().adjust(&changes);
            match limiter.watch_debts(&changes, answer) {
                ready @ Answer::Ready(_) => ready,
                pending => Answer::Pending(Box::pin(DetachOnDrop::new(pending))),
            }
        };
        let answer = ready!(progress.poll(cx, submit));
        // The change itself costs nothing: how the limit stands for a cost of zero.
        let snapshot = answer.and_then(|changed| read(limit, 0, &changed));
        Poll::Ready(limiter.finish_call(limit, snapshot))
    }
}
