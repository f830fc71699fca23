//! Compiles a quota to the integers that the algebra counts in.

use std::num::NonZeroU64;
use std::time::Duration;

use super::{Kind, Quota, QuotaError};

/// Redis scripts count in doubles, which hold every whole number up to here.
pub(crate) const MAX_UNITS: u64 = 1 << 53;

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

impl Scale {
    /// One bucket for the whole limit.
    pub(crate) const fn of_whole(quota: &Quota) -> Result<Self, QuotaError> {
        Self::split(quota, 1)
    }

    /// One of the limit's shards.
    pub(crate) const fn of_shard(quota: &Quota) -> Result<Self, QuotaError> {
        Self::split(quota, widen(quota.shards))
    }

    const fn split(quota: &Quota, shards: u64) -> Result<Self, QuotaError> {
        let Some(period) = micros(quota.period) else {
            return Err(QuotaError::period(quota.period));
        };
        let (step, gain, token) = match quota.kind {
            Kind::TokenBucket => {
                let Some(per_shard) = period.get().checked_mul(shards) else {
                    return Err(QuotaError::shards(quota, shards));
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
            return Err(QuotaError::rate(quota));
        }
        if token.get() > MAX_UNITS {
            return Err(QuotaError::shards(quota, shards));
        }
        let split = Split { token, shards };
        let tokens = quota.tokens_at_most();
        let capacity = match split.units(tokens) {
            Some(units) if units <= MAX_UNITS => units,
            _ => return Err(QuotaError::capacity(quota, token, split.tokens(MAX_UNITS))),
        };
        let beside = MAX_UNITS.saturating_sub(capacity);
        let max_reserved = match quota.max_reserved {
            None => beside,
            Some(debt) => match split.units(debt) {
                Some(units) if units <= beside => units,
                _ => return Err(QuotaError::max_reserved(quota, token, split.tokens(beside))),
            },
        };
        let initial = match quota.initial {
            None => capacity,
            // At most the capacity, which fits.
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

    /// The most tokens of the whole limit of which one shard's part is `units`.
    const fn tokens(self, units: u64) -> u64 {
        let too_many = units.saturating_add(1).saturating_mul(self.shards);
        match too_many.saturating_sub(1).checked_div(self.token.get()) {
            Some(tokens) => tokens,
            None => 0,
        }
    }
}

/// A period in ticks; `None` if it is empty, not a whole number of them, or longer than 2^53.
pub(crate) const fn micros(period: Duration) -> Option<NonZeroU64> {
    let below_a_tick = period.subsec_nanos().checked_rem(1_000);
    let Some(whole) = period.as_secs().checked_mul(1_000_000) else { return None };
    let Some(micros) = whole.checked_add(widen(period.subsec_micros())) else { return None };
    if !matches!(below_a_tick, Some(0)) || micros > MAX_UNITS {
        return None;
    }
    NonZeroU64::new(micros)
}

#[expect(clippy::as_conversions, reason = "`u64::from` is not const, and nothing is lost")]
const fn widen(small: u32) -> u64 {
    small as u64
}

const fn nonzero(number: Option<u64>) -> Option<NonZeroU64> {
    match number {
        Some(number) => NonZeroU64::new(number),
        None => None,
    }
}

/// Euclid's greatest common divisor.
const fn gcd(mut a: u64, mut b: u64) -> u64 {
    // No remainder means that `b` is zero: done.
    while let Some(rest) = a.checked_rem(b) {
        a = b;
        b = rest;
    }
    a
}
