//! Units as the tokens that they are worth.

use std::fmt;
use std::num::NonZeroU64;

use super::state::Units;

/// An exact number of tokens, which may have a fraction and may be negative (debt).
///
/// # Examples
///
/// ```
/// use tollgate::algebra::Bucket;
/// use tollgate::{Quota, SECOND};
///
/// let bucket = Bucket::new(&Quota::token_bucket(4, SECOND))?;
/// let tokens = bucket.tokens(625_000);
/// assert_eq!((tokens.whole(), tokens.to_f64()), (2, 2.5));
/// assert_eq!(tokens.to_string(), "2.5");
/// # Ok::<(), tollgate::quota::QuotaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tokens {
    units: Units,
    token: NonZeroU64,
}

impl Tokens {
    pub(super) const fn new(units: Units, token: NonZeroU64) -> Self {
        Self { units, token }
    }

    /// The same number in units.
    #[must_use]
    pub const fn units(self) -> Units {
        self.units
    }

    /// The whole tokens that can be taken: rounded down, and zero when in debt.
    #[must_use]
    pub fn whole(self) -> u64 {
        u64::try_from(self.units).unwrap_or(0) / self.token
    }

    /// The nearest floating point number, for displays and plots. No decision uses it.
    #[must_use]
    #[expect(clippy::as_conversions, reason = "the nearest float is what is asked for")]
    pub fn to_f64(self) -> f64 {
        self.units as f64 / self.token.get() as f64
    }
}

/// Writes a decimal number, rounded down to the precision asked for, or to at most six digits.
impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// More digits than tell one unit from the next.
        const MAX_DIGITS: usize = 18;
        let digits = f.precision().unwrap_or(6).min(MAX_DIGITS);
        let scale = u32::try_from(digits).map_or(1, |digits| 10_i128.saturating_pow(digits));
        let scaled = i128::from(self.units)
            .saturating_mul(scale)
            .checked_div_euclid(i128::from(self.token.get()))
            .unwrap_or(0);
        let sign = if scaled < 0 { "-" } else { "" };
        let scale = scale.unsigned_abs();
        let whole = scaled.unsigned_abs().checked_div(scale).unwrap_or(0);
        let fraction = scaled.unsigned_abs().checked_rem(scale).unwrap_or(0);
        let fraction = format!("{fraction:0digits$}");
        let fraction = match f.precision() {
            Some(_) => fraction.as_str(),
            None => fraction.trim_end_matches('0'),
        };
        if digits == 0 || fraction.is_empty() {
            return write!(f, "{sign}{whole}");
        }
        write!(f, "{sign}{whole}.{fraction}")
    }
}
