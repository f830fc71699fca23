//! Why some numbers are not a valid quota, and which numbers would be.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use super::period::Period;
use super::units::{MAX_SHARDS, MAX_UNITS};

/// The error of numbers that are not a valid quota. The message says which numbers would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaError(pub(super) QuotaProblem);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuotaProblem {
    Empty {
        rate: u64,
        period: Duration,
    },
    OptionsOfNothing,
    NothingInOutage,
    NoneInFlight,
    OptionsOfInFlight,
    LostAfterOfRate,
    Period {
        period: Duration,
    },
    NoShards,
    TooManyShards {
        shards: u32,
    },
    Shards {
        shards: u64,
        rate: u64,
        period: Duration,
    },
    StartWithoutWindows,
    StartOfCalendar,
    Initial {
        initial: u64,
        capacity: u64,
    },
    Rate {
        rate: u64,
        period: Duration,
    },
    Capacity {
        rate: u64,
        period: Duration,
        given: u64,
        /// Whether the quota sets this number itself; otherwise it follows from the rate.
        set: bool,
        /// Whether ten times the capacity has to fit as debt, as no `max_reserved` is set.
        owes: bool,
        /// The units that one token is worth.
        token: NonZeroU64,
        /// How many tokens would fit.
        fits: u64,
    },
    MaxReserved {
        rate: u64,
        period: Duration,
        given: u64,
        token: NonZeroU64,
        fits: u64,
    },
}

impl QuotaError {
    pub(crate) const fn nothing_in_outage() -> Self {
        Self(QuotaProblem::NothingInOutage)
    }

    pub(super) const fn is_about_rate(&self) -> bool {
        matches!(self.0, QuotaProblem::Rate { .. })
    }

    /// Of two errors about the same number, the one with the tighter bound: that bound satisfies
    /// both. A capacity that does not fit comes before a debt, which no bound would mend.
    pub(super) const fn or_tighter(self, other: Self) -> Self {
        match (self.0, other.0) {
            (QuotaProblem::Capacity { fits, .. }, QuotaProblem::Capacity { fits: tighter, .. })
            | (
                QuotaProblem::MaxReserved { fits, .. },
                QuotaProblem::MaxReserved { fits: tighter, .. },
            ) if tighter < fits => other,
            (QuotaProblem::MaxReserved { .. }, QuotaProblem::Capacity { .. }) => other,
            _ => self,
        }
    }

