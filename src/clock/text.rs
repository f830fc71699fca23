//! The text form of an instant: `2026-01-31T12:00:00Z`.

use std::fmt;
use std::str::FromStr;
use std::time::UNIX_EPOCH;

use super::parse_error::ParseError;
use super::timestamp::Timestamp;

/// Shows the date and time in UTC by RFC 3339, in whole seconds or with six digits after them.
///
/// RFC 3339 has four digits for the year, so an instant before 1970 or after the year 9999 is shown
/// as `@` and its microseconds since the Unix epoch.
///
/// # Examples
///
/// ```
/// use tollgate::Timestamp;
///
/// assert_eq!(Timestamp::from_micros(1_500_000).to_string(), "1970-01-01T00:00:01.500000Z");
/// assert_eq!(Timestamp::from_micros(-1).to_string(), "@-1");
/// ```
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// 31 December 9999.
        const LAST: i64 = 253_402_300_799_000_000;
        let micros = self.as_micros();
        let time = (0..=LAST)
            .contains(&micros)
            .then(|| UNIX_EPOCH.checked_add(self.since(Self::UNIX_EPOCH)))
            .flatten();
        match time {
            Some(time) if micros.checked_rem(1_000_000) == Some(0) => {
                humantime::format_rfc3339_seconds(time).fmt(f)
            }
            Some(time) => humantime::format_rfc3339_micros(time).fmt(f),
            None => write!(f, "@{micros}"),
        }
    }
}

/// Reads what [`Display`](fmt::Display) shows: a date and time in UTC by RFC 3339, from 1970 on and
/// with at most six digits after the second, or `@` and microseconds since the Unix epoch.
///
/// # Errors
///
/// If the text is anything else, such as a time with an offset from UTC.
impl FromStr for Timestamp {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse(text).ok_or_else(|| {
            ParseError::new(format!(
                "`{}` is not a time in UTC (write it as `2026-01-31T12:00:00Z`, with at most 6 \
                 digits after the second, or as `@` and microseconds since 1970)",
                excerpt(text)
            ))
        })
    }
}

fn parse(text: &str) -> Option<Timestamp> {
    if let Some(micros) = text.strip_prefix('@') {
        return micros.parse().ok().map(Timestamp::from_micros);
    }
    // `humantime` ignores some offsets from UTC, so a text with an offset must not get there.
    let utc = text.strip_suffix('Z')?;
    let (seconds, fraction) = utc.split_once('.').unwrap_or((utc, "0"));
    let is_digit = |byte: u8| byte.is_ascii_digit();
    let whole_micros = (1..=6).contains(&fraction.len()) && fraction.bytes().all(is_digit);
    let shape = seconds.bytes().map(|byte| if is_digit(byte) { b'0' } else { byte });
    // Nor must one with second 60: time since the epoch has no leap seconds, and `humantime` reads
    // it as second 59.
    if !whole_micros || !shape.eq(*b"0000-00-00T00:00:00") || seconds.ends_with("60") {
        return None;
    }
    let time = humantime::parse_rfc3339(text).ok()?;
    time.duration_since(UNIX_EPOCH).ok().map(|since| Timestamp::UNIX_EPOCH.saturating_add(since))
}

/// The first characters of what was given, on one line: enough to recognise it, and no more.
#[must_use]
pub fn excerpt(text: &str) -> Box<str> {
    const SHOWN: usize = 60;
    let mut shown = String::new();
    for c in text.chars().take(SHOWN) {
        if c.is_control() { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_shown_as_recorded() {
        for (micros, wanted) in [
            (0, "1970-01-01T00:00:00Z"),
            (1, "1970-01-01T00:00:00.000001Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00Z"),
            (1_769_860_800_500_000, "2026-01-31T12:00:00.500000Z"),
            (253_402_300_799_000_000, "9999-12-31T23:59:59Z"),
            (253_402_300_799_000_001, "@253402300799000001"),
            (-1, "@-1"),
            (i64::MIN, "@-9223372036854775808"),
        ] {
            assert_eq!(Timestamp::from_micros(micros).to_string(), wanted);
            assert_eq!(wanted.parse(), Ok(Timestamp::from_micros(micros)));
        }
    }

    #[test]
    fn other_texts_are_errors_that_quote_them() {
        for text in [
            "",
            "@",
            "@1.5",
            "now",
            "2026-01-31",
            "2026-01-31 12:00:00Z",
            "2026-01-31T12:00:00",
            "2026-01-31T12:00:00z",
            "2026-01-31T12:00:00+00:00",
            "2026-01-31T12:00:00.Z",
            "2026-01-31T12:00:00.1234567Z",
            "2026-02-29T12:00:00Z",
            "2026-01-31T23:59:60Z",
            "1969-12-31T23:59:59Z",
        ] {
            let error = text.parse::<Timestamp>().unwrap_err().to_string();
            let wanted = format!(
                "`{text}` is not a time in UTC (write it as `2026-01-31T12:00:00Z`, with at most 6 \
                 digits after the second, or as `@` and microseconds since 1970)"
            );
            assert_eq!(error, wanted);
        }
        let long = "x".repeat(100);
        let error = long.parse::<Timestamp>().unwrap_err().to_string();
        assert!(error.starts_with(&format!("`{}…` is not", "x".repeat(60))), "{error}");
    }
}
