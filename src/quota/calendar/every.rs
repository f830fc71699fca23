//! How often the windows of a calendar begin.

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a week has seven days")]
#[expect(missing_docs, reason = "they are the days of the week")]
pub enum Weekday {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

/// How often a window begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Every {
    Day,
    Week(Weekday),
    Month,
}

/// In the order of `Weekday`, as they are written.
pub(super) const WEEKDAYS: [(&str, Weekday); 7] = [
    ("monday", Weekday::Monday),
    ("tuesday", Weekday::Tuesday),
    ("wednesday", Weekday::Wednesday),
    ("thursday", Weekday::Thursday),
    ("friday", Weekday::Friday),
    ("saturday", Weekday::Saturday),
    ("sunday", Weekday::Sunday),
];

const HOUR: u64 = 3_600_000_000;
const DAY: u64 = 24 * HOUR;

impl Weekday {
    pub(super) const fn number(self) -> u32 {
        match self {
            Self::Monday => 1,
            Self::Tuesday => 2,
            Self::Wednesday => 3,
            Self::Thursday => 4,
            Self::Friday => 5,
            Self::Saturday => 6,
            Self::Sunday => 7,
        }
    }

    pub(super) fn name(self) -> &'static str {
        WEEKDAYS.iter().find(|(_, day)| *day == self).map_or("", |(name, _)| name)
    }
}

impl Every {
    /// The time that a window is said to have, in microseconds: a month of 31 days.
    pub(super) const fn period(self) -> u64 {
        match self {
            Self::Day => DAY,
            Self::Week(_) => 7 * DAY,
            Self::Month => 31 * DAY,
        }
    }

    /// A length that no window exceeds, in microseconds.
    pub(super) const fn longest(self) -> u64 {
        self.period().saturating_add(2 * HOUR)
    }

    /// The mean length of a window in microseconds.
    pub(super) const fn mean(self) -> i64 {
        match self {
            Self::Day => DAY.cast_signed(),
            Self::Week(_) => (7 * DAY).cast_signed(),
            // 146,097 days in 4,800 months.
            Self::Month => 2_629_746_000_000,
        }
    }
}
