//! A quota compiled to the integers that every decision counts in.

use std::num::NonZeroU64;

use super::state::{State, Units};
use super::terms::Terms;
use super::tokens::Tokens;
use crate::clock::Timestamp;
use crate::quota::{Calendar, Kind, MAX_UNITS, Quota, QuotaError, Scale, WindowStart};

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
    pub(super) kind: Kind,
    pub(super) step: NonZeroU64,
    pub(super) gain: NonZeroU64,
    pub(super) token: NonZeroU64,
    pub(super) capacity: Units,
    pub(super) floor: Units,
    pub(super) initial: Units,
    pub(super) start: Option<WindowStart>,
    /// Where windows begin, if they are those of a calendar. Then `step` is a length that none
    /// exceeds.
    pub(super) calendar: Option<Calendar>,
}

impl Bucket {
    /// Compiles a quota into the numbers of one bucket that holds the whole limit.
    ///
    /// # Errors
    ///
    /// If the numbers contradict each other or do not fit; the error says what would.
    pub const fn new(quota: &Quota) -> Result<Self, QuotaError> {
        match Scale::of(quota) {
            Ok([whole, _]) => Ok(Self::from_scale(quota, &whole)),
            Err(error) => Err(error),
        }
    }

    /// Compiles a quota into the numbers of one of its shards.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub const fn of_shard(quota: &Quota) -> Result<Self, QuotaError> {
        match Scale::of(quota) {
            Ok([_, shard]) => Ok(Self::from_scale(quota, &shard)),
            Err(error) => Err(error),
        }
    }

    const fn from_scale(quota: &Quota, scale: &Scale) -> Self {
        // All three are at most 2^53.
        let (capacity, initial) = match quota.is_none() {
            // Below zero even when it is full, so no cost fits, not even one of zero.
            true => (-1, -1),
            false => (scale.capacity.cast_signed(), scale.initial.cast_signed()),
        };
        Self {
            kind: quota.kind(),
            step: scale.step,
            gain: scale.gain,
            token: scale.token,
            capacity,
            floor: 0_i64.saturating_sub_unsigned(scale.max_reserved),
            initial,
            start: quota.first_start(),
            calendar: quota.windows(),
        }
    }

    /// The numbers of one of so many nodes that share this bucket's: an equal part of the rate and of
    /// the capacity, but a capacity of one token at least. `None` if a part cannot be counted.
    ///
    /// For example, 10 per minute of three nodes is a token worth 18,000,000 units where it was worth
    /// 6,000,000.
    #[doc(hidden)]
    #[must_use]
    pub fn part_of(&self, nodes: u32) -> Option<Self> {
        let token =
            self.token.get().checked_mul(u64::from(nodes)).filter(|all| *all <= MAX_UNITS)?;
        let least = if self.capacity > 0 { token.cast_signed() } else { 0 };
        let capacity = self.capacity.max(least);
        let initial = if self.initial == self.capacity { capacity } else { self.initial };
        Some(Self { token: NonZeroU64::new(token)?, capacity, initial, ..*self })
    }

    /// The same bucket with less room: it saves up to so many units, and starts with no more.
    #[doc(hidden)]
    #[must_use]
    pub fn with_capacity(&self, capacity: Units) -> Self {
        let capacity = capacity.clamp(0, self.capacity);
        let is_full_at_first = self.initial == self.capacity;
        let initial = if is_full_at_first { capacity } else { self.initial.min(capacity) };
        Self { capacity, initial, ..*self }
    }

    /// The same bucket, gaining in longer steps: those of numbers too large for a test to play.
    #[doc(hidden)]
    #[must_use]
    pub const fn with_step(self, step: NonZeroU64) -> Self {
        Self { step, ..self }
    }

    /// Whether `ts` is an instant at which the bucket gains: for a fixed window, one at which a
    /// window starts. True at every instant for the windows of a calendar, whose step tells that they
    /// are the same.
    pub(crate) fn gains_at(&self, ts: Timestamp, phase: impl FnOnce() -> Timestamp) -> bool {
        self.calendar.is_some() || self.last_gain(ts, phase) == ts
    }

    /// The calendar of the windows, if they have one.
    #[inline]
    #[doc(hidden)]
    #[must_use]
    pub const fn calendar(&self) -> Option<Calendar> {
        self.calendar
    }

    /// This bucket as it reads to one whose store knows the calendar of `other` only.
    ///
    /// What is stored of a bucket does not say where its windows begin. Those of another calendar
    /// count with the length that none exceeds: they gain late, and never early. Those that begin
    /// with the first use follow on each other.
    pub(crate) fn seen_by(&self, other: &Self) -> Self {
        let calendar = if self.step == other.step { other.calendar } else { None };
        let start = if self.is_from_first_use() { Some(WindowStart::Unknown) } else { self.start };
        Self { start, calendar, ..*self }
    }

    /// The same bucket on a clock that shows the numbers of windows in place of the time.
    pub(super) fn of_window_numbers(&self) -> Self {
        Self { step: NonZeroU64::MIN, calendar: None, ..*self }
    }

    /// How the bucket gains.
    #[must_use]
    #[inline]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// How often the bucket gains, in microseconds.
    ///
    /// That is the period of a fixed window, a length that no window of a calendar exceeds, and 1 for
    /// a token bucket unless its numbers are too large for that: see
    /// [`Quota`](crate::Quota#what-is-exact).
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

    /// The most units that it saves up; below zero if the quota grants [nothing](Quota::none), as
    /// then no cost fits.
    #[must_use]
    #[inline]
    pub const fn capacity(&self) -> Units {
        self.capacity
    }

    /// The lowest value that a reservation may leave: minus `max_reserved`.
    #[must_use]
    #[inline]
    pub const fn floor(&self) -> Units {
        self.floor
    }

    /// The lowest value that can be counted, whatever `max_reserved` says.
    ///
    /// It is 2^53 units below a full bucket, so a double holds the distance between any two values
    /// exactly.
    pub(crate) const fn min_value(&self) -> Units {
        self.capacity.saturating_sub_unsigned(MAX_UNITS)
    }

    /// The highest value to which a refund may lift a bucket that was refreshed to `now`.
    ///
    /// A state in debt at a future instant is [blocked](super::block), and a refund must not open
    /// it.
    pub(crate) fn refund_cap(&self, State { value, ts }: State, now: Timestamp) -> Units {
        if ts > now && value < 0 { self.min_value().max(-1) } else { self.capacity }
    }

    /// The units in a bucket that was never used.
    #[must_use]
    pub const fn initial(&self) -> Units {
        self.initial
    }

    /// The first instant from the epoch on at which a window starts, if the quota names one.
    #[must_use]
    pub const fn start(&self) -> Option<Timestamp> {
        match self.start {
            Some(WindowStart::At(start)) => Some(start),
            _ => None,
        }
    }

    /// Where windows begin, if the quota says so.
    pub(crate) const fn window_start(&self) -> Option<WindowStart> {
        self.start
    }

    /// Whether windows begin with the [first use](crate::Quota::from_first_use) of a full bucket.
    #[must_use]
    #[inline]
    pub const fn is_from_first_use(&self) -> bool {
        matches!(self.start, Some(WindowStart::FirstUse))
    }

    /// Whether no time brings anything that a store could live to see: only what is given back does.
    #[cfg(feature = "memory")]
    pub(crate) const fn never_gains(&self) -> bool {
        self.step.get() == MAX_UNITS
    }

    /// Whether a full bucket equals one that was never used, so it need not be stored.
    ///
    /// It is false for a quota with an `initial` below its capacity.
    #[must_use]
    #[inline]
    pub const fn is_droppable_when_full(&self) -> bool {
        self.initial == self.capacity
    }

    /// The units of a cost in tokens; `None` above the 2^53 that can be counted.
    #[must_use]
    #[inline]
    pub const fn units(&self, cost: u64) -> Option<Units> {
        match cost.checked_mul(self.token.get()) {
            Some(units) if units <= MAX_UNITS => Some(units.cast_signed()),
            _ => None,
        }
    }

    /// Whether a cost is more than a full bucket could grant on these terms.
    #[must_use]
    #[inline]
    pub fn too_large(&self, cost: u64, terms: Terms) -> bool {
        let Some(units) = self.units(cost) else { return true };
        self.out_of_reach(self.capacity.saturating_sub(units), terms)
    }

    /// Whether a cost is more than two full shards with these numbers could grant together on these
    /// terms; see [`charge_pair`](super::charge_pair).
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
        // The two shards split what is left. If that is odd, the terms have to allow the deeper
        // half.
        self.out_of_reach(left.div_euclid(2), terms)
    }

    /// Whether even a full bucket refuses a charge that would leave it with this much.
    #[inline]
    fn out_of_reach(&self, left: Units, terms: Terms) -> bool {
        left < 0 && self.refused_when_full(left, terms)
    }

    fn refused_when_full(&self, left: Units, terms: Terms) -> bool {
        // The shortest wait is that of a request just before the next gain.
        let step = match self.calendar {
            // The shortest windows in a row have more than four fifths of the mean length.
            Some(calendar) => (calendar.mean() / 5).saturating_mul(4).unsigned_abs(),
            None => self.step.get(),
        };
        let windows = self.steps_to_gain(left.unsigned_abs());
        let shortest = if self.is_from_first_use() {
            // A full bucket begins its window with the request.
            windows.saturating_mul(step)
        } else {
            windows.saturating_sub(1).saturating_mul(step).saturating_add(1)
        };
        left < terms.floor().min(0) || shortest > terms.max_wait()
    }

    /// Units as the tokens that they are worth.
    #[must_use]
    pub const fn tokens(&self, units: Units) -> Tokens {
        Tokens::new(units, self.token)
    }

    /// The state of a bucket that was never used: full, or at its quota's `initial`.
    ///
    /// `phase` is an instant at which a window starts, for a quota that names none. The steps of a
    /// token bucket begin at the epoch.
    #[must_use]
    #[inline]
    pub fn absent(&self, now: Timestamp, phase: Timestamp) -> State {
        State { value: self.initial, ts: self.last_gain(now, || phase) }
    }

    /// Whether the windows need a phase, because the quota has no start.
    pub(crate) fn needs_phase(&self) -> bool {
        self.kind == Kind::FixedWindow && self.start.is_none() && self.calendar.is_none()
    }

    /// The last instant up to `now` at which the bucket gains: the start of a window, or of a step of
    /// a token bucket.
    #[inline]
    fn last_gain(&self, now: Timestamp, phase: impl FnOnce() -> Timestamp) -> Timestamp {
        if self.step == NonZeroU64::MIN {
            return now;
        }
        if let Some(calendar) = self.calendar {
            return calendar.start(now);
        }
        let first = match self.kind {
            Kind::TokenBucket => Timestamp::UNIX_EPOCH,
            Kind::FixedWindow => match self.start {
                Some(WindowStart::At(start)) => start,
                Some(WindowStart::FirstUse) => return now,
                Some(WindowStart::Unknown) | None => phase(),
            },
        };
        self.last_step(now, first)
    }

    /// The last step up to `now`, where one begins at `first`.
    fn last_step(&self, now: Timestamp, first: Timestamp) -> Timestamp {
        // 128 bits, because the distance between two instants can be twice as wide as an `i64`.
        let distance = i128::from(now.as_micros()).saturating_sub(i128::from(first.as_micros()));
        let into = distance.checked_rem_euclid(i128::from(self.step.get())).unwrap_or(0);
        let into = i64::try_from(into).unwrap_or(0);
        Timestamp::from_micros(now.as_micros().saturating_sub(into))
    }

    /// What a bucket holds at `now`.
    #[must_use]
    #[inline]
    pub fn refresh(&self, state: State, now: Timestamp) -> State {
        if self.step != NonZeroU64::MIN
            && let Some(calendar) = self.calendar
        {
            return self.refresh_on(calendar, state, now);
        }
        let State { value, ts } = state;
        let steps = self.steps(now.micros_since(ts));
        let value = self.with_gained(value, steps);
        // A step of 1, which nearly all token buckets have, needs no multiplication here.
        let ts = match self.step {
            NonZeroU64::MIN => ts.max(now),
            // The next use begins a window.
            _ if self.is_from_first_use() && value == self.capacity => ts.max(now),
            step => ts.plus_micros(steps.saturating_mul(step.get())),
        };
        State { value, ts }
    }

    /// A value after so many steps.
    #[inline]
    fn with_gained(&self, value: Units, steps: u64) -> Units {
        // Compare gains before adding: more steps than it takes to fill the bucket could overflow
        // the sum.
        let gained = steps.saturating_mul(self.gain.get());
        let missing = self.missing(value);
        if gained >= missing { self.capacity } else { value.saturating_add_unsigned(gained) }
    }

    /// A state after so many more windows have begun, at the same time.
    #[doc(hidden)]
    #[must_use]
    pub fn with_windows(&self, State { value, ts }: State, windows: u64) -> State {
        State { value: self.with_gained(value, windows), ts }
    }

    /// [`refresh`](Self::refresh) in the windows of a calendar.
    ///
    /// Each window that begins is a step. The state gets the start of the window around `now`. If its
    /// own window is yet to come, it gets a time in the future that says which one it is.
    #[cold]
    #[inline(never)]
    fn refresh_on(&self, calendar: Calendar, State { value, ts }: State, now: Timestamp) -> State {
        let start = calendar.start(now);
        let ahead = calendar.ahead(start, ts);
        let steps = 0_i64.saturating_sub(ahead).max(0).unsigned_abs();
        State { value: self.with_gained(value, steps), ts: calendar.time_of(start, ahead) }
    }

    /// The state of a bucket once so many units have come back to it, up to its capacity.
    pub(crate) fn with_returned(&self, state: State, units: Units) -> State {
        let value = state.value.saturating_add(units).min(self.capacity).max(state.value);
        State { value, ts: state.ts }
    }

    /// The value of a bucket at `now` without the cap of its capacity.
    pub(crate) fn uncapped(&self, state: State, now: Timestamp) -> Units {
        let steps = match self.calendar {
            Some(calendar) => calendar.ahead(calendar.start(now), state.ts).min(0).unsigned_abs(),
            None => self.steps(now.micros_since(state.ts)),
        };
        state.value.saturating_add_unsigned(steps.saturating_mul(self.gain.get()))
    }

    /// The whole steps in so many microseconds.
    #[inline]
    pub(super) fn steps(&self, micros: u64) -> u64 {
        // The common case, a token bucket that gains every microsecond, needs no division.
        if self.step == NonZeroU64::MIN { micros } else { micros / self.step }
    }

    /// The units that `value` is short of the capacity.
    #[inline]
    pub(super) fn missing(&self, value: Units) -> u64 {
        if value >= self.capacity { 0 } else { self.capacity.abs_diff(value) }
    }

    /// The units that a bucket in `state` is short of its capacity at `now`.
    #[cfg(feature = "memory")]
    pub(crate) fn used(&self, state: State, now: Timestamp) -> u64 {
        self.missing(self.refresh(state, now).value)
    }

    /// The instant at which a bucket in `state` has gained `units` more.
    #[inline]
    pub(crate) fn gained_at(&self, state: State, units: u64) -> Timestamp {
        self.after(state.ts, self.steps_to_gain(units))
    }

    /// The instant so many steps after the time of a state.
    #[inline]
    pub(crate) fn after(&self, ts: Timestamp, steps: u64) -> Timestamp {
        match self.calendar {
            Some(calendar) => calendar.after(ts, steps),
            None => ts.plus_micros(steps.saturating_mul(self.step.get())),
        }
    }

    /// The instant from which a bucket in `state` may be dropped, if a full one may be: it is full
    /// then for every store, also for one that no longer knows its calendar.
    #[inline]
    #[doc(hidden)]
    #[must_use]
    pub fn drop_at(&self, state: State) -> Timestamp {
        let steps = self.steps_to_gain(self.missing(state.value));
        state.ts.plus_micros(steps.saturating_mul(self.step.get()))
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

    /// The instant at which a bucket in `state` is full, if nothing is taken until then.
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
