//! What the fields of a response say about limits, in all dialects that are known.
//!
//! A server may send anything. Numbers that do not fit, names that are too long and fields that
//! cannot be read are as if they were not there.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use sfv::{BareItem, Dictionary, Item, List, ListEntry, Parameters, Parser};

use crate::fields::{read_date, single_value};

/// How one limit of a server stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LimitReading {
    pub(super) name: Box<str>,
    /// The tokens of a window.
    pub(super) quota: Option<u64>,
    /// The time in which that many tokens come.
    pub(super) window: Option<Duration>,
    pub(super) remaining: u64,
    /// The time until there are more tokens.
    pub(super) reset: Option<Duration>,
}

/// Reads the limits of a response: those of the first of the general dialects that it has, and
/// those of OpenAI.
pub(super) fn read(headers: &HeaderMap) -> Vec<LimitReading> {
    let mut readings = structured(headers);
    if readings.is_empty() {
        readings.extend(TRIPLES.iter().find_map(|names| triple(headers, names)));
    }
    readings.extend(OPENAI.iter().filter_map(|names| triple(headers, names)));
    readings.truncate(MAX_LIMITS);
    readings
}

/// `RateLimit` of draft 11, a list, or of draft 7, a dictionary.
fn structured(headers: &HeaderMap) -> Vec<LimitReading> {
    let Some(text) = joined(headers, "ratelimit") else { return Vec::new() };
    let policies = joined(headers, "ratelimit-policy")
        .and_then(|text| Parser::new(&text).parse::<List>().ok())
        .unwrap_or_default();
    if let Ok(list) = Parser::new(&text).parse::<List>() {
        let mut readings: Vec<LimitReading> = Vec::new();
        for reading in items(&list).filter_map(|item| member(item, &policies)) {
            // One limit may be there several times, for several partitions: the tightest counts.
            match readings.iter_mut().find(|other| other.name == reading.name) {
                Some(other) if reading.remaining < other.remaining => *other = reading,
                Some(_) => {}
                None => readings.push(reading),
            }
        }
        return readings;
    }
    let dictionary = Parser::new(&text).parse::<Dictionary>();
    dictionary.ok().and_then(|members| draft_7(&members, &policies)).into_iter().collect()
}

/// A member of draft 11: `"name";r=19;t=114`, with the policy `"name";q=20;w=120`.
fn member(item: &Item, policies: &List) -> Option<LimitReading> {
    let name = name(&item.bare_item)?;
    let policy = items(policies).find(|policy| self::name(&policy.bare_item) == Some(name));
    let of_policy = |key| policy.and_then(|policy| parameter(&policy.params, key));
    Some(LimitReading {
        name: name.into(),
        quota: of_policy("q"),
        window: of_policy("w").filter(|seconds| *seconds > 0).map(seconds),
        remaining: parameter(&item.params, "r")?,
        reset: parameter(&item.params, "t").map(seconds),
    })
}

/// Draft 7: `limit=10, remaining=5, reset=30`, with the policy `10;w=60`.
fn draft_7(members: &Dictionary, policies: &List) -> Option<LimitReading> {
    let value = |key: &str| {
        let (_, entry) = members.iter().find(|(name, _)| name.as_str() == key)?;
        match entry {
            ListEntry::Item(item) => integer(&item.bare_item),
            ListEntry::InnerList(_) => None,
        }
    };
    let quota = value("limit");
    let policy = items(policies)
        .find(|policy| quota.is_some() && integer(&policy.bare_item) == quota)
        .and_then(|policy| parameter(&policy.params, "w"));
    Some(LimitReading {
        name: "ratelimit".into(),
        quota,
        window: policy.filter(|seconds| *seconds > 0).map(seconds),
        remaining: value("remaining")?,
        reset: value("reset").map(seconds),
    })
}

fn items(list: &List) -> impl Iterator<Item = &Item> {
    list.iter().filter_map(|entry| match entry {
        ListEntry::Item(item) => Some(item),
        ListEntry::InnerList(_) => None,
    })
}

fn name(item: &BareItem) -> Option<&str> {
    let name = match item {
        BareItem::String(name) => name.as_str(),
        BareItem::Token(name) => name.as_str(),
        _ => return None,
    };
    (name.len() <= MAX_NAME).then_some(name)
}

fn parameter(parameters: &Parameters, key: &str) -> Option<u64> {
    let (_, value) = parameters.iter().find(|(name, _)| name.as_str() == key)?;
    integer(value)
}

fn integer(item: &BareItem) -> Option<u64> {
    match item {
        BareItem::Integer(number) => u64::try_from(i64::from(*number)).ok(),
        _ => None,
    }
}

/// The names of fields with one number each.
struct FieldNames {
    limit: &'static str,
    remaining: &'static str,
    reset: &'static str,
}

