//! The text form of a quota: `10 per minute, capacity 20`.

use std::fmt;
use std::str::FromStr;
use std::time::UNIX_EPOCH;

use super::period::{self, Period};
use super::{Kind, Quota, QuotaError};
use crate::clock::Timestamp;

/// A text is not a quota; the message quotes it and says what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseQuotaError {
    /// The text, cut to a readable length.
    text: Box<str>,
    problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Problem {
    Kind(Box<str>),
    NoPeriod,
    Number { what: &'static str, given: Box<str> },
    Period(Box<str>),
    Option(Box<str>),
    Twice(&'static str),
    Start(Box<str>),
    Numbers(QuotaError),
}

impl FromStr for Quota {
    type Err = ParseQuotaError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map_err(|problem| ParseQuotaError { text: excerpt(text), problem })
    }
}

fn parse(text: &str) -> Result<Quota, Problem> {
    // Only the part before the first comma names a kind: a `start` has colons of its own.
    let (head, options) = match text.split_once(',') {
        Some((head, options)) => (head, Some(options)),
        None => (text, None),
    };
    let (kind, numbers) = match head.split_once(':') {
        Some((kind, numbers)) => (parse_kind(kind)?, numbers),
        None => (Kind::TokenBucket, head),
    };
    let (rate, period) =
        numbers.split_once(" per ").or_else(|| numbers.split_once('/')).ok_or(Problem::NoPeriod)?;
    let rate = parse_number("rate", rate)?;
    let period = period.trim();
    let period = period::parse(period).ok_or_else(|| Problem::Period(excerpt(period)))?;
    let mut quota = Quota::new(kind, rate, period).map_err(Problem::Numbers)?;
    let mut shards = None;
    for option in options.into_iter().flat_map(|options| options.split(',')) {
        let option = option.trim();
        let (name, value) = option
            .split_once(char::is_whitespace)
            .ok_or_else(|| Problem::Option(excerpt(option)))?;
        match name {
            "capacity" => once("capacity", &mut quota.capacity, parse_number("capacity", value)?)?,
            "max_reserved" => {
                let tokens = parse_number("max_reserved", value)?;
                once("max_reserved", &mut quota.max_reserved, tokens)?;
            }
            "initial" => once("initial", &mut quota.initial, parse_number("initial", value)?)?,
            "shards" => once("shards", &mut shards, parse_number("shards", value)?)?,
            "start" => once("start", &mut quota.start, parse_start(value.trim())?)?,
            _ => return Err(Problem::Option(excerpt(option))),
        }
    }
    quota.shards = shards.unwrap_or(1);
    quota.validated().map_err(Problem::Numbers)
}

fn once<T>(name: &'static str, slot: &mut Option<T>, value: T) -> Result<(), Problem> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Problem::Twice(name)),
    }
}

fn parse_kind(kind: &str) -> Result<Kind, Problem> {
    match kind.trim() {
        "token bucket" => Ok(Kind::TokenBucket),
        "fixed window" => Ok(Kind::FixedWindow),
        other => Err(Problem::Kind(excerpt(other))),
    }
}

/// A whole number in decimal digits, which underscores may group.
fn parse_number<N: FromStr>(what: &'static str, text: &str) -> Result<N, Problem> {
    let text = text.trim();
    let wrong = || Problem::Number { what, given: excerpt(text) };
    let plain = text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    if !plain {
        return Err(wrong());
    }
    text.replace('_', "").parse().map_err(|_| wrong())
}

/// An RFC 3339 date and time, or `@` and microseconds since the epoch.
fn parse_start(text: &str) -> Result<Timestamp, Problem> {
    let wrong = || Problem::Start(excerpt(text));
    if let Some(micros) = text.strip_prefix('@') {
        return micros.parse().map(Timestamp::from_micros).map_err(|_| wrong());
    }
    // The parser takes what follows the seconds for a fraction, an offset from UTC included.
    let (_, seconds) = text.rsplit_once(':').ok_or_else(wrong)?;
    let plain = |c: char| c.is_ascii_digit() || c == '.';
    if !seconds.strip_suffix('Z').is_some_and(|seconds| seconds.chars().all(plain)) {
        return Err(wrong());
    }
    let time = humantime::parse_rfc3339(text).map_err(|_| wrong())?;
    let since_epoch = time.duration_since(UNIX_EPOCH).map_err(|_| wrong())?;
    Ok(Timestamp::UNIX_EPOCH.saturating_add(since_epoch))
}

/// The first characters of what was given: enough to recognise it, and no more.
fn excerpt(text: &str) -> Box<str> {
    const SHOWN: usize = 60;
    match text.char_indices().nth(SHOWN) {
        None => text.into(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()).into(),
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind == Kind::FixedWindow {
            f.write_str("fixed window: ")?;
        }
        write!(f, "{} per {}", self.rate, Period(self.period))?;
        if let Some(tokens) = self.capacity {
            write!(f, ", capacity {tokens}")?;
        }
        if let Some(tokens) = self.max_reserved {
            write!(f, ", max_reserved {tokens}")?;
        }
        if let Some(tokens) = self.initial {
            write!(f, ", initial {tokens}")?;
        }
        if let Some(start) = self.start {
            write!(f, ", start {}", Start(start))?;
        }
        if self.shards != 1 {
            write!(f, ", shards {}", self.shards)?;
        }
        Ok(())
    }
}

/// Shows a start as a date where it can be, else as a bare number of microseconds.
struct Start(Timestamp);

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// 31 December 9999: RFC 3339 has four digits for the year.
        const LAST: i64 = 253_402_300_799_000_000;
        let micros = self.0.as_micros();
        let time = (0..=LAST)
            .contains(&micros)
            .then(|| UNIX_EPOCH.checked_add(self.0.since(Timestamp::UNIX_EPOCH)))
            .flatten();
        match time {
            Some(time) => humantime::format_rfc3339(time).fmt(f),
            None => write!(f, "@{micros}"),
        }
    }
}

impl fmt::Display for ParseQuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a quota: ", self.text)?;
        match &self.problem {
            Problem::Kind(given) => write!(
                f,
                "`{given}` is not a kind (use `token bucket`, which may be left out, or `fixed \
                 window`)"
            ),
            Problem::NoPeriod => f.write_str("it has no `per` (write `10 per minute`)"),
            Problem::Number { what, given } => {
                write!(f, "{what} `{given}` is not a whole number that can be counted")
            }
            Problem::Period(given) => write!(
                f,
                "`{given}` is not a period (write `minute`, `90 seconds`, `1h 30m` or `30 days`)"
            ),
            Problem::Option(given) => write!(
                f,
                "`{given}` is not an option (there are `capacity 20`, `max_reserved 80`, \
                 `initial 5`, `start 2026-01-01T00:00:00Z` and `shards 4`)"
            ),
            Problem::Twice(name) => write!(f, "`{name}` is given twice"),
            Problem::Start(given) => write!(
                f,
                "start `{given}` is not an instant (write `2026-01-01T00:00:00Z`, or `@` and \
                 microseconds since 1970)"
            ),
            Problem::Numbers(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ParseQuotaError {}
