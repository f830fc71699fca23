//! How a limit stands for a key.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use super::Limit;
use crate::algebra::{State, Tokens, Units, Verdict};
use crate::backend::{BucketRecord, Reading};
use crate::clock::{Timestamp, machine_time};
use crate::quota::Kind;

/// How a limit stands for a key: what is left, whether a cost fits, and the wait.
///
/// [`peek`](crate::RateLimiter::peek) looks at a bucket and answers with a snapshot. A permit, a
/// reservation, a settlement and a refusal have one of the instant at which they were decided.
///
/// For a limit in [`shards`](crate::Quota::shards), `peek` has the sum of all shards at one
/// instant. A decision looks at only two of them. Its snapshot is an estimate, right on average: it
/// assumes that the other shards held as much as these two before the decision.
///
/// # Examples
///
/// Predicts a later decision from a snapshot, without asking the limiter:
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
    /// The bucket in its own numbers, if these refill faster than those of the limit and no request
    /// by the limit was admitted since it was used by them.
    kept: Option<Arc<BucketRecord>>,
    /// How the limiter speaks to clients, for the header fields that the snapshot becomes.
    speech: Speech,
}

/// A [`Snapshot`] without its limit, for code that has the limit at hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Level {
    pub(crate) verdict: Verdict,
    /// For a limit in shards, the value of all shards.
    pub(crate) state: State,
    /// The wait until the cost fits; `None` if it never will, or if it is unknown.
    pub(crate) wait: Option<Duration>,
    pub(crate) cost: u64,
    pub(crate) at: Timestamp,
}

/// What stays taken of what a request took.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kept {
    /// That will be known later, or by others.
    Unknown,
    Tokens(u64),
    /// Nothing stays taken by anybody.
    Reset,
}

impl Level {
    /// The level of a bucket after a charge was taken from it.
    pub(crate) const fn admitted(state: State, cost: u64, at: Timestamp) -> Self {
        Self { verdict: Verdict::Admitted, state, wait: Some(Duration::ZERO), cost, at }
    }

    /// The level after what was taken has changed to this; as admitted, since the work has run.
    pub(crate) fn kept(self, limit: &Limit, kept: Kept) -> Self {
        let capacity = limit.bucket().capacity();
        let capacity = capacity.saturating_mul(i64::from(limit.quota().get_shards()));
        let units = |tokens| limit.bucket().units(tokens).unwrap_or(Units::MAX);
        let State { value, ts } = self.state;
        let state = match kept {
            Kept::Unknown => return self,
            Kept::Tokens(kept) => {
                let back = units(self.cost).saturating_sub(units(kept));
                // Above the capacity, nothing comes back.
                State { value: value.saturating_add(back).min(capacity.max(value)), ts }
            }
            // A block is lifted, too.
            Kept::Reset => State { value: capacity, ts: ts.min(self.at) },
        };
        let cost = if let Kept::Tokens(kept) = kept { kept } else { 0 };
        Self::admitted(state, cost, self.at)
    }

    /// See [`Snapshot::full_at`].
    pub(crate) fn full_at(&self, limit: &Limit) -> Timestamp {
        let State { value, ts } = self.state;
        let each = value.div_euclid(i64::from(limit.quota().get_shards()).max(1));
        limit.bucket().full_at(State { value: each, ts }).max(self.at)
    }

    /// Combines readings of a limit: of one bucket, of the two shards of a charge, or of all
    /// shards.
    #[inline]
    pub(crate) fn new(limit: &Limit, readings: &[Reading], cost: u64, at: Timestamp) -> Self {
        // Both shards of a charge have the same wait. Of all shards, the shortest wait counts.
        let Some(first) = readings.iter().min_by_key(|reading| reading.wait()) else {
            // Not reached with a store's answer: `CompleteAnswer::new` refuses one without readings.
            let state = State { value: 0, ts: Timestamp::UNIX_EPOCH };
            return Self { verdict: Verdict::Refused, state, wait: None, cost, at };
        };
        let mut state = first.state();
        if readings.len() > 1 || limit.is_in_shards() {
            state.value = sum_of_shards(readings, limit.quota().get_shards());
        }
        let wait = wait_of(limit, first.verdict(), first.wait());
        Self { verdict: first.verdict(), state, wait, cost, at }
    }
}

/// The wait that a limit is known to need. The end of a request in flight is unknown.
pub(super) fn wait_of(limit: &Limit, verdict: Verdict, wait: Duration) -> Option<Duration> {
    (verdict == Verdict::Admitted || !limit.quota().is_in_flight()).then_some(wait)
}