fn triple(headers: &HeaderMap, names: &FieldNames) -> Option<LimitReading> {
    let remaining = whole(single_value(headers, names.remaining)?)?;
    // Draft 6 allows policies behind the limit: `10, 10;w=60`.
    let limit = single_value(headers, names.limit).and_then(|text| text.split([',', ';']).next());
    // GitHub counts several kinds of requests apart.
    let resource = single_value(headers, "x-ratelimit-resource");
    let name = resource.filter(|name| name.len() <= MAX_NAME).unwrap_or(names.remaining);
    Some(LimitReading {
        name: name.into(),
        quota: limit.and_then(whole),
        window: None,
        remaining,
        reset: single_value(headers, names.reset).and_then(|text| reset(text, headers)),
    })
}

/// A time until the reset: `30`, `1.5`, `6m0s`, or a Unix time in seconds or milliseconds.
fn reset(text: &str, headers: &HeaderMap) -> Option<Duration> {
    let Some(number) = decimal(text) else { return with_units(text) };
    let since_epoch = match number.as_secs() {
        ..UNIX_SECONDS => return Some(number.min(FOREVER)),
        UNIX_SECONDS..UNIX_MILLIS => number,
        millis => Duration::from_millis(millis),
    };
    let until = SystemTime::UNIX_EPOCH.checked_add(since_epoch)?;
    // As with `Retry-After`, the clocks of the two machines need not agree.
    let from = read_date(headers).unwrap_or_else(SystemTime::now);
    Some(until.duration_since(from).unwrap_or_default().min(FOREVER))
}

/// Numbers with units, one after the other: `6m0s`, `120ms`, `1h2m3.5s`.
fn with_units(mut text: &str) -> Option<Duration> {
    let mut sum = Duration::ZERO;
    if text.is_empty() {
        return None;
    }
    while !text.is_empty() {
        let (number, rest) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic())?);
        let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let (unit, rest) = rest.split_at(end);
        let number = decimal(number)?;
        let part = match unit {
            "ms" => number.checked_div(1_000)?,
            "s" => number,
            "m" => number.checked_mul(60)?,
            "h" => number.checked_mul(3_600)?,
            "d" => number.checked_mul(86_400)?,
            _ => return None,
        };
        sum = sum.checked_add(part)?;
        text = rest;
    }
    Some(sum.min(FOREVER))
}

/// Seconds, with or without a fraction; digits of the fraction behind the ninth do not count.
fn decimal(text: &str) -> Option<Duration> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let seconds = whole(seconds)?;
    let is_number = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let nanos: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    is_number.then(|| Some(Duration::new(seconds, nanos.parse().ok()?)))?
}

/// Digits only: no sign, no spaces.
fn whole(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

fn seconds(number: u64) -> Duration {
    Duration::from_secs(number).min(FOREVER)
}

/// The lines of a field as one list; `None` if it is absent or too long.
fn joined(headers: &HeaderMap, name: &str) -> Option<Vec<u8>> {
    let lines: Vec<_> = headers.get_all(name).iter().map(|line| line.as_bytes()).collect();
    let list = lines.join(&b", "[..]);
    (!list.is_empty() && list.len() <= MAX_FIELD).then_some(list)
}

/// Draft 6, `X-RateLimit-*` of GitHub and many others, and the spelling of Twitter.
const TRIPLES: [FieldNames; 3] = [
    FieldNames {
        limit: "ratelimit-limit",
        remaining: "ratelimit-remaining",
        reset: "ratelimit-reset",
    },
    FieldNames {
        limit: "x-ratelimit-limit",
        remaining: "x-ratelimit-remaining",
        reset: "x-ratelimit-reset",
    },
    FieldNames {
        limit: "x-rate-limit-limit",
        remaining: "x-rate-limit-remaining",
        reset: "x-rate-limit-reset",
    },
];

const OPENAI: [FieldNames; 2] = [
    FieldNames {
        limit: "x-ratelimit-limit-requests",
        remaining: "x-ratelimit-remaining-requests",
        reset: "x-ratelimit-reset-requests",
    },
    FieldNames {
        limit: "x-ratelimit-limit-tokens",
        remaining: "x-ratelimit-remaining-tokens",
        reset: "x-ratelimit-reset-tokens",
    },
];

/// The limits of one host that are remembered.
pub(super) const MAX_LIMITS: usize = 8;
/// In bytes; a limit with a longer name is not read.
const MAX_NAME: usize = 128;
/// In bytes; a longer field is not read.
const MAX_FIELD: usize = 8_192;
/// As seconds, it is a Unix time in 2001, and no wait.
const UNIX_SECONDS: u64 = 1_000_000_000;
/// As seconds, it is a year beyond 5000, so it is in milliseconds.
const UNIX_MILLIS: u64 = 100_000_000_000;
/// A year: longer resets are cut off, so that instants do not overflow.
pub(super) const FOREVER: Duration = Duration::from_secs(365 * 86_400);
