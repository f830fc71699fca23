//! Compiles a quota to the integers that the algebra counts in.

use std::num::NonZeroU64;

use super::error::{QuotaError, QuotaProblem};
use super::units::{MAX_UNITS, micros, widen};
use super::{Counted, Kind, Quota, WindowStart};

/// A quota in units and ticks; `algebra::Bucket` says what each number means.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) step: NonZeroU64,
    pub(crate) gain: NonZeroU64,
    pub(crate) token: NonZeroU64,
    pub(crate) capacity: u64,
    /// Units of debt; what is left of [`MAX_UNITS`] beside the capacity if unlimited.
    pub(crate) max_reserved: u64,
    pub(crate) initial: u64,
}

impl Quota {
    /// Checks the numbers against each other, and against the 2^53 units that [`algebra`] can
    /// count.
    ///
    /// A quota that fits can owe at least its [`max_reserved`](Self::max_reserved), or ten times
    /// its capacity if that is not set.
    ///
    /// # Errors
    ///
    /// If they contradict each other or do not fit. The error says what would.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{DAY, Quota};
    ///
    /// let error = Quota::token_bucket(1, DAY).capacity(10_000_000_000).validated().unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "capacity of 10000000000 does not fit in 2^53 units: at 1 per day a token counts as 86400, \
    ///      and ten times the capacity may be owed (use a capacity of at most 9477271943, or set \
    ///      `max_reserved`)"
    /// );
    /// ```
    ///
    /// [`algebra`]: crate::algebra
    pub const fn validated(self) -> Result<Self, QuotaError> {
        match Scale::of(&self) {
            Ok(_) => Ok(self),
            Err(error) => Err(error),
        }
    }

    /// Checks the settings that do not depend on what can be counted.
    const fn check_settings(&self) -> Result<(), QuotaError> {
        if self.shards == 0 {
            return Err(QuotaError(QuotaProblem::NoShards));
        }
        if self.shards > Self::MAX_SHARDS {
            return Err(QuotaError(QuotaProblem::TooManyShards { shards: self.shards }));
        }
        if self.is_none()
            && (self.capacity.is_some()
                || self.max_reserved.is_some()
                || self.initial.is_some()
                || self.start.is_some())
        {
            return Err(QuotaError(QuotaProblem::OptionsOfNothing));
        }
        if self.start.is_some() && matches!(self.kind, Kind::TokenBucket) {
            return Err(QuotaError(QuotaProblem::StartWithoutWindows));
        }
        if self.start.is_some() && self.calendar.is_some() {
            return Err(QuotaError(QuotaProblem::StartOfCalendar));
        }
        if matches!(self.counted, Counted::RateLostAfter) {
            return Err(QuotaError(QuotaProblem::LostAfterOfRate));
        }
        if self.is_in_flight()
            && (self.capacity.is_some()
                || self.initial.is_some()
                || !matches!(self.start, Some(WindowStart::FirstUse))
                || self.shards > 1)
        {
            return Err(QuotaError(QuotaProblem::OptionsOfInFlight));
        }
        if let Some(initial) = self.initial
            && initial > self.get_capacity()
        {
            return Err(QuotaError(QuotaProblem::Initial {
                initial,
                capacity: self.get_capacity(),
            }));
        }
        Ok(())
    }
}

/// Where the numbers of a token bucket do not fit in steps of a microsecond, it takes the first of
/// steps ten times as long, and so on, in which they do. The longest is a second.
const LONGEST_STEP: u64 = 1_000_000;

/// Every bucket can hold its capacity, and owe ten times as much unless `max_reserved` is set.
const CAPACITIES_COUNTED: u64 = 11;

impl Scale {
    /// The scale of a quota that grants nothing. It could be any other: nothing is counted in it.
    const NOTHING: Self = Self {
        step: NonZeroU64::MIN,
        gain: NonZeroU64::MIN,
        token: NonZeroU64::MIN,
        capacity: 0,
        max_reserved: 0,
        initial: 0,
    };

    /// One bucket for the whole limit, and one of its shards. Both count in the same steps.
    pub(crate) const fn of(quota: &Quota) -> Result<[Self; 2], QuotaError> {
        if let Err(error) = quota.check_settings() {
            return Err(error);
        }
        let mut step = 1;
        let mut found = Self::in_steps(quota, step);
        while found.is_err() && step < LONGEST_STEP {
            step = step.saturating_mul(10);
            match Self::in_steps(quota, step) {
                // What is gained at once no longer fits. The steps before tell better what would.
                Err(error) if error.is_about_rate() => break,
                coarser => found = coarser,
            }
        }
        found
    }

