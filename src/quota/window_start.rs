//! Where windows begin that are not those of a calendar.

use std::fmt;

use crate::clock::Timestamp;

/// Where windows begin, if each key does not have a time of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum WindowStart {
    /// One begins at this instant, and others at every whole number of periods before and after.
    At(Timestamp),
    /// One begins with the first use of a bucket that is full, and others a period after another
    /// until it is full again.
    FirstUse,
    /// It is not known: the windows of a stored bucket follow on each other from its time on.
    Unknown,
}

/// The text form of a start with the first use.
pub(super) const FIRST_USE: &str = "first use";

impl fmt::Display for WindowStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(start) => start.fmt(f),
            Self::FirstUse => f.write_str(FIRST_USE),
            // No quota is written with it.
            Self::Unknown => f.write_str("unknown"),
        }
    }
}