    /// Panics for a constructor. A `const` panic cannot format numbers, so the messages have none.
    #[track_caller]
    pub(crate) const fn panic(self) -> ! {
        match self.0 {
            QuotaProblem::Empty { rate: 0, .. } => panic!(
                "a quota needs a rate and a period above zero (`Quota::none()` grants nothing)"
            ),
            QuotaProblem::Empty { .. } => panic!("a quota needs a rate and a period above zero"),
            QuotaProblem::OptionsOfNothing => {
                panic!(
                    "a quota of 0 has no capacity, max_reserved, initial or start (drop them, or \
                     use a rate above zero)"
                )
            }
            QuotaProblem::NothingInOutage => {
                panic!("a quota of 0 cannot be counted in an outage (use a rate above zero)")
            }
            QuotaProblem::NoneInFlight => {
                panic!(
                    "a quota needs at least one request in flight (`Quota::none()` grants nothing)"
                )
            }
            QuotaProblem::OptionsOfInFlight => {
                panic!("a quota of requests in flight has no capacity, initial, start or shards")
            }
            QuotaProblem::LostAfterOfRate => {
                panic!("only a quota of requests in flight has a `lost_after`")
            }
            QuotaProblem::Period { .. } => {
                panic!("the period must be whole microseconds, at most 2^53 of them")
            }
            QuotaProblem::NoShards => panic!("a quota needs at least one shard"),
            QuotaProblem::TooManyShards { .. } => panic!("a quota has at most 1024 shards"),
            QuotaProblem::Shards { .. } => panic!(
                "the shards do not fit in 2^53 units (use fewer shards, or a shorter period)"
            ),
            QuotaProblem::StartWithoutWindows => {
                panic!("a token bucket has no start (drop `start`, or use a fixed window)")
            }
            QuotaProblem::StartOfCalendar => panic!("a calendar takes no `start` (drop `start`)"),
            QuotaProblem::Initial { .. } => {
                panic!("initial is above the capacity (use less, or raise the capacity)")
            }
            QuotaProblem::Rate { .. } => {
                panic!("the rate does not fit in 2^53 units (use a lower rate)")
            }
            QuotaProblem::Capacity { owes: true, .. } => panic!(
                "the capacity and ten times as much debt do not fit in 2^53 units (use a lower \
                 capacity, or set `max_reserved`)"
            ),
            QuotaProblem::Capacity { .. } => {
                panic!("the capacity does not fit in 2^53 units (use a lower one)")
            }
            QuotaProblem::MaxReserved { .. } => {
                panic!("max_reserved does not fit in 2^53 units (use a lower one)")
            }
        }
    }
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            QuotaProblem::Empty { rate, period } => write!(
                f,
                "quota of {rate} per {} is empty (rate and period must both be more than zero{})",
                Period(period),
                if rate == 0 { "; `Quota::none()` grants nothing" } else { "" }
            ),
            QuotaProblem::OptionsOfNothing => f.write_str(
                "a quota of 0 has no capacity, max_reserved, initial or start (drop them, or use a \
                 rate above zero)",
            ),
            QuotaProblem::NothingInOutage => f.write_str(
                "a quota of 0 cannot be counted in an outage (set `OnFailure::Refuse` for the \
                 limit, or use a rate above zero)",
            ),
            QuotaProblem::NoneInFlight => f.write_str(
                "quota of 0 requests in flight is empty (use 1 or more; `Quota::none()` grants \
                 nothing)",
            ),
            QuotaProblem::OptionsOfInFlight => f.write_str(
                "a quota of requests in flight has no capacity, initial, start or shards (drop them; \
                 `max_reserved` bounds how many requests wait)",
            ),
            QuotaProblem::LostAfterOfRate => f.write_str(
                "the tokens of a rate come back by themselves, so none is lost (drop `lost_after`, or \
                 count requests in flight)",
            ),
            QuotaProblem::Period { period } => write!(
                f,
                "period of {period:?} cannot be counted (use whole microseconds, at most 2^53 of \
                 them, which is 285 years)"
            ),
            QuotaProblem::NoShards => f.write_str("0 shards hold no tokens (use 1 or more)"),
            QuotaProblem::TooManyShards { shards } => write!(
                f,
                "{shards} shards are too many, as `peek` and `reset` ask the store for each of them \
                 (use at most {MAX_SHARDS})"
            ),
            QuotaProblem::Shards { shards, rate, period } => write!(
                f,
                "{shards} shards of {rate} per {} do not fit: a token would be more than 2^53 \
                 units (use fewer shards, or a shorter period)",
                Period(period)
            ),
            QuotaProblem::StartWithoutWindows => {
                f.write_str("a token bucket has no start (drop `start`, or use a fixed window)")
            }
            QuotaProblem::StartOfCalendar => {
                f.write_str("a calendar takes no `start` (drop `start`, or use a period)")
            }
            QuotaProblem::Initial { initial, capacity } => write!(
                f,
                "initial of {initial} is above the capacity of {capacity} (use at most \
                 {capacity}, or raise the capacity)"
            ),
            QuotaProblem::Rate { rate, period } => write!(
                f,
                "rate of {rate} per {} does not fit in 2^53 units (use a rate of at most {})",
                Period(period),
                MAX_UNITS
            ),
            QuotaProblem::Capacity { rate, period, given, set, owes, token, fits } => write!(
                f,
                "capacity of {given}{} does not fit in 2^53 units: at {rate} per {} a token counts \
                 as {token}{} (use a capacity of at most {fits}{})",
                if set { "" } else { " (the rate, as none is set)" },
                Period(period),
                if owes { ", and ten times the capacity may be owed" } else { "" },
                if owes { ", or set `max_reserved`" } else { "" },
            ),
            QuotaProblem::MaxReserved { rate, period, given, token, fits } => write!(
                f,
                "max_reserved of {given} does not fit in 2^53 units: at {rate} per {} a token \
                 counts as {token}, and the capacity counts too (use a max_reserved of at most \
                 {fits})",
                Period(period)
            ),
        }
    }
}

impl std::error::Error for QuotaError {}