/// The value of a limit with `shards` shards, estimated from the readings of some of them.
///
/// The others are taken to hold the average of these before they paid. For example, of 10 shards, one
/// holds 5 and has paid 1, and the other holds 8: on average they held 7, so the limit holds
/// 10 × 7 - 1 = 69.
fn sum_of_shards(readings: &[Reading], shards: u32) -> Units {
    let (mut held, mut paid, mut count) = (0_i128, 0_i128, 0_i128);
    for reading in readings {
        let units = i128::from(reading.units());
        held = held.saturating_add(i128::from(reading.state().value)).saturating_add(units);
        paid = paid.saturating_add(units);
        count = count.saturating_add(1);
    }
    let all = held.saturating_mul(i128::from(shards)).div_euclid(count.max(1)).saturating_sub(paid);
    Units::try_from(all).unwrap_or(if all < 0 { Units::MIN } else { Units::MAX })
}

impl Snapshot {
    pub(crate) fn new(limit: &Limit, level: Level) -> Self {
        Self { limit: limit.clone(), level, kept: None, speech: Speech::default() }
    }

    /// Sets the record of a bucket that keeps faster numbers.
    pub(crate) fn set_kept(&mut self, record: Option<&BucketRecord>) {
        self.kept = record.map(|record| Arc::new(*record));
    }

    /// The record of the bucket, if it keeps faster numbers.
    pub(crate) fn kept(&self) -> Option<&BucketRecord> {
        self.kept.as_deref()
    }

    /// The snapshot of a limit that grants nothing. No store is asked for it, so the time is that of
    /// this machine.
    #[cold]
    pub(super) fn of_nothing(limit: &Limit, cost: u64) -> Self {
        let at = machine_time();
        let (verdict, state) = (Verdict::Refused, State { value: 0, ts: at });
        Self::new(limit, Level { verdict, state, wait: None, cost, at })
    }

    /// The same snapshot, of a limiter that speaks so.
    pub(crate) fn with_speech(mut self, speech: &Speech) -> Self {
        if !speech.is_default() {
            self.speech = speech.clone();
        }
        self
    }

    pub(crate) const fn speech(&self) -> &Speech {
        &self.speech
    }

    pub(crate) const fn level(&self) -> &Level {
        &self.level
    }

    /// The limit.
    #[must_use]
    pub const fn limit(&self) -> &Limit {
        &self.limit
    }

