//! Windows of a calendar: days, weeks and months in a time zone.
//!
//! # Design
//!
//! A calendar is four bytes, so quotas and buckets stay small and can be constants: a unit, and the
//! place of its zone among the [names](zone_names). [`windows`] keeps the starts of its windows.
//!
//! `docs/design/calendar.md` of the repository says how a bucket counts in them.

mod every;
mod windows;
mod zone_names;

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

pub use self::every::Weekday;
use self::every::{Every, WEEKDAYS};
use self::windows::Windows;
use self::zone_names::ZONES;
use crate::clock::Timestamp;

/// Windows that begin when a day, a week or a month does in a time zone; see
/// [`Quota::calendar`](super::Quota::calendar).
///
/// The zone is UTC unless set. Its rules are those of the database that was bundled when the
/// program was built, so nothing has to be installed, and all nodes with the same build agree.
///
/// # Examples
///
/// ```
/// use tollgate::quota::{Calendar, Weekday};
///
/// const INVOICES: Calendar = Calendar::monthly().zone("Europe/Berlin");
/// assert_eq!(INVOICES.to_string(), "month in Europe/Berlin");
///
/// const SHIFTS: Calendar = Calendar::weekly(Weekday::Sunday).zone("America/New_York");
/// assert_eq!(SHIFTS.to_string(), "week from sunday in America/New_York");
///
/// assert_eq!(Calendar::daily().to_string(), "day in UTC");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Calendar {
    every: Every,
    /// The place of its name.
    zone: u16,
}

impl Calendar {
    /// Windows that begin at midnight.
    #[must_use]
    pub const fn daily() -> Self {
        Self { every: Every::Day, zone: UTC }
    }

    /// Windows that begin at the midnight before this day of the week.
    #[must_use]
    pub const fn weekly(first: Weekday) -> Self {
        Self { every: Every::Week(first), zone: UTC }
    }

    /// Windows that begin at midnight before the first day of a month.
    #[doc(alias = "per_month")]
    #[must_use]
    pub const fn monthly() -> Self {
        Self { every: Every::Month, zone: UTC }
    }

    /// Sets the time zone, by its name in the database: `Europe/Berlin`.
    ///
    /// # Panics
    ///
    /// If there is no zone of this name. In a `const`, that is a compile error; for names read at
    /// run time use [`try_zone`](Self::try_zone).
    #[must_use]
    #[track_caller]
    pub const fn zone(self, name: &str) -> Self {
        match place(name) {
            Some(zone) => Self { zone, ..self },
            None => panic!("there is no time zone of this name (use one such as `Europe/Berlin`)"),
        }
    }

    /// Sets the time zone by a name that is known at run time only, in any case. `None` if there is
    /// no zone of this name.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::quota::Calendar;
    ///
    /// let berlin = Calendar::daily().zone("Europe/Berlin");
    /// assert_eq!(Calendar::daily().try_zone("europe/berlin"), Some(berlin));
    /// assert_eq!(Calendar::daily().try_zone("Europe/Bonn"), None);
    /// ```
    #[must_use]
    pub fn try_zone(self, name: &str) -> Option<Self> {
        let place = ZONES.iter().position(|zone| zone.eq_ignore_ascii_case(name))?;
        Some(Self { zone: u16::try_from(place).ok()?, ..self })
    }

