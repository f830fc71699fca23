//! Periods by their names, and as text: `minute`, `90 seconds`, `1h 30m`.

use std::fmt;
use std::time::Duration;

/// One second.
pub const SECOND: Duration = Duration::from_secs(1);
/// One minute.
pub const MINUTE: Duration = Duration::from_secs(60);
/// One hour.
pub const HOUR: Duration = Duration::from_secs(60 * 60);
/// One day of 24 hours.
pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// One week of 7 days.
pub const WEEK: Duration = days(7);

/// This many minutes, also in a `const`, where `15 * MINUTE` does not compile.
///
/// # Examples
///
/// ```
/// use tollgate::{MINUTE, Quota, days, hours, minutes};
///
/// const LOGIN: Quota = Quota::token_bucket(5, minutes(15));
/// const PLAN: Quota = Quota::token_bucket(5_000, days(30));
/// assert_eq!(LOGIN.to_string(), "5 per 15 minutes");
/// assert_eq!(PLAN.to_string(), "5000 per 30 days");
/// assert_eq!(hours(12), 720 * MINUTE);
/// ```
#[must_use]
pub const fn minutes(minutes: u32) -> Duration {
    MINUTE.saturating_mul(minutes)
}

/// This many hours: see [`minutes`].
#[must_use]
pub const fn hours(hours: u32) -> Duration {
    HOUR.saturating_mul(hours)
}

/// This many days of 24 hours: see [`minutes`].
#[must_use]
pub const fn days(days: u32) -> Duration {
    DAY.saturating_mul(days)
}

/// A unit of time. There is no month, because months differ in length.
struct Unit {
    micros: u64,
    /// Names that may stand alone, or after a number. The first one is printed for a period of
    /// exactly one.
    singular: &'static [&'static str],
    /// Names that stand after a number only. The first one is printed.
    plural: &'static [&'static str],
}

impl Unit {
    /// A name of three letters or more may be in any case. Of an abbreviation the case may be meant:
    /// `M` is a month elsewhere.
    fn has_name(&self, name: &str) -> bool {
        let mut names = self.singular.iter().chain(self.plural);
        names.any(|own| {
            *own == name || (own.chars().nth(2).is_some() && own.eq_ignore_ascii_case(name))
        })
    }
}

/// Largest first, so that a period is shown in the largest unit that is exact.
const UNITS: [Unit; 7] = [
    Unit { micros: 604_800_000_000, singular: &["week", "w"], plural: &["weeks"] },
    Unit { micros: 86_400_000_000, singular: &["day", "d"], plural: &["days"] },
    Unit { micros: 3_600_000_000, singular: &["hour", "h", "hr"], plural: &["hours", "hrs"] },
    Unit { micros: 60_000_000, singular: &["minute", "m", "min"], plural: &["minutes", "mins"] },
    Unit { micros: 1_000_000, singular: &["second", "s", "sec"], plural: &["seconds", "secs"] },
    Unit { micros: 1_000, singular: &["millisecond", "ms"], plural: &["ms", "milliseconds"] },
    Unit { micros: 1, singular: &["microsecond", "us", "µs"], plural: &["us", "microseconds"] },
];

/// Reads a unit alone, or numbers that have a unit each. `None` if the text is neither, or too long
/// a time.
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
    if let Some(unit) = UNITS.iter().find(|unit| unit.has_name(text)) {
        return Some(Duration::from_micros(unit.micros));
    }
    let mut rest = text.trim_start();
    let mut total: u64 = 0;
    loop {
        let (number, after) = rest.split_at_checked(rest.find(|c| !is_part_of_number(c))?)?;
        let after = after.trim_start();
        let name_ends = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let (name, after) = after.split_at_checked(name_ends)?;
        let unit = UNITS.iter().find(|unit| unit.has_name(name))?;
        total = total.checked_add(micros(number, unit.micros)?)?;
        rest = after.trim_start();
        if rest.is_empty() {
            return Some(Duration::from_micros(total));
        }
    }
}

const fn is_part_of_number(c: char) -> bool {
    c.is_ascii_digit() || c == '.'
}

/// A decimal number of units, if that is a whole number of microseconds.
fn micros(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if fraction.is_empty() {
        return None;
    }
    let part = match fraction.trim_end_matches('0') {
        "" => 0,
        // 128 bits: the longest fraction that gives whole microseconds has 13 digits, and those of
        // a week need 80 bits.
        digits => {
            let scale = 10_u128.checked_pow(u32::try_from(digits.len()).ok()?)?;
            let scaled = digits.parse::<u128>().ok()?.checked_mul(u128::from(unit))?;
            if scaled.checked_rem(scale)? != 0 {
                return None;
            }
            u64::try_from(scaled.checked_div(scale)?).ok()?
        }
    };
    whole.parse::<u64>().ok()?.checked_mul(unit)?.checked_add(part)
}

/// Shows a period as it is written after "per": `minute`, `30 days`.
pub(super) struct Period(pub(super) Duration);

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(micros) = super::units::micros(self.0) else {
            return match self.0 {
                Duration::ZERO => f.write_str("0 seconds"),
                odd => write!(f, "{odd:?}"),
            };
        };
        // One week is shown as `week`, several as days.
        for Unit { micros: unit, singular, plural } in UNITS {
            let (count, rest) = (micros.get().checked_div(unit), micros.get().checked_rem(unit));
            let (Some(count), Some(0), [one, ..], [many, ..]) = (count, rest, singular, plural)
            else {
                continue;
            };
            match count {
                1 => return f.write_str(one),
                _ if *one == "week" => {}
                _ => return write!(f, "{count} {many}"),
            }
        }
        Ok(())
    }
}