    /// The whole tokens that are left; zero in debt.
    ///
    /// For a limit in shards, a single request can take no more than two shards hold.
    #[doc(alias("remaining_burst_capacity", "available"))]
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.tokens().whole()
    }

    /// The capacity: the most tokens that the limit saves up.
    #[doc(alias = "burst")]
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.limit.quota().get_capacity()
    }

    /// The number of tokens that the decision or the peek was about.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.level.cost
    }

    /// Whether this limit has the tokens for the [`cost`](Self::cost), whatever other limits of the
    /// call say.
    ///
    /// In a permit, it has them. In a reservation, it does not if the limit went into debt for it.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.level.verdict == Verdict::Admitted
    }

    /// The wait until the limit has the tokens for the [`cost`](Self::cost).
    ///
    /// It is zero if the cost [fits](Self::fits), and `None` if the limit can never hold as much, or if
    /// requests [in flight](crate::Quota::in_flight) have to end first.
    #[must_use]
    pub const fn wait(&self) -> Option<Duration> {
        self.level.wait
    }

    /// The time of the snapshot, by the store's clock; by this machine's if the quota grants
    /// [nothing](crate::Quota::none), as no store is asked then.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        self.level.at
    }

    /// The time at which the bucket is full if nothing more is taken.
    ///
    /// Requests in flight give their tokens back earlier, which is not known. For a limit in shards, it
    /// assumes that all of them hold the same. A bucket that was used by
    /// faster numbers of its limit gains by those until a request is admitted by the present ones.
    #[must_use]
    pub fn full_at(&self) -> Timestamp {
        if let Some(own) = &self.kept {
            return own.full_at().max(self.level.at);
        }
        self.level.full_at(&self.limit)
    }

    /// The end of a [block](crate::RateLimiter::block): until then, the bucket gains nothing. `None`
    /// if it is not blocked.
    ///
    /// A fixed window gains again when the window starts that follows the block. A block that ends
    /// in the window of the snapshot is not told from debt.
    #[doc(alias = "banned_until")]
    #[must_use]
    pub fn blocked_until(&self) -> Option<Timestamp> {
        let Level { state, at, .. } = self.level;
        let State { value, ts } = self.kept.as_deref().map_or(state, BucketRecord::state);
        let is_blocked = value < 0 && ts > at;
        let bucket = self.kept.as_deref().map_or(self.limit.bucket(), BucketRecord::bucket);
        is_blocked.then(|| bucket.after(ts, 1))
    }

    /// The exact tokens: with their fraction, and negative in debt.
    #[must_use]
    pub fn tokens(&self) -> Tokens {
        self.limit.bucket().tokens(self.level.state.value)
    }

    /// The state of the bucket, as [`calculate`](crate::algebra::calculate) takes it.
    ///
    /// While a bucket still gains by faster numbers that its limit had before, `calculate` predicts
    /// refusals that are too long; the [wait](Self::wait) is exact.
    ///
    /// For a limit in shards, its value is that of all of them, in the units of a shard's
    /// [`bucket`](Limit::bucket). `calculate` counts in others then, and its answer would be wrong:
    /// use [`tokens`](Self::tokens).
    #[must_use]
    pub const fn state(&self) -> State {
        self.level.state
    }

    /// The start of the current window; `None` for a token bucket, and for requests in flight.
    #[must_use]
    pub fn window_start(&self) -> Option<Timestamp> {
        match self.limit.bucket().kind() {
            Kind::FixedWindow if self.limit.quota().is_in_flight() => None,
            Kind::FixedWindow => Some(self.level.state.ts),
            Kind::TokenBucket => None,
        }
    }

    /// The end of the current window, at which the next one begins and brings its tokens; `None` for
    /// a token bucket, and for requests in flight.
    ///
    /// Where windows begin with the [first use](crate::Quota::from_first_use), a full bucket has none
    /// yet, and this tells of the one that a request would begin now. If such a limit is in shards,
    /// each has windows of its own, and this tells of one of them.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{HOUR, Limit, Quota, RateLimiter};
    ///
    /// const EXPORTS: Limit = Limit::new("exports", Quota::fixed_window(100, HOUR));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::RateLimited> {
    /// let snapshot = RateLimiter::in_memory().peek(&EXPORTS).key("alice").await?;
    /// let (start, end) = (snapshot.window_start().unwrap(), snapshot.window_end().unwrap());
    /// assert_eq!(end.since(start), HOUR);
    /// assert!(start <= snapshot.at() && snapshot.at() < end);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn window_end(&self) -> Option<Timestamp> {
        self.window_start().map(|start| self.limit.bucket().after(start, 1))
    }

    /// When the limit starts again, as a page on usage shows it: for a fixed window its
    /// [end](Self::window_end), for a token bucket when it is [full](Self::full_at).
    ///
    /// It says so of a key that has used nothing as well: its window ends then, and its bucket is
    /// full now. A key that owes more than a window brings gains at this time, and is still in debt;
    /// [`full_at`](Self::full_at) says when it owes nothing and has all. `None` if the quota grants
    /// [nothing](crate::Quota::none), or counts requests [in flight](crate::Quota::in_flight).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{HOUR, Limit, Quota, RateLimiter};
    ///
    /// const EXPORTS: Limit = Limit::new("exports", Quota::fixed_window(100, HOUR));
    /// const API: Limit = Limit::new("api", Quota::token_bucket(100, HOUR));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::RateLimited> {
    /// let limiter = RateLimiter::in_memory();
    /// let exports = limiter.limit(&EXPORTS).key("alice").cost(50).await?.snapshot();
    /// assert_eq!(exports.resets_at(), exports.window_end());
    /// let api = limiter.limit(&API).key("alice").cost(50).await?.snapshot();
    /// assert_eq!(api.resets_at(), Some(api.at() + HOUR / 2));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("reset_at", "reset_time", "resetTime"))]
    #[must_use]
    pub fn resets_at(&self) -> Option<Timestamp> {
        let quota = self.limit.quota();
        (!quota.is_none() && !quota.is_in_flight())
            .then(|| self.window_end().unwrap_or_else(|| self.full_at()))
    }
}

/// How a limiter speaks to clients: header fields and the wording of refusals. Only the middleware
/// knows them, so here they have no type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Speech {
    style: Option<Arc<dyn Any + Send + Sync>>,
    /// Whether clients are not shown how limits stand, since no store has decided.
    is_silent: bool,
}

impl Speech {
    /// The same with another style. What is silent stays so.
    pub(crate) fn with_style(&self, style: impl Any + Send + Sync) -> Self {
        Self { style: Some(Arc::new(style)), is_silent: self.is_silent }
    }

    pub(super) const fn is_default(&self) -> bool {
        self.style.is_none() && !self.is_silent
    }

    /// The same, for what no store has decided.
    pub(super) fn silenced(&self) -> Self {
        Self { style: self.style.clone(), is_silent: true }
    }

    pub(crate) const fn is_silent(&self) -> bool {
        self.is_silent
    }

    pub(crate) fn get<T: Any>(&self) -> Option<&T> {
        self.style.as_deref()?.downcast_ref()
    }
}
