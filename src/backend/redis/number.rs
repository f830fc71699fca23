//! Numbers as the script counts them: doubles, all of them whole.

use crate::quota::MAX_UNITS;

/// The largest whole number up to which a double holds each one.
pub(super) const MOST: i64 = MAX_UNITS.cast_signed();

/// A whole number within [`MOST`], or the infinity on its side.
#[expect(clippy::as_conversions, reason = "a double holds each of these whole numbers")]
pub(super) const fn double(number: i64) -> f64 {
    if number > MOST {
        return f64::INFINITY;
    }
    if number < -MOST { f64::NEG_INFINITY } else { number as f64 }
}

/// The same of a number that is not below zero.
pub(super) fn double_of(number: u64) -> f64 {
    i64::try_from(number).map_or(f64::INFINITY, double)
}

/// The whole number that a double is; `None` if it is none, or not within [`MOST`].
#[expect(clippy::as_conversions, reason = "a whole number within 2^53 is an `i64`")]
pub(super) fn whole(double: f64) -> Option<i64> {
    (double.fract() == 0.0 && double.abs() <= self::double(MOST)).then_some(double as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_come_back_and_others_do_not() {
        for number in [0, 1, -1, MOST, -MOST, MOST - 1, 1_700_000_123_456_789] {
            assert_eq!(whole(double(number)), Some(number));
        }
        for odd in [0.5, f64::NAN, f64::INFINITY, double(MOST + 1), 2.0_f64.powi(54)] {
            assert_eq!(whole(odd), None, "{odd}");
        }
        assert_eq!((double(MOST + 1), double(i64::MIN)), (f64::INFINITY, f64::NEG_INFINITY));
        assert_eq!((double_of(u64::MAX), double_of(7)), (f64::INFINITY, 7.0));
    }
}
