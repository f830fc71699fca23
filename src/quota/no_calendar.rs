//! What stands for calendars without the feature `calendar`: there are none.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use crate::clock::Timestamp;

/// No calendar: code that asks for one is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Calendar {}

impl Calendar {
    #[doc(hidden)]
    #[must_use]
    pub const fn parse(_text: &str) -> Option<Result<Self, &str>> {
        None
    }

    pub(super) const fn period(self) -> Duration {
        match self {}
    }

    pub(super) const fn step(self) -> NonZeroU64 {
        match self {}
    }

    #[cfg(feature = "memory")]
    pub(crate) const fn of_step(_step: NonZeroU64) -> Option<Self> {
        None
    }

    #[doc(hidden)]
    #[must_use]
    pub const fn mean(self) -> i64 {
        match self {}
    }

    #[doc(hidden)]
    #[must_use]
    pub const fn start(self, _at: Timestamp) -> Timestamp {
        match self {}
    }

    #[doc(hidden)]
    #[must_use]
    pub const fn after(self, _ts: Timestamp, _windows: u64) -> Timestamp {
        match self {}
    }

    #[doc(hidden)]
    #[must_use]
    pub const fn count(self, _from: Timestamp, _to: Timestamp) -> u64 {
        match self {}
    }

    pub(crate) const fn ahead(self, _start: Timestamp, _ts: Timestamp) -> i64 {
        match self {}
    }

    pub(crate) const fn time_of(self, _start: Timestamp, _ahead: i64) -> Timestamp {
        match self {}
    }

    pub(crate) const fn ahead_of_end(self, _start: Timestamp, _ts: Timestamp) -> i64 {
        match self {}
    }
}

impl fmt::Display for Calendar {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}
