//! Quotas as text, from a configuration file.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tollgate::clock::ManualClock;
use tollgate::quota::Kind;
use tollgate::{Limit, Quota, RateLimiter, Timestamp};
use tollgate_testing::{START, at_once, limiter};

use tollgate_testing::fuzz::bytes::{draws_each, texts};
use tollgate_testing::fuzz::days_of;
use tollgate_testing::fuzz::seeds::{Seed, seeds};

const WORDS: [&str; 60] = [
    "token bucket",
    "fixed window: ",
    ": ",
    ":",
    " per ",
    "per",
    "/",
    " / ",
    ", ",
    "capacity ",
    ", capacity 20",
    ", max_reserved ",
    ", initial ",
    ", start ",
    ", start @",
    ", shards ",
    " Per ",
    ", burst 20",
    "minute",
    "Minutes",
    "SEC",
    "M",
    "MS",
    "second",
    "day",
    "days",
    "ms",
    "us",
    "w",
    "h",
    "m",
    "s",
    "1h 30m",
    "0",
    "1",
    "10",
    "40_000",
    "-1",
    "+",
    ".",
    ".5",
    "000",
    "1.5",
    "18446744073709551615",
    "9007199254740993",
    "18446744073709551616s",
    "@",
    "2026-01-01T00:00:00Z",
    "2026-12-31",
    "T23:59:60Z",
    "T23:59:59.5Z",
    "T",
    "Z",
    "-",
    "_",
    "\\xc2\\xb5s",
    "\\xce\\xbcs",
    "\\xd9\\xa1",
    "\\xc2\\xa0",
    "\\n",
];

fn quota_seeds() -> Vec<Seed> {
    seeds(include_str!("../data/fuzz/quota.txt"))
}

#[test]
fn seeds_of_quotas_are_read_as_recorded() {
    for Seed { field, wanted } in quota_seeds() {
        let text = field.text();
        let printed = text.parse::<Quota>().map(|quota| quota.to_string());
        assert_eq!(printed.as_deref().unwrap_or("none"), wanted, "{text:?}");
        let read = reference(&text).map(|quota| quota.to_string());
        assert_eq!(read.as_deref().unwrap_or("none"), wanted, "{text:?}");
    }
}

// A second reading, by splitting into words and counting without bounds.

fn reference(text: &str) -> Option<Quota> {
    let mut parts = text.split(',').map(str::trim);
    let head = parts.next()?;
    let (kind, numbers) = match head.find(':') {
        None => (Kind::TokenBucket, head),
        Some(colon) => match head[..colon].trim() {
            "token bucket" => (Kind::TokenBucket, &head[colon + 1..]),
            "fixed window" => (Kind::FixedWindow, &head[colon + 1..]),
            _ => return None,
        },
    };
    let words: Vec<&str> = numbers.split_whitespace().collect();
    // The first `per` between two other words; else the first slash.
    let inner = 1..words.len().saturating_sub(1);
    let (rate, period) = match inner.into_iter().find(|&nth| words[nth].eq_ignore_ascii_case("per"))
    {
        Some(per) => (words[..per].join(" "), words[per + 1..].join(" ")),
        None => {
            let (rate, period) = numbers.split_once('/')?;
            (rate.trim().to_owned(), words_of(period))
        }
    };
    let (rate, period) = (number(&rate)?, Duration::from_micros(period_micros(&period)?));
    let mut quota = match kind {
        _ if rate == 0 && !period.is_zero() => Quota::none(),
        Kind::TokenBucket => Quota::try_token_bucket(rate, period).ok()?,
        _ => Quota::try_fixed_window(rate, period).ok()?,
    };
    let mut seen = Vec::new();
    for option in parts {
        let end = option.find(char::is_whitespace)?;
        let (name, value) = (&option[..end], option[end..].trim());
        if seen.contains(&name) {
            return None;
        }
        seen.push(name);
        quota = match name {
            "capacity" => quota.capacity(number(value)?),
            "max_reserved" => quota.max_reserved(number(value)?),
            "initial" => quota.initial(number(value)?),
            "shards" => quota.shards(u32::try_from(number(value)?).ok()?),
            "start" => quota.start(Timestamp::from_micros(instant(value)?)),
            _ => return None,
        };
    }
    quota.validated().ok()
}