    /// The name of the time zone.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::quota::Calendar;
    ///
    /// assert_eq!(Calendar::daily().zone("Asia/Tokyo").zone_name(), "Asia/Tokyo");
    /// ```
    #[must_use]
    pub fn zone_name(&self) -> &'static str {
        ZONES.get(usize::from(self.zone)).copied().unwrap_or_default()
    }

    /// Reads what stands after `per`: `month in Europe/Berlin`, `week from sunday in UTC`. `None` if
    /// it is no calendar; otherwise the unit, and the zone if there is one of that name.
    #[doc(hidden)]
    #[must_use]
    pub fn parse(text: &str) -> Option<Result<Self, &str>> {
        let mut words = text.split_ascii_whitespace();
        let unit = words.next()?.to_ascii_lowercase();
        let (every, zone) = match (&*unit, words.next()?.to_ascii_lowercase().as_str()) {
            ("day", "in") => (Every::Day, words.next()?),
            ("month", "in") => (Every::Month, words.next()?),
            ("week", "in") => (Every::Week(Weekday::Monday), words.next()?),
            ("week", "from") => {
                let day = words.next()?;
                let is_named = |(name, _): &&(&str, Weekday)| name.eq_ignore_ascii_case(day);
                let (_, first) = WEEKDAYS.iter().find(is_named)?;
                let is_in = words.next()?.eq_ignore_ascii_case("in");
                (Every::Week(*first), words.next().filter(|_| is_in)?)
            }
            _ => return None,
        };
        if words.next().is_some() {
            return None;
        }
        Some(Self { every, zone: UTC }.try_zone(zone).ok_or(zone))
    }

    /// The time that a window is said to have: a month of 31 days.
    pub(super) const fn period(self) -> Duration {
        Duration::from_micros(self.every.period())
    }

    /// A length that no window exceeds, which also tells one calendar from another: a hash of its
    /// text lies in the microseconds. So the numbers that a store keeps of a bucket name its
    /// calendar.
    pub(super) const fn step(self) -> NonZeroU64 {
        let (mut zones, mut place) = (ZONES.as_slice(), self.zone);
        while place > 0
            && let [_, after @ ..] = zones
        {
            zones = after;
            place = place.saturating_sub(1);
        }
        match zones {
            [name, ..] => step(self.every, name),
            [] => NonZeroU64::MIN,
        }
    }

    /// The calendar with this [`step`](Self::step).
    #[cfg(feature = "memory")]
    pub(crate) fn of_step(given: NonZeroU64) -> Option<Self> {
        let weeks = WEEKDAYS.map(|(_, first)| Every::Week(first));
        let mut all = weeks.into_iter().chain([Every::Day, Every::Month]);
        all.find_map(|every| {
            let hash = given.get().checked_sub(every.longest())?;
            if hash > u64::from(u32::MAX) {
                return None;
            }
            let place = ZONES.iter().position(|name| step(every, name) == given)?;
            Some(Self { every, zone: u16::try_from(place).ok()? })
        })
    }

    /// The mean length of a window in microseconds.
    #[doc(hidden)]
    #[must_use]
    pub const fn mean(self) -> i64 {
        self.every.mean()
    }

    fn windows(self) -> &'static Windows {
        windows::of(self.every, self.zone)
    }

    /// The start of the window around an instant.
    #[doc(hidden)]
    #[must_use]
    pub fn start(self, at: Timestamp) -> Timestamp {
        Timestamp::from_micros(self.windows().start(at.as_micros()))
    }

    /// The start of the window so many windows after the one that starts nearest to `ts`.
    #[doc(hidden)]
    #[must_use]
    pub fn after(self, ts: Timestamp, windows: u64) -> Timestamp {
        Timestamp::from_micros(self.windows().after(ts.as_micros(), windows))
    }

    /// How many windows start after `from`, up to `to`.
    #[doc(hidden)]
    #[must_use]
    pub fn count(self, from: Timestamp, to: Timestamp) -> u64 {
        self.windows().count(from.as_micros(), to.as_micros())
    }

    /// How many windows after the one that starts at `start` the window is whose start `ts` is, or
    /// was by other rules of the zone; below zero if it is earlier.
    ///
    /// By the mean length, which needs no table: months differ from it by some days in sum, and days
    /// and weeks by some hours.
    pub(crate) fn ahead(self, start: Timestamp, ts: Timestamp) -> i64 {
        let distance = ts.as_micros().saturating_sub(start.as_micros());
        let mean = self.mean();
        distance.saturating_mul(2).saturating_add(mean).div_euclid(mean.saturating_mul(2))
    }

    /// The time of a state that counts in a window which is so many `ahead` of the one that starts
    /// at `start`.
    ///
    /// It is a quarter of a window after the likely start, so it lies in the future, and
    /// [`ahead`](Self::ahead) finds the same window however long those before it are. A store can
    /// compute it.
    pub(crate) fn time_of(self, start: Timestamp, ahead: i64) -> Timestamp {
        if ahead <= 0 {
            return start;
        }
        // No later than what can be counted, which is in the year 2255.
        let (mean, last) = (self.mean(), super::MAX_UNITS.cast_signed());
        let quarter = mean / 4;
        let most = last.saturating_sub(start.as_micros()).saturating_sub(quarter).div_euclid(mean);
        let later = mean.saturating_mul(ahead.min(most)).saturating_add(quarter);
        Timestamp::from_micros(start.as_micros().saturating_add(later))
    }

    /// How many windows ahead of the one that starts at `start` the one is in which a block ends at
    /// `ts`.
    ///
    /// If it is not that one, it is told by the mean length, and may be one too many in the last
    /// eighth of a window. It is never one too few, as no start lies so far from its mean place.
    pub(crate) fn ahead_of_end(self, start: Timestamp, ts: Timestamp) -> i64 {
        let end = self.after(start, 1);
        if ts < end {
            return 0;
        }
        let behind = ts.as_micros().saturating_sub(end.as_micros());
        let mean = self.mean();
        behind.saturating_add(mean / 8).div_euclid(mean).saturating_add(1)
    }
}

/// See [`Calendar::step`]. The hash is FNV-1a, which a constant can compute.
const fn step(every: Every, zone: &str) -> NonZeroU64 {
    let mut hash: u32 = 0x811c_9dc5;
    let day = match every {
        Every::Week(first) => first.number(),
        Every::Day | Every::Month => 0,
    };
    hash = (hash ^ day).wrapping_mul(0x0100_0193);
    let mut name = zone.as_bytes();
    while let [byte, after @ ..] = name {
        let byte = u32::from_be_bytes([0, 0, 0, *byte]);
        hash = (hash ^ byte).wrapping_mul(0x0100_0193);
        name = after;
    }
    match NonZeroU64::new(every.longest().saturating_add(super::units::widen(hash))) {
        Some(step) => step,
        None => NonZeroU64::MIN,
    }
}

/// The place of a zone's name.
const fn place(name: &str) -> Option<u16> {
    let (mut rest, mut place) = (ZONES.as_slice(), 0_u16);
    while let [zone, after @ ..] = rest {
        if is_same(zone.as_bytes(), name.as_bytes()) {
            return Some(place);
        }
        rest = after;
        place = place.saturating_add(1);
    }
    None
}

const fn is_same(mut one: &[u8], mut other: &[u8]) -> bool {
    while let ([first, one_rest @ ..], [second, other_rest @ ..]) = (one, other) {
        if *first != *second {
            return false;
        }
        (one, other) = (one_rest, other_rest);
    }
    one.is_empty() && other.is_empty()
}

const UTC: u16 = match place("UTC") {
    Some(place) => place,
    None => panic!("UTC is a zone"),
};

/// Writes what stands after `per` in the text form of a quota.
impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.every {
            Every::Day => f.write_str("day")?,
            Every::Week(Weekday::Monday) => f.write_str("week")?,
            Every::Week(first) => write!(f, "week from {}", first.name())?,
            Every::Month => f.write_str("month")?,
        }
        write!(f, " in {}", self.zone_name())
    }
}

#[cfg(test)]
mod tests;
