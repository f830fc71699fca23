//! Hostile inputs, how they are written down, and the seeds that they begin with.

pub mod bytes;
pub mod cookies;
pub mod field;
pub mod seeds;

/// The days of a month.
pub fn days_of(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}
