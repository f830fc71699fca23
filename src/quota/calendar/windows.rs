//! The starts of a calendar's windows, kept ready.
//!
//! # Design
//!
//! A decision asks for the window around it, and must not wait for the rules of a zone. So the
//! starts are computed a year at a time, once, and kept as sorted numbers: at most 366 of them, for
//! 288 years, for each calendar that is used. A look takes no lock and allocates nothing. What lies
//! outside of these years, where no store counts, is told by the mean length.

use std::sync::OnceLock;

use jiff::civil::Date;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::every::{Every, Weekday};
use super::zone_names::ZONES;

/// The windows of a calendar in the zone at this place of the names.
pub(super) fn of(every: Every, zone: u16) -> &'static Windows {
    static OF_ZONES: [OnceLock<[OnceLock<Windows>; 9]>; ZONES.len()] =
        [const { OnceLock::new() }; ZONES.len()];
    static OF_UTC: OnceLock<Windows> = OnceLock::new();
    let make =
        || Windows::new(every, zone_of(ZONES.get(usize::from(zone)).copied().unwrap_or_default()));
    let of_zone = OF_ZONES.get(usize::from(zone));
    let of_zone = of_zone.map(|zone| zone.get_or_init(Default::default));
    let place = match every {
        Every::Month => 0,
        Every::Day => 8,
        Every::Week(first) => usize::from(u8::try_from(first.number()).unwrap_or(0)),
    };
    // Each calendar has a place, so the other one is never used.
    let windows = of_zone.and_then(|units| units.get(place)).unwrap_or(&OF_UTC);
    windows.get_or_init(make)
}

/// The rules of a zone, from the bundled database alone: what is installed on a machine must not
/// make its decisions differ from those of others.
fn zone_of(name: &str) -> TimeZone {
    static BUNDLED: OnceLock<TimeZoneDatabase> = OnceLock::new();
    // A test looks each of our names up. The database takes no name out.
    BUNDLED.get_or_init(TimeZoneDatabase::bundled).get(name).unwrap_or(TimeZone::UTC)
}

/// The first year that is kept, and the first that is not.
const FIRST: i16 = 1969;
const END: i16 = 2257;

#[derive(Debug)]
pub(super) struct Windows {
    zone: TimeZone,
    every: Every,
    /// In microseconds.
    mean: i64,
    /// The starts of the windows that begin in each year, by the zone's dates.
    years: Box<[OnceLock<Box<[i64]>>]>,
}

/// A window, by its year and its place there.
#[derive(Clone, Copy)]
struct Place {
    year: usize,
    nth: usize,
}

impl Windows {
    pub(super) fn new(every: Every, zone: TimeZone) -> Self {
        let years = (FIRST..END).map(|_| OnceLock::new()).collect();
        Self { zone, every, mean: every.mean(), years }
    }

    pub(super) fn start(&self, at: i64) -> i64 {
        match self.find(at) {
            Ok(place) => self.at(place).unwrap_or(at),
            Err(edge) => {
                let windows = at.saturating_sub(edge).div_euclid(self.mean);
                edge.saturating_add(windows.saturating_mul(self.mean))
            }
        }
    }

    pub(super) fn after(&self, ts: i64, windows: u64) -> i64 {
        let by_mean =
            |edge: i64, windows: i64| edge.saturating_add(windows.saturating_mul(self.mean));
        let windows = i64::try_from(windows).unwrap_or(i64::MAX);
        match self.find(ts) {
            Ok(place) => {
                // The nearer of two starts.
                let start = self.at(place).unwrap_or(ts);
                let next = self.walk(place, 1).unwrap_or(start);
                let is_late = ts.saturating_sub(start) > next.saturating_sub(ts);
                let windows = windows.saturating_add(i64::from(is_late));
                self.walk(place, windows).unwrap_or_else(|behind| by_mean(self.end(), behind))
            }
            Err(edge) => {
                let half = self.mean / 2;
                let from = ts.saturating_sub(edge).saturating_add(half).div_euclid(self.mean);
                let windows = windows.saturating_add(from);
                if edge == self.end() || windows < 0 {
                    return by_mean(edge, windows);
                }
                let first = Place { year: 0, nth: 0 };
                self.walk(first, windows).unwrap_or_else(|behind| by_mean(self.end(), behind))
            }
        }
    }

    pub(super) fn count(&self, from: i64, to: i64) -> u64 {
        if to <= from {
            return 0;
        }
        let by_mean = |at: i64, edge: i64| at.saturating_sub(edge).div_euclid(self.mean);
        let count = match (self.find(from), self.find(to)) {
            (Ok(from), Ok(to)) => self.between(from, to),
            (Ok(from), Err(edge)) => {
                let end = Place { year: self.years.len().saturating_sub(1), nth: 0 };
                self.between(from, end).saturating_add(by_mean(to, edge))
            }
            (Err(edge), Ok(to)) => {
                self.between(Place { year: 0, nth: 0 }, to).saturating_sub(by_mean(from, edge))
            }
            (Err(one), Err(other)) if one == other => {
                by_mean(to, one).saturating_sub(by_mean(from, one))
            }
            (Err(first), Err(end)) => {
                let all = self.years.len().saturating_sub(1);
                let all = self.between(Place { year: 0, nth: 0 }, Place { year: all, nth: 0 });
                all.saturating_add(by_mean(to, end)).saturating_sub(by_mean(from, first))
            }
        };
        u64::try_from(count).unwrap_or(0)
    }