    /// The same in steps of so many ticks; a fixed window has its own.
    const fn in_steps(quota: &Quota, step: u64) -> Result<[Self; 2], QuotaError> {
        // Both are needed: sometimes the numbers of a shard fit where those of the whole limit do
        // not, and the other way round.
        match (Self::split(quota, 1, step), Self::split(quota, widen(quota.shards), step)) {
            (Ok(whole), Ok(shard)) => Ok([whole, shard]),
            (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
            (Err(whole), Err(shard)) => Err(shard.or_tighter(whole)),
        }
    }

    const fn split(quota: &Quota, shards: u64, step: u64) -> Result<Self, QuotaError> {
        if quota.is_none() {
            return Ok(Self::NOTHING);
        }
        let &Quota { rate, period, .. } = quota;
        let Some(ticks) = micros(period) else {
            return Err(QuotaError(QuotaProblem::Period { period }));
        };
        let (step, gain, token) = match quota.kind {
            Kind::TokenBucket => {
                let Some(ticks) = ticks.get().checked_mul(shards) else {
                    return Err(QuotaError(QuotaProblem::Shards { shards, rate, period }));
                };
                let (gain, token) = gain_and_token(rate, ticks, step);
                (NonZeroU64::new(step), gain, token)
            }
            Kind::FixedWindow => {
                let step = match quota.calendar {
                    Some(calendar) => calendar.step(),
                    None => ticks,
                };
                (Some(step), Some(rate), Some(shards))
            }
        };
        let (Some(step), Some(gain), Some(token)) = (step, nonzero(gain), nonzero(token)) else {
            return Err(QuotaError(QuotaProblem::Rate { rate, period }));
        };
        if gain.get() > MAX_UNITS {
            return Err(QuotaError(QuotaProblem::Rate { rate, period }));
        }
        if token.get() > MAX_UNITS {
            return Err(QuotaError(QuotaProblem::Shards { shards, rate, period }));
        }
        let split = Split { token, shards };
        let (tokens, owes) = (quota.get_capacity(), quota.max_reserved.is_none());
        let fits = match owes {
            true => split.tokens(MAX_UNITS) / CAPACITIES_COUNTED,
            false => split.tokens(MAX_UNITS),
        };
        let capacity = match split.units(tokens) {
            Some(units) if tokens <= fits => units,
            _ => {
                let set = quota.capacity.is_some();
                let given = tokens;
                return Err(QuotaError(QuotaProblem::Capacity {
                    rate,
                    period,
                    given,
                    set,
                    owes,
                    token,
                    fits,
                }));
            }
        };
        let beside = MAX_UNITS.saturating_sub(capacity);
        let max_reserved = match quota.max_reserved {
            None => beside,
            Some(debt) => match split.units(debt) {
                Some(units) if units <= beside => units,
                _ => {
                    let fits = split.tokens(beside);
                    let given = debt;
                    return Err(QuotaError(QuotaProblem::MaxReserved {
                        rate,
                        period,
                        given,
                        token,
                        fits,
                    }));
                }
            },
        };
        let initial = match quota.initial {
            None => capacity,
            // `initial` is at most the capacity, which fits.
            Some(tokens) => match split.units(tokens) {
                Some(units) => units,
                None => capacity,
            },
        };
        Ok(Self { step, gain, token, capacity, max_reserved, initial })
    }
}

/// The units gained in a step, and those of a token, which are `rate · step / period` in lowest
/// terms. `None` if they are too large.
const fn gain_and_token(rate: u64, period: u64, step: u64) -> (Option<u64>, Option<u64>) {
    // First what the step and the period have in common, as the product of rate and step may be too
    // large.
    let common = gcd(step, period);
    let (Some(step), Some(period)) = (step.checked_div(common), period.checked_div(common)) else {
        return (None, None);
    };
    let common = gcd(rate, period);
    let gain = match rate.checked_div(common) {
        Some(rate) => rate.checked_mul(step),
        None => None,
    };
    (gain, period.checked_div(common))
}

/// How tokens of the whole limit become units of one shard.
#[derive(Clone, Copy)]
struct Split {
    token: NonZeroU64,
    shards: u64,
}

impl Split {
    /// One shard's part of `tokens`, rounded down to the unit.
    const fn units(self, tokens: u64) -> Option<u64> {
        match tokens.checked_mul(self.token.get()) {
            Some(units) => units.checked_div(self.shards),
            None => None,
        }
    }

    /// The largest number of tokens of the whole limit that make `units` in one shard.
    const fn tokens(self, units: u64) -> u64 {
        let too_many = units.saturating_add(1).saturating_mul(self.shards);
        match too_many.saturating_sub(1).checked_div(self.token.get()) {
            Some(tokens) => tokens,
            None => 0,
        }
    }
}

const fn nonzero(number: Option<u64>) -> Option<NonZeroU64> {
    match number {
        Some(number) => NonZeroU64::new(number),
        None => None,
    }
}

/// Euclid's greatest common divisor.
pub(super) const fn gcd(mut a: u64, mut b: u64) -> u64 {
    // `checked_rem` returns `None` when `b` is zero: then `a` is the divisor.
    while let Some(rest) = a.checked_rem(b) {
        a = b;
        b = rest;
    }
    a
}
