//! How a limit stands for a key.

use std::time::Duration;

use super::Limit;
use crate::algebra::{State, Tokens, Units, Verdict};
use crate::backend::Reading;
use crate::clock::Timestamp;
use crate::quota::Kind;

/// How a limit stands for a key at one instant: what is left, whether a cost fits, and the wait.
///
/// [`peek`](crate::RateLimiter::peek) looks at a bucket and answers one. A permit, a reservation, a
/// settlement and a refusal tell by it how the limit stood when they were decided.
///
/// Of a limit in [`shards`](crate::Quota::shards), `peek` tells the sum of all shards at one
/// instant. A decision looks at two of them only, and tells what all would hold if the others
/// were as these two were before it: an estimate, which is right on average.
///
/// # Examples
///
/// Predicting elsewhere what the limiter would say, from what it last said:
///
/// ```
/// use tollgate::algebra::{Verdict, calculate};
/// use tollgate::{HOUR, Limit, Quota, RateLimiter};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limit = Limit::new("exports", Quota::token_bucket(10, HOUR));
/// let limiter = RateLimiter::in_memory();
/// limiter.limit(&limit).key("alice").cost(9).await?;
///
/// let snapshot = limiter.peek(&limit).key("alice").cost(2).await?;
/// assert!(!snapshot.fits() && snapshot.remaining() == 1);
///
/// let soon = snapshot.at() + HOUR / 10;
/// let next = calculate(limit.quota(), Some(snapshot.state()), soon, 2)?;
/// assert_eq!(next.verdict(), Verdict::Admitted);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Snapshot {
    limit: Limit,
    level: Level,
}

/// A [`Snapshot`] without the limit, for code that has the limit at hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Level {
    pub(crate) verdict: Verdict,
    /// Of a limit in shards, what all of them hold.
    pub(crate) state: State,
    /// Until the cost fits; `None` if it never will.
    pub(crate) wait: Option<Duration>,
    pub(crate) cost: u64,
    pub(crate) at: Timestamp,
}

impl Level {
    /// A bucket that holds this after a charge was taken from it.
    pub(crate) const fn admitted(state: State, cost: u64, at: Timestamp) -> Self {
        Self { verdict: Verdict::Admitted, state, wait: Some(Duration::ZERO), cost, at }
    }

    /// A bucket that holds this and has refused the cost for as long as that.
    #[cfg(feature = "memory")]
    pub(super) const fn refused(state: State, wait: Duration, cost: u64, at: Timestamp) -> Self {
        Self { verdict: Verdict::Refused, state, wait: Some(wait), cost, at }
    }

    /// What the readings of one charge come to: one, or two for a limit in shards.
    #[inline]
    pub(crate) fn new(limit: &Limit, readings: &[Reading], cost: u64, at: Timestamp) -> Self {
        // The shards of one charge answer the same. Of all shards, one that has it is enough.
        let Some(first) = readings.iter().min_by_key(|reading| reading.wait()) else {
            // An answer without a reading does not become an outcome: see `Outcome::new`.
            let state = State { value: 0, ts: Timestamp::UNIX_EPOCH };
            return Self { verdict: Verdict::Refused, state, wait: None, cost, at };
        };
        let mut state = first.state();
        if readings.len() > 1 || limit.is_in_shards() {
            let held = readings.iter().map(|reading| (reading.state().value, reading.units()));
            state.value = sum_of_shards(held, limit.quota().get_shards());
        }
        Self { verdict: first.verdict(), state, wait: Some(first.wait()), cost, at }
    }
}

/// What `shards` shards hold if all are as these, of which each holds a value and has paid some
/// units, were on average before they paid.
pub(super) fn sum_of_shards(
    held_and_paid: impl Iterator<Item = (Units, Units)>,
    shards: u32,
) -> Units {
    let (mut held, mut paid, mut count) = (0_i128, 0_i128, 0_i128);
    for (value, units) in held_and_paid {
        held = held.saturating_add(i128::from(value)).saturating_add(i128::from(units));
        paid = paid.saturating_add(i128::from(units));
        count = count.saturating_add(1);
    }
    let all = held.saturating_mul(i128::from(shards)).div_euclid(count.max(1)).saturating_sub(paid);
    Units::try_from(all).unwrap_or(if all < 0 { Units::MIN } else { Units::MAX })
}

impl Snapshot {
    pub(crate) fn new(limit: &Limit, level: Level) -> Self {
        Self { limit: limit.clone(), level }
    }

    pub(crate) const fn level(&self) -> &Level {
        &self.level
    }

    /// The limit.
    #[must_use]
    pub const fn limit(&self) -> &Limit {
        &self.limit
    }

    /// The whole tokens that could be taken at once; zero in debt.
    ///
    /// Of a limit in shards, a single request can take no more than what two of them hold.
    #[doc(alias = "available")]
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.tokens().whole()
    }

    /// The most tokens that the limit saves up.
    #[doc(alias = "burst")]
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.limit.quota().get_capacity()
    }

    /// The tokens that were asked about.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.level.cost
    }

    /// Whether the limit by itself has the [`cost`](Self::cost), whatever other limits say that
    /// were asked with it.
    ///
    /// In a permit it does: it is what the limit admitted. In a reservation it does not where the
    /// limit went into debt for it.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.level.verdict == Verdict::Admitted
    }

    /// How long until the limit has the [`cost`](Self::cost): zero if it [fits](Self::fits), `None`
    /// if no wait helps because it is more than the limit ever holds.
    #[must_use]
    pub const fn wait(&self) -> Option<Duration> {
        self.level.wait
    }

    /// The time at which this was so, by the store's clock.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        self.level.at
    }

    /// The time at which the bucket is full, if nothing is taken until then; of a limit in shards,
    /// if all of them hold the same.
    #[must_use]
    pub fn full_at(&self) -> Timestamp {
        let State { value, ts } = self.level.state;
        let each = value.div_euclid(i64::from(self.limit.quota().get_shards()).max(1));
        self.limit.bucket().full_at(State { value: each, ts }).max(self.level.at)
    }

    /// The exact tokens, fraction and debt included.
    #[must_use]
    pub fn tokens(&self) -> Tokens {
        self.limit.bucket().tokens(self.level.state.value)
    }

    /// The state of the bucket, as [`calculate`](crate::algebra::calculate) takes it; of a limit in
    /// shards, the value of all of them.
    #[must_use]
    pub const fn state(&self) -> State {
        self.level.state
    }

    /// The start of the window; `None` for a token bucket.
    #[must_use]
    pub fn window_start(&self) -> Option<Timestamp> {
        match self.limit.bucket().kind() {
            Kind::FixedWindow => Some(self.level.state.ts),
            Kind::TokenBucket => None,
        }
    }
}
