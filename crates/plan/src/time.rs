//! The times of a log. The calendar is that of `Timestamp`; here is what logs write around it.

use tollgate::Timestamp;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The time of the common log format: `10/Oct/2000:13:55:36 -0700`.
pub(crate) fn common(text: &str) -> Option<Timestamp> {
    let [day, month, year] = [text.get(..2)?, text.get(3..6)?, text.get(7..11)?];
    let [time, offset] = [text.get(12..20)?, text.get(21..)?];
    let marks = [2, 6, 11, 20].map(|at| text.as_bytes().get(at).copied());
    if marks != [Some(b'/'), Some(b'/'), Some(b':'), Some(b' ')] {
        return None;
    }
    let month = MONTHS.iter().position(|name| *name == month)?.checked_add(1)?;
    let local = format!("{year}-{month:02}-{day}T{time}Z").parse().ok()?;
    before(local, micros_of_offset(offset)?)
}

/// The time of a JSON line: RFC 3339 with any offset, the common log format, or a number since 1970.
pub(crate) fn any(text: &str) -> Option<Timestamp> {
    match text.as_bytes().get(4) {
        Some(b'-') => rfc3339(text),
        _ if text.contains('/') => common(text),
        _ if text.starts_with('@') => text.parse().ok(),
        _ => number(text),
    }
}

/// `2026-01-31T12:00:00.123456789+01:00`, rounded down to the microsecond.
fn rfc3339(text: &str) -> Option<Timestamp> {
    let (local, offset) = match text.strip_suffix(['Z', 'z']) {
        Some(local) => (local, "+00:00"),
        None => {
            // The offset begins at the last sign; the date before it has ten characters.
            let sign = text.rfind(['+', '-']).filter(|sign| *sign > 10)?;
            text.split_at_checked(sign)?
        }
    };
    let (seconds, fraction) = local.split_once('.').unwrap_or((local, "0"));
    let micros = micros_of_fraction(fraction)?;
    let local: Timestamp = format!("{seconds}Z").parse().ok()?;
    before(
        Timestamp::from_micros(local.as_micros().checked_add(micros)?),
        micros_of_offset(offset)?,
    )
}

/// Seconds since 1970, with a fraction or without. A number that would be a time after 5138
/// counts milliseconds, or microseconds, or nanoseconds.
fn number(text: &str) -> Option<Timestamp> {
    const YEAR_5138: i128 = 100_000_000_000_000_000;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let whole = i128::from(digits(whole)?);
    let mut micros =
        whole.checked_mul(1_000_000)?.checked_add(micros_of_fraction(fraction)?.into())?;
    while micros >= YEAR_5138 {
        micros /= 1_000;
    }
    Some(Timestamp::from_micros(i64::try_from(micros).ok()?))
}

fn before(local: Timestamp, offset: i64) -> Option<Timestamp> {
    Some(Timestamp::from_micros(local.as_micros().checked_sub(offset)?))
}

/// `-0700` or `+01:00`: how far local time is ahead.
fn micros_of_offset(text: &str) -> Option<i64> {
    let (sign, digits_of) = text.split_at_checked(1)?;
    let (hours, minutes) = digits_of.split_at_checked(2)?;
    let minutes = minutes.strip_prefix(':').unwrap_or(minutes);
    let (hours, minutes) = (digits(hours)?, digits(minutes).filter(|_| minutes.len() == 2)?);
    if hours > 23 || minutes > 59 {
        return None;
    }
    let micros = i64::try_from((hours * 60 + minutes) * 60_000_000).ok()?;
    match sign {
        "+" => Some(micros),
        "-" => Some(-micros),
        _ => None,
    }
}

/// The digits after the point of a second.
fn micros_of_fraction(text: &str) -> Option<i64> {
    digits(text.get(..19).unwrap_or(text))?;
    let six = text.bytes().chain(std::iter::repeat(b'0')).take(6);
    Some(six.fold(0, |micros, digit| micros * 10 + i64::from(digit - b'0')))
}

/// A number without sign, which `parse` would allow.
fn digits(text: &str) -> Option<u64> {
    let all = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| all)
}
