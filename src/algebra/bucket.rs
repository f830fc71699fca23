//! A quota, compiled: the integers that every decision counts in.

use std::num::NonZeroU64;

use super::{Terms, Tokens};
use crate::clock::Timestamp;
use crate::quota::{Kind, MAX_UNITS, Quota, QuotaError, Scale};

/// What buckets count in: a whole number, of which a [token](Bucket::token) is worth some.
pub type Units = i64;

/// All that is stored for a bucket: a value, and the time at which it was true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "two numbers, by design and for ever")]
pub struct State {
    /// The units in the bucket; negative is debt.
    pub value: Units,
    /// When it held them.
    pub ts: Timestamp,
}

/// The numbers of a quota in units and microseconds.
///
/// # Examples
///
/// ```
/// use tollgate::algebra::Bucket;
/// use tollgate::{MINUTE, Quota};
///
/// // 10 a minute is one token every 6 seconds, so one unit every microsecond.
/// let bucket = Bucket::new(&Quota::token_bucket(10, MINUTE))?;
/// assert_eq!((bucket.step(), bucket.gain(), bucket.token()), (1, 1, 6_000_000));
/// assert_eq!(bucket.capacity(), 60_000_000);
/// # Ok::<(), tollgate::quota::QuotaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    kind: Kind,
    step: NonZeroU64,
    gain: NonZeroU64,
    token: NonZeroU64,
    capacity: Units,
    floor: Units,
    initial: Units,
    start: Option<Timestamp>,
}

impl Bucket {
    /// Compiles a quota into the numbers of one bucket that holds the whole limit.
    ///
    /// # Errors
    ///
    /// If the numbers contradict each other or do not fit; the error says what would.
    pub const fn new(quota: &Quota) -> Result<Self, QuotaError> {
        let quota = match quota.validated() {
            Ok(quota) => quota,
            Err(error) => return Err(error),
        };
        match Scale::of_whole(&quota) {
            Ok(scale) => Ok(Self::scaled(&quota, &scale)),
            Err(error) => Err(error),
        }
    }

