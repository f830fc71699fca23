//! The text form of a quota: `10 per minute, capacity 20`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::period::{self, Period};
use super::scale::gcd;
use super::window_start::{FIRST_USE, WindowStart};
use super::{Calendar, Kind, Quota};
use crate::clock::{ParseError, excerpt};

impl FromStr for Quota {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map_err(|problem| {
            ParseError::new(format!("`{}` is not a quota: {problem}", excerpt(text)))
        })
    }
}

fn parse(text: &str) -> Result<Quota, String> {
    if text.as_bytes().windows(3).any(|three| matches!(three, [b'0'..=b'9', b',', b'0'..=b'9'])) {
        return Err("a comma is no part of a number (leave it out, or write `40_000`)".to_owned());
    }
    // Only the part before the first comma names a kind: a `start` has colons of its own.
    let (head, options) = match text.split_once(',') {
        Some((head, options)) => (head, Some(options)),
        None => (text, None),
    };
    let (kind, numbers) = match head.split_once(':') {
        Some((kind, numbers)) => (Some(parse_kind(kind)?), numbers),
        None => (None, head),
    };
    // Any white space may surround `per`.
    let numbers = numbers.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some(requests) = requests_in_flight(&numbers) {
        return match kind {
            None => parse_options(parse_in_flight(requests)?, options),
            Some(_) => Err("requests in flight are of no kind (write `4 in flight`)".to_owned()),
        };
    }
    let (rate, period) = split_at_per(&numbers)
        .or_else(|| numbers.split_once('/'))
        .ok_or("it has no rate per period (write `10 per minute`)")?;
    let (given, parsed) = (period.trim(), period::parse(period.trim()));
    let rate = parse_number("rate", rate, u64::MAX)
        .map_err(|problem| parsed.and_then(|period| fraction(rate, period)).unwrap_or(problem))?;
    let quota = match parsed {
        Some(period) => Quota::read(kind.unwrap_or(Kind::TokenBucket), rate, period)
            .map_err(|error| error.to_string())?,
        None => parse_calendar(kind, rate, given)?,
    };
    parse_options(quota, options)
}

/// What stands before `in flight`; `None` if the numbers are those of a rate.
fn requests_in_flight(numbers: &str) -> Option<&str> {
    let (requests, ending) =
        numbers.split_at_checked(numbers.len().checked_sub(IN_FLIGHT.len())?)?;
    ending.eq_ignore_ascii_case(IN_FLIGHT).then_some(requests)
}

const IN_FLIGHT: &str = " in flight";

fn parse_in_flight(requests: &str) -> Result<Quota, String> {
    match parse_number("requests", requests, u64::MAX)? {
        // As a rate of zero.
        0 => Ok(Quota::none()),
        requests => Quota::try_in_flight(requests).map_err(|error| error.to_string()),
    }
}

/// Reads what follows the first comma.
fn parse_options(mut quota: Quota, options: Option<&str>) -> Result<Quota, String> {
    let (mut shards, mut lost_after) = (None, None);
    // A quota of requests in flight has a start by itself.
    let own_start = if quota.is_in_flight() { quota.start.take() } else { None };
    for option in options.into_iter().flat_map(|options| options.split(',')) {
        let option = option.trim();
        let unknown = || unknown_option(option);
        let (name, value) = option.split_once(char::is_whitespace).ok_or_else(unknown)?;
        let tokens = |name| parse_number(name, value, u64::MAX);
        match name {
            "capacity" => set_once("capacity", &mut quota.capacity, tokens("capacity")?)?,
            "max_reserved" => {
                set_once("max_reserved", &mut quota.max_reserved, tokens("max_reserved")?)?;
            }
            "initial" => set_once("initial", &mut quota.initial, tokens("initial")?)?,
            "shards" => {
                set_once(
                    "shards",
                    &mut shards,
                    parse_number("shards", value, u64::from(u32::MAX))?,
                )?;
            }
            "start" => set_once("start", &mut quota.start, parse_start(value.trim())?)?,
            "lost_after" => {
                let time = period::parse(value.trim());
                let time = time.ok_or_else(|| no_period(value.trim()))?;
                set_once("lost_after", &mut lost_after, time)?;
            }
            _ => return Err(unknown()),
        }
    }
    if let Some(own) = own_start {
        // One that was given is too much, whatever it is.
        quota.start = if quota.start.is_some() { None } else { Some(own) };
    }
    if let Some(time) = lost_after {
        quota = quota.lost_after(time);
    }
    if let Some(shards) = shards {
        quota.shards = u32::try_from(shards).unwrap_or(u32::MAX);
    }
    quota.validated().map_err(|error| error.to_string())
}

