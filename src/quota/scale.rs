//! Compiles a quota to the integers that the algebra counts in.

use std::num::NonZeroU64;

use super::error::{QuotaError, TokenOverflow};
use super::units::{MAX_UNITS, micros, widen};
use super::{Kind, Quota};

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
    /// # Errors
    ///
    /// If they contradict each other or do not fit. The error says what would.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{DAY, Quota};
    ///
    /// let error = Quota::token_bucket(1, DAY).capacity(1_000_000).validated().unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "capacity of 1000000 does not fit: at 1 per day a token counts as 86400000000, and 2^53 \
    ///      can be counted (use a capacity of at most 104249)"
    /// );
    /// ```
    ///
    /// [`algebra`]: crate::algebra
    pub const fn validated(self) -> Result<Self, QuotaError> {
        if self.shards == 0 {
            return Err(QuotaError::no_shards());
        }
        if self.shards > Self::MAX_SHARDS {
            return Err(QuotaError::too_many_shards(self.shards));
        }
        if self.is_none()
            && (self.capacity.is_some()
                || self.max_reserved.is_some()
                || self.initial.is_some()
                || self.start.is_some())
        {
            return Err(QuotaError::options_of_nothing());
        }
        if self.start.is_some() && matches!(self.kind, Kind::TokenBucket) {
            return Err(QuotaError::start_without_windows());
        }
        if let Some(initial) = self.initial
            && initial > self.get_capacity()
        {
            return Err(QuotaError::initial(initial, self.get_capacity()));
        }
        // Both are needed: sometimes the numbers of a shard fit where those of the whole limit do
        // not, and the other way round.
        match (Scale::of_shard(&self), Scale::of_whole(&self)) {
            (Ok(_), Ok(_)) => Ok(self),
            (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
            (Err(shard), Err(whole)) => Err(shard.or_tighter(whole)),
        }
    }
}

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

    /// One bucket for the whole limit.
    pub(crate) const fn of_whole(quota: &Quota) -> Result<Self, QuotaError> {
        Self::split(quota, 1)
    }

    /// One of the limit's shards.
    pub(crate) const fn of_shard(quota: &Quota) -> Result<Self, QuotaError> {
        Self::split(quota, widen(quota.shards))
    }

    const fn split(quota: &Quota, shards: u64) -> Result<Self, QuotaError> {
        if quota.is_none() {
            return Ok(Self::NOTHING);
        }
        let Some(period) = micros(quota.period) else {
            return Err(QuotaError::period(quota.period));
        };
        let (step, gain, token) = match quota.kind {
            Kind::TokenBucket => {
                let Some(per_shard) = period.get().checked_mul(shards) else {
                    return Err(QuotaError::shards(quota.rate, quota.period, shards));
                };
                let common = gcd(quota.rate, per_shard);
                (NonZeroU64::MIN, quota.rate.checked_div(common), per_shard.checked_div(common))
            }
            Kind::FixedWindow => (period, Some(quota.rate), Some(shards)),
        };
        let (Some(gain), Some(token)) = (nonzero(gain), nonzero(token)) else {
            return Err(QuotaError::empty(quota.rate, quota.period));
        };
        if gain.get() > MAX_UNITS {
            return Err(QuotaError::rate(quota.rate, quota.period));
        }
        if token.get() > MAX_UNITS {
            return Err(QuotaError::shards(quota.rate, quota.period, shards));
        }
        let split = Split { token, shards };
        let tokens = quota.get_capacity();
        let capacity = match split.units(tokens) {
            Some(units) if units <= MAX_UNITS => units,
            _ => {
                let (set, fits) = (quota.capacity.is_some(), split.tokens(MAX_UNITS));
                let given = TokenOverflow { tokens, set, token, fits };
                return Err(QuotaError::capacity(quota.rate, quota.period, given));
            }
        };
        let beside = MAX_UNITS.saturating_sub(capacity);
        let max_reserved = match quota.max_reserved {
            None => beside,
            Some(debt) => match split.units(debt) {
                Some(units) if units <= beside => units,
                _ => {
                    let given = TokenOverflow {
                        tokens: debt,
                        set: true,
                        token,
                        fits: split.tokens(beside),
                    };
                    return Err(QuotaError::max_reserved(quota.rate, quota.period, given));
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