    /// How many windows later one place is than another.
    fn between(&self, from: Place, to: Place) -> i64 {
        let length = |length: usize| i64::try_from(length).unwrap_or(i64::MAX);
        let whole = (from.year..to.year)
            .fold(0, |all: i64, year| all.saturating_add(length(self.year(year).len())));
        whole.saturating_add(length(to.nth)).saturating_sub(length(from.nth))
    }

    /// The start of the window so many windows later; how many are behind the kept years, if it is
    /// there.
    fn walk(&self, Place { mut year, nth }: Place, windows: i64) -> Result<i64, i64> {
        let mut rest = usize::try_from(windows).unwrap_or(usize::MAX).saturating_add(nth);
        while year < self.years.len().saturating_sub(1) {
            let starts = self.year(year);
            if let Some(start) = starts.get(rest) {
                return Ok(*start);
            }
            rest = rest.saturating_sub(starts.len());
            year = year.saturating_add(1);
        }
        Err(i64::try_from(rest).unwrap_or(i64::MAX))
    }

    fn at(&self, Place { year, nth }: Place) -> Option<i64> {
        self.year(year).get(nth).copied()
    }

    /// The start of the first window behind the kept years.
    fn end(&self) -> i64 {
        self.year(self.years.len().saturating_sub(1)).first().copied().unwrap_or(i64::MAX)
    }

    /// The window around an instant. Outside of the kept years, the start of the first window in
    /// them or behind them.
    fn find(&self, at: i64) -> Result<Place, i64> {
        let end = self.years.len().saturating_sub(1);
        // Within a year of the right one, whatever the zone.
        let days = at.div_euclid(86_400_000_000).clamp(-1_000, 200_000);
        let latest = days.saturating_mul(4).div_euclid(1_461).saturating_add(2);
        let mut year = usize::try_from(latest).unwrap_or(0).min(end);
        loop {
            let starts = self.year(year);
            match starts.first() {
                Some(first) if *first <= at => break,
                first if year == 0 => return Err(first.copied().unwrap_or(0)),
                _ => year = year.saturating_sub(1),
            }
        }
        if year == end {
            return Err(self.end());
        }
        let begun = self.year(year).partition_point(|start| *start <= at);
        Ok(Place { year, nth: begun.saturating_sub(1) })
    }

    /// The starts of a year, which are computed when it is first asked for.
    fn year(&self, year: usize) -> &[i64] {
        match self.years.get(year) {
            Some(kept) => kept.get_or_init(|| self.starts(year)),
            None => &[],
        }
    }

    fn starts(&self, year: usize) -> Box<[i64]> {
        let number = i16::try_from(year).unwrap_or(0).saturating_add(FIRST);
        let mut starts: Vec<i64> = Vec::new();
        let mut push = |date: Date| {
            // At a midnight that there is not, the day begins with the first instant after it.
            let midnight = self.zone.to_ambiguous_timestamp(date.at(0, 0, 0, 0)).compatible();
            // A day that a zone has left out begins and ends at one instant: it is no window.
            if let Ok(start) = midnight.map(|start| start.as_microsecond())
                && starts.last().is_none_or(|last| *last < start)
            {
                starts.push(start);
            }
        };
        for month in 1..=12 {
            let Ok(first) = Date::new(number, month, 1) else { continue };
            match self.every {
                Every::Month => push(first),
                Every::Day => first
                    .series(jiff::Span::new().days(1))
                    .take_while(|date| date.month() == month)
                    .for_each(&mut push),
                Every::Week(day) => first
                    .series(jiff::Span::new().days(1))
                    .take_while(|date| date.month() == month)
                    .filter(|date| weekday(*date) == day)
                    .for_each(&mut push),
            }
        }
        starts.into()
    }
}

fn weekday(date: Date) -> Weekday {
    match date.weekday() {
        jiff::civil::Weekday::Monday => Weekday::Monday,
        jiff::civil::Weekday::Tuesday => Weekday::Tuesday,
        jiff::civil::Weekday::Wednesday => Weekday::Wednesday,
        jiff::civil::Weekday::Thursday => Weekday::Thursday,
        jiff::civil::Weekday::Friday => Weekday::Friday,
        jiff::civil::Weekday::Saturday => Weekday::Saturday,
        jiff::civil::Weekday::Sunday => Weekday::Sunday,
    }
}