    /// Compiles a quota into the numbers of one of its shards.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub const fn of_shard(quota: &Quota) -> Result<Self, QuotaError> {
        let quota = match quota.validated() {
            Ok(quota) => quota,
            Err(error) => return Err(error),
        };
        match Scale::of_shard(&quota) {
            Ok(scale) => Ok(Self::scaled(&quota, &scale)),
            Err(error) => Err(error),
        }
    }

    const fn scaled(quota: &Quota, scale: &Scale) -> Self {
        Self {
            kind: quota.kind(),
            step: scale.step,
            gain: scale.gain,
            token: scale.token,
            // All three are at most 2^53.
            capacity: scale.capacity.cast_signed(),
            floor: 0_i64.saturating_sub_unsigned(scale.max_reserved),
            initial: scale.initial.cast_signed(),
            start: quota.starts_at(),
        }
    }

    /// The numbers in which a state was stored, as far as it matters to who reads it; `None` if no
    /// quota has such numbers.
    pub(crate) fn stored(gain: i64, token: i64, capacity: Units, step: i64) -> Option<Self> {
        let positive = |number: i64| NonZeroU64::new(u64::try_from(number).ok()?);
        let step = positive(step)?;
        let kind = if step == NonZeroU64::MIN { Kind::TokenBucket } else { Kind::FixedWindow };
        let (gain, token) = (positive(gain)?, positive(token)?);
        (capacity >= 0).then_some(Self {
            kind,
            step,
            gain,
            token,
            capacity,
            floor: 0,
            initial: capacity,
            start: None,
        })
    }

    /// Whether one of its windows begins at `ts`; every instant will do for a token bucket.
    pub(crate) fn has_window_at(&self, ts: Timestamp, phase: impl FnOnce() -> Timestamp) -> bool {
        self.step == NonZeroU64::MIN || self.window_at(ts, self.start.unwrap_or_else(phase)) == ts
    }

    /// How the bucket gains.
    #[must_use]
    #[inline]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// How often the bucket gains, in microseconds.
    #[must_use]
    #[inline]
    pub const fn step(&self) -> u64 {
        self.step.get()
    }

    /// The units gained at each step.
    #[must_use]
    #[inline]
    pub const fn gain(&self) -> u64 {
        self.gain.get()
    }

    /// The units that one token is worth.
    #[must_use]
    #[inline]
    pub const fn token(&self) -> u64 {
        self.token.get()
    }

    /// The most units it saves up.
    #[must_use]
    #[inline]
    pub const fn capacity(&self) -> Units {
        self.capacity
    }

    /// The least units that a reservation may leave: minus `max_reserved`.
    #[must_use]
    #[inline]
    pub const fn floor(&self) -> Units {
        self.floor
    }

    /// The deepest debt that can be counted, whatever `max_reserved` says.
    pub(super) const fn deepest(&self) -> Units {
        self.capacity.saturating_sub_unsigned(MAX_UNITS)
    }

    /// The units in a bucket that nobody has used.
    #[must_use]
    pub const fn initial(&self) -> Units {
        self.initial
    }

    /// Where a window begins, if the quota says so.
    #[must_use]
    pub const fn start(&self) -> Option<Timestamp> {
        self.start
    }

    /// Whether a full bucket is like one that was never used, so that it need not be stored.
    #[must_use]
    #[inline]
    pub const fn forgets(&self) -> bool {
        self.initial == self.capacity
    }

    /// What a cost comes to; `None` if that is beyond the 2^53 that can be counted.
    #[must_use]
    #[inline]
    pub const fn units(&self, cost: u64) -> Option<Units> {
        match cost.checked_mul(self.token.get()) {
            Some(units) if units <= MAX_UNITS => Some(units.cast_signed()),
            _ => None,
        }
    }

    /// Whether a cost is more than a full bucket could ever grant on these terms.
    #[must_use]
    #[inline]
    pub fn too_large(&self, cost: u64, terms: Terms) -> bool {
        let Some(units) = self.units(cost) else { return true };
        self.out_of_reach(self.capacity.saturating_sub(units), terms)
    }

    /// Whether a cost is more than two full shards with these numbers could ever grant together
    /// on these terms.
    ///
    /// What is too large for two is too large for one; see [`charge_pair`](super::charge_pair).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::algebra::{Bucket, Terms};
    /// use tollgate::{Quota, SECOND};
    ///
    /// let shard = Bucket::of_shard(&Quota::token_bucket(40, SECOND).max_reserved(20).shards(4))?;
    /// assert!(shard.too_large(11, Terms::AT_ONCE));
    /// assert!(!shard.too_large_for_pair(20, Terms::AT_ONCE));
    /// assert!(shard.too_large_for_pair(21, Terms::AT_ONCE));
    /// assert!(!shard.too_large_for_pair(30, Terms::reserving(shard.floor())));
    /// assert!(shard.too_large_for_pair(31, Terms::reserving(shard.floor())));
    /// # Ok::<(), tollgate::quota::QuotaError>(())
    /// ```
    #[must_use]
    pub fn too_large_for_pair(&self, cost: u64, terms: Terms) -> bool {
        let Some(units) = self.units(cost) else { return true };
        let left = self.capacity.saturating_mul(2).saturating_sub(units);
        // Of two equal debts that differ by a unit, the deeper one is what the terms allow or not.
        self.out_of_reach(left.div_euclid(2), terms)
    }

    /// Whether even a bucket that is full, but for a charge that leaves this much, would refuse it.
    #[inline]
    fn out_of_reach(&self, left: Units, terms: Terms) -> bool {
        left < 0 && self.refused_when_full(left, terms)
    }

    fn refused_when_full(&self, left: Units, terms: Terms) -> bool {
        // The shortest wait is that of a request which comes just before the next gain.
        let full = State { value: self.capacity, ts: Timestamp::UNIX_EPOCH };
        let wait = self.gained_at(State { value: left, ..full }, left.unsigned_abs());
        let shortest = wait.micros_since(full.ts).saturating_sub(self.step.get().saturating_sub(1));
        left < terms.floor().min(0) || shortest > terms.max_wait()
    }

    /// Units as the tokens they are worth.
    #[must_use]
    pub const fn tokens(&self, units: Units) -> Tokens {
        Tokens::new(units, self.token)
    }

    /// The state of a bucket that nobody has used: full, or at its quota's `initial`.
    ///
    /// `phase` is where a window begins if the quota does not say so.
    #[must_use]
    pub fn absent(&self, now: Timestamp, phase: Timestamp) -> State {
        let ts = match self.kind {
            Kind::TokenBucket => now,
            Kind::FixedWindow => self.window_at(now, self.start.unwrap_or(phase)),
        };
        State { value: self.initial, ts }
    }

    /// Whether it matters where a window begins, as the quota does not say it.
    pub(crate) fn needs_phase(&self) -> bool {
        self.kind == Kind::FixedWindow && self.start.is_none()
    }

    /// The start of the window around `now`, where windows begin at `phase` and every step from it.
    fn window_at(&self, now: Timestamp, phase: Timestamp) -> Timestamp {
        // Wide enough for the ends of time on either side.
        let distance = i128::from(now.as_micros()).saturating_sub(i128::from(phase.as_micros()));
        let into = distance.checked_rem_euclid(i128::from(self.step.get())).unwrap_or(0);
        let into = i64::try_from(into).unwrap_or(0);
        Timestamp::from_micros(now.as_micros().saturating_sub(into))
    }

    /// What a bucket holds at `now`.
    #[must_use]
    #[inline]
    pub fn refresh(&self, state: State, now: Timestamp) -> State {
        let State { value, ts } = state;
        let steps = self.steps(now.micros_since(ts));
        // Compared as gains, so that more steps than it takes to fill cannot overflow.
        let gained = steps.saturating_mul(self.gain.get());
        let missing = self.missing(value);
        let value =
            if gained >= missing { self.capacity } else { value.saturating_add_unsigned(gained) };
        State { value, ts: ts.plus_micros(steps.saturating_mul(self.step.get())) }
    }

    /// What a bucket would hold at `now` if nothing that it gains were lost for want of room.
    pub(crate) fn uncapped(&self, state: State, now: Timestamp) -> Units {
        let steps = self.steps(now.micros_since(state.ts));
        state.value.saturating_add_unsigned(steps.saturating_mul(self.gain.get()))
    }

    /// The whole steps in a time.
    #[inline]
    pub(super) fn steps(&self, micros: u64) -> u64 {
        // Token buckets gain every microsecond: the commonest case needs no division.
        if self.step == NonZeroU64::MIN { micros } else { micros / self.step }
    }

    /// The units that `value` is short of the capacity.
    #[inline]
    pub(super) fn missing(&self, value: Units) -> u64 {
        if value >= self.capacity { 0 } else { self.capacity.abs_diff(value) }
    }

    /// The instant from which a bucket in `state` has gained `units` more.
    #[inline]
    pub(super) fn gained_at(&self, state: State, units: u64) -> Timestamp {
        state.ts.plus_micros(self.steps_to_gain(units).saturating_mul(self.step.get()))
    }

    /// The steps that it takes to gain `units`.
    #[inline]
    pub(super) fn steps_to_gain(&self, units: u64) -> u64 {
        if self.gain == NonZeroU64::MIN {
            return units;
        }
        let (whole, rest) = (units / self.gain, units % self.gain);
        whole.saturating_add(u64::from(rest > 0))
    }

    /// The instant from which a bucket in `state` is full, if nothing is taken until then.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::algebra::{Bucket, State};
    /// use tollgate::{Quota, SECOND, Timestamp};
    ///
    /// let bucket = Bucket::new(&Quota::token_bucket(2, SECOND))?;
    /// let empty = State { value: 0, ts: Timestamp::UNIX_EPOCH };
    /// assert_eq!(bucket.full_at(empty), Timestamp::UNIX_EPOCH + SECOND);
    /// # Ok::<(), tollgate::quota::QuotaError>(())
    /// ```
    #[must_use]
    pub fn full_at(&self, state: State) -> Timestamp {
        self.gained_at(state, self.missing(state.value))
    }
}