fn words_of(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Digits, grouped by underscores behind the first.
fn number(text: &str) -> Option<u64> {
    let mut number: u128 = 0;
    for (nth, c) in text.chars().enumerate() {
        match c {
            '0'..='9' => number = number * 10 + u128::from(u32::from(c) - u32::from('0')),
            '_' if nth > 0 => {}
            _ => return None,
        }
        if number > u128::from(u64::MAX) {
            return None;
        }
    }
    if text.is_empty() { None } else { u64::try_from(number).ok() }
}

/// Each unit in microseconds, with its names. Those of three letters and more may be in any case.
const UNITS: [(u64, &str, &str); 7] = [
    (604_800_000_000, "week w", "weeks"),
    (86_400_000_000, "day d", "days"),
    (3_600_000_000, "hour h hr", "hours hrs"),
    (60_000_000, "minute m min", "minutes mins"),
    (1_000_000, "second s sec", "seconds secs"),
    (1_000, "millisecond ms", "milliseconds"),
    (1, "microsecond us \u{b5}s", "microseconds"),
];

fn unit(name: &str) -> Option<u64> {
    let is_one =
        |one: &str| one == name || one.chars().count() > 2 && one == name.to_ascii_lowercase();
    let is_in = |names: &str| names.split(' ').any(is_one);
    let found = UNITS.iter().find(|(_, one, many)| is_in(one) || is_in(many));
    found.map(|&(micros, ..)| micros)
}

fn period_micros(text: &str) -> Option<u64> {
    if let Some(micros) = unit(text) {
        return Some(micros);
    }
    let mut total: u64 = 0;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let number: String = rest.chars().take_while(|c| "0123456789.".contains(*c)).collect();
        rest = rest[number.len()..].trim_start();
        let name: String = rest.chars().take_while(|c| c.is_alphabetic()).collect();
        rest = rest[name.len()..].trim_start();
        total = total.checked_add(exactly(&number, unit(&name)?)?)?;
    }
    (!text.trim().is_empty()).then_some(total)
}

/// A decimal number of units in microseconds, if it is whole: long multiplication, digit by digit.
fn exactly(number: &str, unit: u64) -> Option<u64> {
    let mut digits = number.split('.');
    let (whole, fraction) = (digits.next()?, digits.next().unwrap_or("0"));
    if digits.next().is_some() || whole.is_empty() || fraction.is_empty() {
        return None;
    }
    let mut micros: u128 = 0;
    for c in whole.chars() {
        micros = micros * 10 + u128::from(c.to_digit(10)?) * u128::from(unit);
        if micros > u128::from(u64::MAX) {
            return None;
        }
    }
    // What is left of the unit is divided by ten for each digit, as a fraction of powers of two and five.
    let mut carried = Vec::from([0_u64]);
    for c in fraction.chars().rev() {
        // carried = (carried + digit * unit) / 10, with the decimals behind it kept.
        let sum = carried[0] + u64::from(c.to_digit(10)?) * unit;
        carried[0] = sum / 10;
        carried.push(sum % 10);
    }
    if carried[1..].iter().any(|&decimal| decimal != 0) {
        return None;
    }
    u64::try_from(micros + u128::from(carried[0])).ok()
}

/// An instant in microseconds since the epoch: days are counted one year and one month at a time.
fn instant(text: &str) -> Option<i64> {
    if let Some(micros) = text.strip_prefix('@') {
        return micros.parse().ok();
    }
    let text = text.strip_suffix('Z')?;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let (date, time) = seconds.split_once('T')?;
    let part = |text: &str, len: usize| -> Option<i64> {
        let is_number = text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { text.parse().ok() } else { None }
    };
    let (date, time): (Vec<&str>, Vec<&str>) =
        (date.split('-').collect(), time.split(':').collect());
    let ([year, month, day], [hour, minute, second]) = (&date[..], &time[..]) else { return None };
    let (year, month, day) = (part(year, 4)?, part(month, 2)?, part(day, 2)?);
    let (hour, minute, second) = (part(hour, 2)?, part(minute, 2)?, part(second, 2)?);
    if year < 1970 || !(1..=12).contains(&month) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    if !(1..=days_of(year, month)).contains(&day) {
        return None;
    }
    let years: i64 = (1970..year)
        .flat_map(|year| (1..=12).map(move |month| (year, month)))
        .chain((1..month).map(|month| (year, month)))
        .map(|(year, month)| days_of(year, month))
        .sum();
    let micros = match fraction.len() {
        1..=6 => {
            part(fraction, fraction.len())? * 10_i64.pow(6 - u32::try_from(fraction.len()).ok()?)
        }
        _ => return None,
    };
    Some((((years + day - 1) * 24 + hour) * 3_600 + minute * 60 + second) * 1_000_000 + micros)
}