/// A quota whose windows are those of a calendar, as `given` after `per`.
fn parse_calendar(kind: Option<Kind>, rate: u64, given: &str) -> Result<Quota, String> {
    if let Some(calendar) = Calendar::parse(given) {
        let calendar = calendar.map_err(|zone| {
            format!(
                "`{}` is not a time zone (write its name in the database, such as `Europe/Berlin` or \
                 `UTC`)",
                excerpt(zone)
            )
        })?;
        if kind == Some(Kind::TokenBucket) {
            return Err(format!(
                "a token bucket has no windows of a calendar (leave out `token bucket`, or write a \
                 period in place of `{calendar}`)"
            ));
        }
        return Quota::read_calendar(rate, calendar).map_err(|error| error.to_string());
    }
    let unit = given.split_ascii_whitespace().next().unwrap_or_default();
    let is_calendar = given.contains(" in ")
        || ["month", "months"].iter().any(|month| unit.eq_ignore_ascii_case(month));
    Err(match is_calendar {
        #[cfg(feature = "calendar")]
        true => format!(
            "`{}` is not a period (write `month in Europe/Berlin`, `week from sunday in UTC` or `day \
             in UTC` for windows of a calendar, or `30 days`)",
            excerpt(given)
        ),
        #[cfg(not(feature = "calendar"))]
        true => format!(
            "`{}` is not a period (write `30 days`; windows of a calendar need the feature `calendar`)",
            excerpt(given)
        ),
        false => no_period(given),
    })
}

fn no_period(given: &str) -> String {
    format!(
        "`{}` is not a period (write `minute`, `90 seconds`, `1h 30m` or `30 days`)",
        excerpt(given)
    )
}

fn set_once<T>(name: &'static str, slot: &mut Option<T>, value: T) -> Result<(), String> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("`{name}` is given twice (leave one out)")),
    }
}

fn parse_kind(kind: &str) -> Result<Kind, String> {
    match kind.trim() {
        "token bucket" => Ok(Kind::TokenBucket),
        "fixed window" => Ok(Kind::FixedWindow),
        other => Err(format!(
            "`{}` is not a kind (use `token bucket`, which may be left out, or `fixed window`)",
            excerpt(other)
        )),
    }
}

/// A whole number in decimal digits, which underscores may group.
fn parse_number(what: &'static str, text: &str, most: u64) -> Result<u64, String> {
    let text = text.trim();
    let wrong = || format!("{what} `{}` is not a whole number from 0 to {most}", excerpt(text));
    let plain = text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    if !plain {
        return Err(wrong());
    }
    text.replace('_', "").parse().ok().filter(|number| *number <= most).ok_or_else(wrong)
}

/// Splits at the first `per` in any case, which has one space on each side.
fn split_at_per(numbers: &str) -> Option<(&str, &str)> {
    // Only ASCII letters change, so each place is the same in both texts.
    let at = numbers.to_ascii_lowercase().find(PER)?;
    Some((numbers.get(..at)?, numbers.get(at.checked_add(PER.len())?..)?))
}

const PER: &str = " per ";

