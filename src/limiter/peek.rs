//! Looking at a limit.

use std::cmp::Reverse;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use smallvec::SmallVec;

use super::Limit;
use super::engine::RateLimiter;
use super::progress::{BucketCall, Progress};
use super::rate_limited::RateLimited;
use super::snapshot::{Level, Snapshot, wait_of};
use crate::algebra::{Bucket, State, Terms, Verdict, charge, charge_pair_slower, charge_slower};
use crate::backend::{Applied, BackendError, Charge, IntoKey, Reading};
use crate::quota::tokens_of;

impl RateLimiter {
    /// Looks how a limit stands and whether [`cost`](PeekCall::cost) tokens fit. Takes nothing.
    ///
    /// The answer is a [`Snapshot`]: what is left, whether the cost would fit, and the wait if not.
    /// For a limit in [shards](crate::Quota::shards), it looks at all shards at one instant; the
    /// cost fits if the two fullest have it together.
    ///
    /// Do not run the work because a peek says that it fits: another request may come in between.
    /// Only [`limit`](Self::limit) takes.
    ///
    /// # Errors
    ///
    /// Awaiting it fails if the store did not answer. A cost that can never fit is no error: its
    /// snapshot has no [`wait`](Snapshot::wait).
    ///
    /// # Cancel safety
    ///
    /// A peek changes nothing, so it can be dropped at any time.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{HOUR, Limit, Quota, RateLimited, RateLimiter};
    ///
    /// const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), RateLimited> {
    /// let limiter = RateLimiter::in_memory();
    /// let snapshot = limiter.peek(&LOGIN).key("alice").cost(2).await?;
    /// assert!(snapshot.fits());
    /// assert_eq!((snapshot.remaining(), snapshot.capacity()), (5, 5));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("value", "status", "get_state", "estimate", "test", "remaining"))]
    #[doc(alias("available_tokens", "get_tokens"))]
    #[inline]
    pub fn peek<'l>(&'l self, limit: &'l Limit) -> PeekCall<'l> {
        PeekCall { call: BucketCall::new(self, limit), cost: 1 }
    }
}

/// A look at a limit, made by [`RateLimiter::peek`]; await it.
///
/// Its output is `Result<Snapshot, RateLimited>`. How many requests [wait](Self::waiting) for the
/// bucket can be read without awaiting it.
#[derive(Debug)]
#[must_use = "nothing is asked until it is awaited"]
pub struct PeekCall<'l> {
    pub(super) call: BucketCall<'l, Applied>,
    cost: u64,
}

impl PeekCall<'_> {
    /// Sets the key of the bucket to look at; the bucket that all callers share if not set.
    #[inline]
    pub fn key(mut self, key: impl IntoKey) -> Self {
        self.call.set_key(key);
        self
    }

    /// Sets how many tokens to look for; one if not set.
    ///
    /// It takes integers of all types, as [`LimitCall::cost`](super::LimitCall::cost). A cost of zero
    /// fits unless the bucket is in debt.
    #[inline]
    pub fn cost(mut self, tokens: impl TryInto<u64>) -> Self {
        self.call.progress.restart();
        self.cost = tokens_of(tokens);
        self
    }
}

/// Combines the readings of all buckets of a limit, for a request of this cost.
pub(super) fn read(limit: &Limit, cost: u64, applied: &Applied) -> Result<Snapshot, BackendError> {
    let (readings, at) = (applied.readings(), applied.now());
    if u32::try_from(readings.len()) != Ok(limit.quota().get_shards()) {
        return Err(BackendError::incomplete());
    }
    let mut level = Level::new(limit, readings, cost, at);
    let bucket = limit.bucket();
    let units = bucket.units(cost).filter(|_| !limit.is_too_large(cost, Terms::AT_ONCE));
    let charged = units.map(|units| match two_fullest(bucket, applied) {
        [Some(first), Some(second)] => {
            let best = charge_pair_slower([first, second], bucket, units, Terms::AT_ONCE, at, at);
            (best.verdict(), Some(best.wait()))
        }
        [Some((own, state)), None] => {
            let charged = match own == *bucket {
                true => charge(bucket, state, units, Terms::AT_ONCE, at),
                false => charge_slower(&own, state, bucket, units, Terms::AT_ONCE, at, at),
            };
            (charged.verdict(), Some(charged.wait()))
        }
        [None, _] => (Verdict::Refused, None),
    });
    let (verdict, wait) = charged.unwrap_or((Verdict::Refused, None));
    (level.verdict, level.wait) = (verdict, wait.and_then(|wait| wait_of(limit, verdict, wait)));
    let mut snapshot = Snapshot::new(limit, level);
    if let [_] = readings {
        snapshot.set_kept(applied.kept(0));
    }
    Ok(snapshot)
}

/// The two fullest buckets, each with the numbers by which it gains and its state in those.
fn two_fullest(bucket: &Bucket, applied: &Applied) -> [Option<(Bucket, State)>; 2] {
    let held = applied.readings().iter().map(Reading::state).enumerate();
    let mut held: SmallVec<[(usize, State); 2]> = held.collect();
    held.sort_by_key(|(_, state)| Reverse(state.value));
    [0, 1].map(|place| {
        let &(nth, state) = held.get(place)?;
        Some(applied.kept(nth).map_or((*bucket, state), |own| (*own.bucket(), own.state())))
    })
}

impl Future for PeekCall<'_> {
    type Output = Result<Snapshot, RateLimited>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { call, cost } = &mut *self;
        let BucketCall { limiter, limit, key, progress } = call;
        if let Progress::New = progress {
            *limit = limiter.state.replacements.current(limit);
            if limit.quota().is_none() {
                *progress = Progress::Done;
                let snapshot = Snapshot::of_nothing(limit, *cost);
                return Poll::Ready(Ok(snapshot.with_speech(&limiter.state.speech)));
            }
        }
        let submit = || {
            // The states of the buckets are enough: `read` works out whether the cost fits.
            let look = |id| Charge::look(id, limit.bucket(), 0);
            let looks: SmallVec<[Charge<'_>; 1]> = limit.shards(key).map(look).collect();
            limiter.state.backend.apply(&looks)
        };
        let answer = ready!(progress.poll(cx, submit));
        let snapshot = answer.and_then(|applied| read(limit, *cost, &applied));
        Poll::Ready(limiter.finish_call(limit, snapshot))
    }
}
