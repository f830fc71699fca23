//! Penalties: tokens that are taken whatever is there, and buckets that are closed for a time.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use smallvec::SmallVec;

use super::unstoppable::Unstoppable;
use super::{Error, Limit, RateLimiter, Standing};
use crate::algebra::{Terms, Units, charge};
use crate::backend::{Adjustment, Applied, BackendError, BucketId, Key, Reading};

impl RateLimiter {
    /// Takes tokens from a bucket whatever it holds, into debt if need be: for clients that have
    /// done what costs more than a request.
    ///
    /// The debt is worked off as the bucket gains, and until then everything is refused or waits.
    /// It is not bounded by [`max_reserved`](crate::Quota::max_reserved), but by what can be counted:
    /// deeper than 2^53 units below the capacity it does not get. A limit in shards pays evenly
    /// from all of them. Reservations that were made before keep their instants.
    ///
    /// [`reset`](Self::reset) undoes it. Zero tokens take nothing.
    ///
    /// # Errors
    ///
    /// Awaiting it fails if the backend could not do it.
    ///
    /// # Cancel safety
    ///
    /// The store is asked when it is awaited, and heard to the end if the future is dropped after
    /// that. One that answers later needs a tokio runtime for that, the one in which the future is
    /// dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
    ///
    /// static PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(10, MINUTE));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let limiter = RateLimiter::in_memory();
    /// let standing = limiter.penalize(&PER_CLIENT, 25).key("scanner").await?;
    /// assert_eq!(standing.tokens().to_string(), "-15");
    /// assert_eq!(standing.wait(), MINUTE * 3 / 2);
    ///
    /// limiter.reset(&PER_CLIENT).key("scanner").await?;
    /// assert_eq!(limiter.value(&PER_CLIENT).key("scanner").await?.remaining(), 10);
    /// # Ok(())
    /// # }
    /// ```
    pub const fn penalize<'a>(&'a self, limit: &'a Limit, tokens: u64) -> PenaltyCall<'a> {
        PenaltyCall { limiter: self, limit, key: Key::GLOBAL, penalty: Penalty::Tokens(tokens) }
    }

    /// Closes a bucket for this long from now on: whatever is asked of it before then is refused,
    /// or waits until after it.
    ///
    /// After that a token bucket begins empty. A fixed window gains at its start only, so it stays
    /// closed until the end of the window in which the time is up; the next one is one token short,
    /// or less if the limit is in shards. `Retry-After` and [`Standing::wait`] say how long it really
    /// takes. [`algebra::block`](crate::algebra::block) is the rule.
    ///
    /// * Of two blocks the one that ends later holds. A [penalty](Self::penalize) that is
    ///   given while a bucket is closed comes on top; debt that was there before is worked off
    ///   meanwhile.
    /// * Reservations that were made before keep their instants, those that are made later come after
    ///   it. Where one from before is given up, its place goes to the next in line as ever, also to one
    ///   that came later: no more run during the block than were promised to.
    /// * Tokens that are given back before its last microsecond do not open a token bucket; nor do other
    ///   numbers for its limit. A fixed window can be opened by them, but not before the window begins in which the
    ///   time is up.
    /// * It ends in the year 2255 at the latest. The memory store forgets it last, when its bound is
    ///   reached.
    ///
    /// [`reset`](Self::reset) undoes it. No time at all changes nothing.
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
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let limiter = RateLimiter::in_memory();
    /// limiter.block(&PER_CLIENT, HOUR).key("scanner").await?;
    /// let decision = limiter.limit(&PER_CLIENT).key("scanner").await?;
    /// assert!(decision.retry_after() > Some(HOUR - MINUTE));
    /// # Ok(())
    /// # }
    /// ```
    pub const fn block<'a>(&'a self, limit: &'a Limit, time: Duration) -> PenaltyCall<'a> {
        PenaltyCall { limiter: self, limit, key: Key::GLOBAL, penalty: Penalty::Time(time) }
    }
}

/// A penalty, made by [`RateLimiter::penalize`] and [`RateLimiter::block`]; await it.
#[derive(Clone, Debug)]
#[must_use = "nothing is done until it is awaited"]
pub struct PenaltyCall<'a> {
    limiter: &'a RateLimiter,
    limit: &'a Limit,
    key: Key,
    penalty: Penalty,
}

#[derive(Clone, Copy, Debug)]
enum Penalty {
    Tokens(u64),
    Time(Duration),
}

impl PenaltyCall<'_> {
    /// Whose bucket is meant; everybody's if not set.
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        self.key = key.into();
        self
    }
}

impl<'a> IntoFuture for PenaltyCall<'a> {
    type Output = Result<Standing<'a>, Error>;
    type IntoFuture = Penalizing<'a>;

    fn into_future(self) -> Penalizing<'a> {
        let Self { limiter, limit, key, penalty } = self;
        let (bucket, count) = (limit.bucket(), limit.quota().shard_count());
        let refund = |shard| {
            let id = BucketId::new(limit.name(), &key).shard(shard);
            match penalty {
                Penalty::Tokens(tokens) => {
                    // More than can be counted leaves a bucket as deep as numbers go.
                    let all = bucket.units(tokens).unwrap_or(Units::MAX);
                    Adjustment::refund(id, bucket, part(all, shard, count).saturating_neg())
                }
                Penalty::Time(time) => Adjustment::block(id, bucket, time),
            }
        };
        let refunds: SmallVec<[Adjustment<'_>; 2]> = (0..count).map(refund).collect();
        Penalizing { answer: Unstoppable::new(limiter.backend().adjust(&refunds)), limit }
    }
}

/// What a shard pays of these units: as much as each other, and the first ones what is left over.
fn part(units: Units, shard: u32, count: u32) -> Units {
    let (shard, count) = (Units::from(shard), Units::from(count).max(1));
    units.div_euclid(count).saturating_add(Units::from(shard < units.rem_euclid(count)))
}

/// The future of [`PenaltyCall`]: how the limit stands after it. Its [`wait`](Standing::wait) is the
/// time until the bucket is out of debt.
#[must_use = "whether it worked is known only when it is awaited"]
pub struct Penalizing<'a> {
    answer: Unstoppable<Applied>,
    limit: &'a Limit,
}

impl<'a> Future for Penalizing<'a> {
    type Output = Result<Standing<'a>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.answer).poll(cx));
        let limit = self.limit;
        let standing = answer.and_then(|refunded| {
            let now = refunded.now();
            // As somebody finds it who asks for nothing.
            let look = |state| charge(limit.bucket(), state, 0, Terms::AT_ONCE, now);
            let looks = refunded.readings().iter().map(|reading| look(reading.state()));
            let readings: SmallVec<[Reading; 2]> = looks
                .map(|seen| Reading::new(seen.verdict(), seen.before(), seen.wait()))
                .collect();
            let shards = usize::try_from(limit.quota().shard_count()).unwrap_or(usize::MAX);
            if readings.len() != shards {
                return Err(BackendError::incomplete());
            }
            Ok(Standing::of(limit, &readings, now))
        });
        Poll::Ready(standing.map_err(|error| Error::backend(limit, error)))
    }
}

impl fmt::Debug for Penalizing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Penalizing").field("limit", &self.limit.name()).finish_non_exhaustive()
    }
}