/// Texts with every part in its place, of which any may be wrong.
fn sentences() -> impl Strategy<Value = String> {
    let one_of = |texts: &[&'static str]| select(texts.to_vec()).prop_map(str::to_owned);
    let windows = ["fixed window: ", "fixed window:"];
    let kind = prop_oneof![
        9 => one_of(&windows), 4 => one_of(&["", "token bucket: "]), 1 => one_of(&["window: "])
    ];
    let number = prop_oneof![
        9 => one_of(&["1", "7", "10", "1_0", "1000000"]), 1 => "[0-9_]{1,22}"
    ];
    let per = prop_oneof![9 => one_of(&[" per ", "/", " / ", "\tper\n", " PER "]), 1 => one_of(&[" an ", " "])];
    let unit =
        one_of(&["weeks", "day", "h", "min", " s", "Sec", "M", "ms", "us", "\u{b5}s", "months"]);
    let fraction = "(\\.[0-9]{1,14}0{0,9}|\\.[0-9]0{0,30}|\\.5|)";
    let period = prop_oneof![
        one_of(&["second", "Minutes", "day", "1h 30m", "33ms 7us", "week"]),
        ("[0-9]{1,3}", fraction, unit)
            .prop_map(|(whole, part, unit)| format!("{whole}{part}{unit}")),
    ];
    let date =
        "start (19[67]|20[0-9]|99[89])[0-9]-[01][0-9]-[0-2][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]";
    let start = (date, "(|\\.[0-9]{1,7})(Z|Z|Z|z|)").prop_map(|(date, rest)| date + &rest);
    let option = prop_oneof![
        2 => one_of(&["capacity 20", "max_reserved 80", "initial 1", "start @-5", "shards 4"]),
        2 => start,
        1 => "(capacity|max_reserved|initial|shards) [0-9]{1,11}",
        1 => one_of(&["shards 0", "capacity", ""]),
    ];
    (kind, number, per, period, vec(option, 0..=2)).prop_map(
        |(kind, number, per, period, options)| {
            let head = format!("{kind}{number}{per}{period}");
            std::iter::once(head).chain(options).collect::<Vec<_>>().join(", ")
        },
    )
}

fn inputs() -> impl Strategy<Value = String> {
    prop_oneof![texts(&quota_seeds(), &WORDS), sentences()]
}

#[test]
fn texts_that_are_quotas_and_others_are_drawn() {
    draws_each(&inputs(), 2, |text| reference(&text).is_some());
}

proptest! {
    #[test]
    fn a_quota_is_read_as_by_the_slow_reference(text in inputs()) {
        let found = text.parse::<Quota>();
        prop_assert_eq!(found.clone().ok(), reference(&text), "`{}`", text);
        match found {
            Ok(quota) => {
                let printed = quota.to_string();
                prop_assert_eq!(printed.parse(), Ok(quota), "`{}`", printed);
                // The canonical form is one, and all seven numbers fit in it.
                prop_assert!(printed.len() <= 250, "`{}`", printed);
            }
            Err(error) => {
                let message = error.to_string();
                // Two excerpts of 60 characters, of which each is ten bytes at most, and the words.
                prop_assert!(message.len() <= 1_600, "{}", message.len());
                prop_assert!(!message.contains(char::is_control), "{message:?}");
            }
        }
        // In JSON it is the same, escaped or not.
        let json = serde_json::to_string(&text).unwrap();
        let read = serde_json::from_str::<Quota>(&json);
        prop_assert_eq!(read.ok(), text.parse().ok());
        let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        let read = serde_json::from_str::<Quota>(&format!("\"{escaped}\""));
        prop_assert_eq!(read.ok(), text.parse().ok());
    }

    /// A quota that was read is a limit, whatever its numbers were before: all of these share one bucket.
    #[test]
    fn a_quota_that_is_read_can_be_kept(
        texts in vec(inputs(), 1..4),
        cost in prop_oneof![Just(1), 0_u64..20, any::<u64>()],
        now in prop_oneof![0_i64..2_000_000_000_000_000, any::<i64>()],
    ) {
        thread_local! {
            static CLOCK: ManualClock = ManualClock::new(START);
            static LIMITER: RateLimiter = CLOCK.with(limiter);
        }
        CLOCK.with(|clock| clock.set(Timestamp::from_micros(now)));
        for quota in texts.iter().filter_map(|text| text.parse::<Quota>().ok()) {
            let limit = Limit::try_new("read", quota).unwrap();
            let left = LIMITER.with(|limiter| {
                at_once(limiter.limit(&limit).cost(cost)).map(|permit| permit.remaining())
            });
            match left {
                Ok(remaining) => prop_assert!(remaining <= quota.get_capacity()),
                Err(refused) => prop_assert!(!refused.is_unavailable(), "{refused}"),
            }
        }
    }

    /// Any bytes in place of JSON are a quota or an error.
    #[test]
    fn a_quota_in_json_is_a_text_or_an_error(text in texts(&quota_seeds(), &WORDS)) {
        if let Ok(quota) = serde_json::from_str::<Quota>(&text) {
            let inner: String = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(inner.parse(), Ok(quota));
        }
    }
}
