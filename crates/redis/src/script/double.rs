//! Numbers as the script counts them: whole numbers as doubles.

use tollgate::kit::MAX_UNITS;

/// A double holds every whole number up to this one.
pub(super) const MAX: i64 = MAX_UNITS.cast_signed();

/// Converts a whole number to a double; beyond [`MAX`], to the infinity of its sign.
#[expect(clippy::as_conversions, reason = "a double holds each of these whole numbers")]
pub(super) const fn from_i64(number: i64) -> f64 {
    if number > MAX {
        return f64::INFINITY;
    }
    if number < -MAX { f64::NEG_INFINITY } else { number as f64 }
}

/// Converts a double to a whole number. `None` if it is not whole, or beyond [`MAX`].
#[expect(clippy::as_conversions, reason = "a whole number within 2^53 is an `i64`")]
pub(super) fn to_i64(double: f64) -> Option<i64> {
    (double.fract() == 0.0 && double.abs() <= from_i64(MAX)).then_some(double as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_convert_both_ways_and_other_doubles_do_not() {
        for number in [0, 1, -1, MAX, -MAX, MAX - 1, 1_700_000_123_456_789] {
            assert_eq!(to_i64(from_i64(number)), Some(number));
        }
        for odd in [0.5, f64::NAN, f64::INFINITY, from_i64(MAX + 1), 2.0_f64.powi(54)] {
            assert_eq!(to_i64(odd), None, "{odd}");
        }
        assert_eq!((from_i64(MAX + 1), from_i64(i64::MIN)), (f64::INFINITY, f64::NEG_INFINITY));
    }
}