/// What is wrong with a rate that has decimals, with the whole rate and the longer period that are
/// the same: 1.5 a second are 3 in 2 seconds. `None` if it has none, or no quota is the same.
fn fraction(rate: &str, period: Duration) -> Option<String> {
    let (whole, decimals) = rate.trim().split_once('.')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(decimals) {
        return None;
    }
    let periods = 10_u64.checked_pow(u32::try_from(decimals.len()).ok()?)?;
    let tokens = format!("{whole}{decimals}").parse().ok()?;
    let divisor = gcd(tokens, periods);
    let (tokens, periods) = (tokens.checked_div(divisor)?, periods.checked_div(divisor)?);
    let period = period.checked_mul(u32::try_from(periods).ok()?)?;
    Quota::check(Kind::TokenBucket, tokens, period).ok()?.validated().ok()?;
    Some(format!(
        "rate `{}` is not a whole number (write `{tokens} per {}`)",
        excerpt(rate.trim()),
        Period(period)
    ))
}

/// An option that there is not; other rate limiters say `burst` for the capacity.
fn unknown_option(option: &str) -> String {
    let is_part_of_word = |c: char| c.is_ascii_alphabetic() || c == '_';
    let (name, value) = match option.split_once(|c| !is_part_of_word(c)) {
        Some((name, value)) => (name, value.trim()),
        None => (option, ""),
    };
    let given = excerpt(option);
    if given.is_empty() {
        return "no option follows a comma (write one, or leave the comma out)".to_owned();
    }
    if !["burst", "burst_size"].iter().any(|burst| burst.eq_ignore_ascii_case(name)) {
        return format!(
            "`{given}` is not an option (there are `capacity 20`, `max_reserved 80`, `initial 5`, \
             `start 2026-01-01T00:00:00Z`, `start first use`, `shards 4` and, of requests in flight, \
             `lost_after 1 hour`)"
        );
    }
    let is_number = parse_number("burst", value, u64::MAX).is_ok();
    let capacity = excerpt(if is_number { value } else { "20" });
    format!("`{given}` is not an option (write `capacity {capacity}`)")
}

/// The text form of a [`Timestamp`], or `first use`.
fn parse_start(text: &str) -> Result<WindowStart, String> {
    if text.eq_ignore_ascii_case(FIRST_USE) {
        return Ok(WindowStart::FirstUse);
    }
    text.parse().map(WindowStart::At).map_err(|_| {
        format!(
            "start `{}` is not an instant (write `2026-01-01T00:00:00Z`, `@` and microseconds since \
             1970, or `first use`)",
            excerpt(text)
        )
    })
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.calendar {
            Some(calendar) => write!(f, "{} per {calendar}", self.rate)?,
            None if self.is_in_flight() => {
                write!(f, "{}{IN_FLIGHT}", self.rate)?;
                if let Some(time) = self.get_lost_after() {
                    // A period of one unit is shown by its name alone.
                    let time = Period(time).to_string();
                    let one =
                        if time.starts_with(|c: char| c.is_ascii_digit()) { "" } else { "1 " };
                    write!(f, ", lost_after {one}{time}")?;
                }
            }
            None => {
                if self.kind == Kind::FixedWindow {
                    f.write_str("fixed window: ")?;
                }
                write!(f, "{} per {}", self.rate, Period(self.period))?;
            }
        }
        if let Some(tokens) = self.capacity {
            write!(f, ", capacity {tokens}")?;
        }
        if let Some(tokens) = self.max_reserved {
            write!(f, ", max_reserved {tokens}")?;
        }
        if let Some(tokens) = self.initial {
            write!(f, ", initial {tokens}")?;
        }
        if let Some(start) = self.start.filter(|_| !self.is_in_flight()) {
            write!(f, ", start {start}")?;
        }
        if self.shards != 1 {
            write!(f, ", shards {}", self.shards)?;
        }
        Ok(())
    }
}
