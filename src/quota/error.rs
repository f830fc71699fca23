//! Why numbers are not a quota, and which would be.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use super::Quota;
use super::period::Period;

/// The numbers given are not a quota; the message says which would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaError(Problem);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Problem {
    Empty { rate: u64, period: Duration },
    Period { period: Duration },
    NoShards,
    Shards { shards: u64, rate: u64, period: Duration },
    StartWithoutWindows,
    Initial { initial: u64, capacity: u64 },
    Rate { rate: u64, period: Duration },
    Capacity { rate: u64, period: Duration, given: u64, set: bool, token: NonZeroU64, fits: u64 },
    MaxReserved { rate: u64, period: Duration, given: u64, token: NonZeroU64, fits: u64 },
}

impl QuotaError {
    pub(super) const fn empty(rate: u64, period: Duration) -> Self {
        Self(Problem::Empty { rate, period })
    }

    pub(super) const fn period(period: Duration) -> Self {
        Self(Problem::Period { period })
    }

    pub(super) const fn no_shards() -> Self {
        Self(Problem::NoShards)
    }

    pub(super) const fn shards(quota: &Quota, shards: u64) -> Self {
        Self(Problem::Shards { shards, rate: quota.rate, period: quota.period })
    }

    pub(super) const fn start_without_windows() -> Self {
        Self(Problem::StartWithoutWindows)
    }

    pub(super) const fn initial(initial: u64, capacity: u64) -> Self {
        Self(Problem::Initial { initial, capacity })
    }

    pub(super) const fn rate(quota: &Quota) -> Self {
        Self(Problem::Rate { rate: quota.rate, period: quota.period })
    }

    pub(super) const fn capacity(quota: &Quota, token: NonZeroU64, fits: u64) -> Self {
        let Quota { rate, period, .. } = *quota;
        let (given, set) = (quota.tokens_at_most(), quota.capacity.is_some());
        Self(Problem::Capacity { rate, period, given, set, token, fits })
    }

    pub(super) const fn max_reserved(quota: &Quota, token: NonZeroU64, fits: u64) -> Self {
        let Quota { rate, period, .. } = *quota;
        let given = match quota.max_reserved {
            Some(tokens) => tokens,
            None => 0,
        };
        Self(Problem::MaxReserved { rate, period, given, token, fits })
    }

    /// Of two bounds on the same number, the one that holds for both.
    pub(super) const fn or_tighter(self, other: Self) -> Self {
        match (self.0, other.0) {
            (Problem::Capacity { fits, .. }, Problem::Capacity { fits: tighter, .. })
            | (Problem::MaxReserved { fits, .. }, Problem::MaxReserved { fits: tighter, .. })
                if tighter < fits =>
            {
                other
            }
            _ => self,
        }
    }

    /// Ends a constructor that promised to panic; a `const` panic cannot format numbers.
    #[track_caller]
    pub(crate) const fn panic(self) -> ! {
        match self.0 {
            Problem::Empty { .. } => panic!("a quota needs a rate and a period above zero"),
            Problem::Period { .. } => {
                panic!("the period must be whole microseconds, at most 2^53 of them")
            }
            Problem::NoShards => panic!("a quota needs at least one shard"),
            Problem::Shards { .. } => panic!("the shards do not fit 2^53 units"),
            Problem::StartWithoutWindows => panic!("only a fixed window has a start"),
            Problem::Initial { .. } => panic!("initial is above the capacity"),
            Problem::Rate { .. } => panic!("the rate does not fit 2^53 units"),
            Problem::Capacity { .. } => panic!("the capacity does not fit 2^53 units"),
            Problem::MaxReserved { .. } => panic!("max_reserved does not fit 2^53 units"),
        }
    }
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Problem::Empty { rate, period } => write!(
                f,
                "quota of {rate} per {} is empty (rate and period must both be more than \
                 zero)",
                Period(period)
            ),
            Problem::Period { period } => write!(
                f,
                "period of {period:?} cannot be counted (it must be a whole number of \
                 microseconds, at most 2^53 of them, which is 285 years)"
            ),
            Problem::NoShards => f.write_str("0 shards hold no tokens (use 1 or more)"),
            Problem::Shards { shards, rate, period } => write!(
                f,
                "{shards} shards of {rate} per {} do not fit: a token would count as more than \
                 2^53 (use fewer shards, or a shorter period)",
                Period(period)
            ),
            Problem::StartWithoutWindows => f.write_str(
                "a token bucket has no windows, so it has no start (drop `start`, or make it a \
                 fixed window)",
            ),
            Problem::Initial { initial, capacity } => write!(
                f,
                "initial of {initial} is above the capacity of {capacity} (use at most \
                 {capacity}, or raise the capacity)"
            ),
            Problem::Rate { rate, period } => write!(
                f,
                "rate of {rate} per {} does not fit: 2^53 can be counted (use a rate of at most {})",
                Period(period),
                super::scale::MAX_UNITS
            ),
            Problem::Capacity { rate, period, given, set, token, fits } => write!(
                f,
                "capacity of {given}{} does not fit: at {rate} per {} a token counts as {token}, and \
                 2^53 can be counted (use a capacity of at most {fits})",
                if set { "" } else { " (the rate, as none is set)" },
                Period(period)
            ),
            Problem::MaxReserved { rate, period, given, token, fits } => write!(
                f,
                "max_reserved of {given} does not fit: at {rate} per {} a token counts as {token}, \
                 and 2^53 can be counted, the capacity included (use a max_reserved of at most \
                 {fits})",
                Period(period)
            ),
        }
    }
}

impl std::error::Error for QuotaError {}
