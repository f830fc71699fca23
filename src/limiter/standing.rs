//! How a limit stands.

use std::sync::Arc;
use std::time::Duration;

use super::Limit;
use crate::algebra::{State, Tokens, Units, Verdict};
use crate::backend::Reading;
use crate::clock::Timestamp;
use crate::quota::Kind;

/// How a limit stands for a key: what its bucket held when it was asked.
///
/// Of a limit in [`shards`](crate::Quota::shards), [`value`](crate::RateLimiter::value) tells the sum
/// of all shards at one instant. A decision looks at two of them only, and tells what all would
/// hold if the others were as these were before it: an estimate, which is right on average.
///
/// # Examples
///
/// Predicting on another machine what the limiter would say, from what it last said:
///
/// ```
/// use tollgate::algebra::{Verdict, calculate};
/// use tollgate::{HOUR, Limit, Quota, RateLimiter};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limit = Limit::new("exports", Quota::token_bucket(10, HOUR));
/// let limiter = RateLimiter::in_memory();
/// let _ = limiter.limit(&limit).key("alice").cost(9).await?;
///
/// let standing = limiter.value(&limit).key("alice").await?;
/// let soon = standing.at() + HOUR / 10;
/// let next = calculate(limit.quota(), Some(standing.state()), soon, 2)?;
/// assert_eq!(next.verdict(), Verdict::Admitted);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Standing<'l> {
    limit: Borrowed<'l>,
    stand: Stand,
    now: Timestamp,
}

/// A limit, mostly somebody else's.
#[derive(Clone, Debug)]
enum Borrowed<'l> {
    Limit(&'l Limit),
    Own(Arc<Limit>),
}

/// The same without the limit and the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stand {
    pub(crate) verdict: Verdict,
    /// Of a limit in shards, what all of them hold.
    pub(crate) state: State,
    pub(crate) wait: Duration,
}

impl Stand {
    /// How a bucket stands of which no more is known.
    pub(crate) const fn after(state: State) -> Self {
        Self { verdict: Verdict::Admitted, state, wait: Duration::ZERO }
    }

    /// What the readings of one charge come to: one, or two for a limit in shards.
    #[inline]
    pub(crate) fn of(limit: &Limit, readings: &[Reading]) -> Self {
        // The shards of one charge say the same. Of all shards, one that has it is enough.
        let Some(first) = readings.iter().min_by_key(|reading| reading.wait()) else {
            // Answers are looked at as a whole before they are read: see `ask::complete`.
            let state = State { value: 0, ts: Timestamp::UNIX_EPOCH };
            return Self { verdict: Verdict::Refused, state, wait: Duration::ZERO };
        };
        let mut stand = Self { verdict: first.verdict(), state: first.state(), wait: first.wait() };
        if readings.len() > 1 || limit.is_in_shards() {
            stand.state.value = sum(readings, limit.quota().shard_count());
        }
        stand
    }
}

/// What `shards` of them hold if they were like these on average, before these have paid.
fn sum(readings: &[Reading], shards: u32) -> Units {
    let total = |of: fn(&Reading) -> Units| {
        readings.iter().map(|reading| i128::from(of(reading))).fold(0, i128::saturating_add)
    };
    let paid = total(Reading::units);
    let held = total(|reading| reading.state().value).saturating_add(paid);
    let count = i128::try_from(readings.len()).unwrap_or(1).max(1);
    let all = held.saturating_mul(i128::from(shards)).div_euclid(count).saturating_sub(paid);
    Units::try_from(all).unwrap_or(if all < 0 { Units::MIN } else { Units::MAX })
}

impl<'l> Standing<'l> {
    /// How a limit stands that has admitted a request, and holds this now.
    pub(super) const fn admitted(limit: &'l Limit, state: State, now: Timestamp) -> Self {
        Self { limit: Borrowed::Limit(limit), stand: Stand::after(state), now }
    }

    #[inline]
    pub(crate) fn of(limit: &'l Limit, readings: &[Reading], now: Timestamp) -> Self {
        Self { limit: Borrowed::Limit(limit), stand: Stand::of(limit, readings), now }
    }

    /// This on its own, to be moved to where the limiter and the limit are not.
    #[must_use]
    pub fn into_owned(self) -> Standing<'static> {
        let limit = match self.limit {
            Borrowed::Limit(limit) => Arc::new(limit.clone()),
            Borrowed::Own(limit) => limit,
        };
        Standing { limit: Borrowed::Own(limit), stand: self.stand, now: self.now }
    }

    #[cfg(feature = "axum")]
    pub(crate) const fn stand(&self) -> &Stand {
        &self.stand
    }

    /// The limit.
    #[must_use]
    pub fn limit(&self) -> &Limit {
        match &self.limit {
            Borrowed::Limit(limit) => limit,
            Borrowed::Own(limit) => limit,
        }
    }

    /// The whole tokens that could be taken at once; zero in debt.
    ///
    /// Of a limit in shards, a single request can take no more than what two of them hold.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.tokens().whole()
    }

    /// The exact tokens, fraction and debt included.
    #[must_use]
    pub fn tokens(&self) -> Tokens {
        self.limit().bucket().tokens(self.stand.state.value)
    }

    /// The state of the bucket, as [`calculate`](crate::algebra::calculate) takes it; of a limit in
    /// shards, the value of all of them.
    #[must_use]
    pub const fn state(&self) -> State {
        self.stand.state
    }

    /// The time at which this was so.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        self.now
    }

    /// Whether the limit by itself would let the request run, whatever others said that were asked
    /// with it.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        self.stand.verdict
    }

    /// How long until the bucket has what was asked of it; zero if it had.
    #[must_use]
    pub const fn wait(&self) -> Duration {
        self.stand.wait
    }

    /// How long until the bucket is full, if nothing is taken until then; of a limit in shards, if
    /// all of them hold the same.
    #[must_use]
    pub fn full_after(&self) -> Duration {
        let State { value, ts } = self.stand.state;
        let each = value.div_euclid(i64::from(self.limit().quota().shard_count()).max(1));
        self.limit().bucket().full_at(State { value: each, ts }).since(self.now)
    }

    /// The start of the window; `None` for a token bucket.
    #[must_use]
    pub fn window_start(&self) -> Option<Timestamp> {
        match self.limit().bucket().kind() {
            Kind::FixedWindow => Some(self.stand.state.ts),
            Kind::TokenBucket => None,
        }
    }
}
