//! The range of units and microseconds.

use std::num::NonZeroU64;
use std::time::Duration;

/// The largest number of units. Redis scripts count in doubles, which hold every whole number up to
/// here exactly.
pub const MAX_UNITS: u64 = 1 << 53;

/// See [`Quota::MAX_SHARDS`](super::Quota::MAX_SHARDS).
pub(super) const MAX_SHARDS: u32 = 1_024;

/// A period in ticks; `None` if it is empty, not a whole number of them, or longer than 2^53.
pub(super) const fn micros(period: Duration) -> Option<NonZeroU64> {
    let below_a_tick = period.subsec_nanos().checked_rem(1_000);
    let Some(whole) = period.as_secs().checked_mul(1_000_000) else { return None };
    let Some(micros) = whole.checked_add(widen(period.subsec_micros())) else { return None };
    if !matches!(below_a_tick, Some(0)) || micros > MAX_UNITS {
        return None;
    }
    NonZeroU64::new(micros)
}

#[expect(clippy::as_conversions, reason = "`u64::from` is not const, and nothing is lost")]
pub(super) const fn widen(small: u32) -> u64 {
    small as u64
}

/// The tokens of a cost as callers have it. One below zero, or above what a `u64` holds, is more than
/// any limit can grant.
#[inline]
pub(crate) fn tokens_of(cost: impl TryInto<u64>) -> u64 {
    cost.try_into().unwrap_or(u64::MAX)
}
