//! Units, as the tokens they are worth.

use std::fmt;
use std::num::NonZeroU64;

use super::Units;

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

    /// The same, in units.
    #[must_use]
    pub const fn units(self) -> Units {
        self.units
    }

    /// The whole tokens that can be taken: rounded down, and zero when in debt.
    #[must_use]
    pub fn whole(self) -> u64 {
        u64::try_from(self.units).unwrap_or(0) / self.token
    }

    /// The nearest floating point number, for people and plots. No decision uses it.
    #[must_use]
    #[expect(clippy::as_conversions, reason = "the nearest float is what is asked for")]
    pub fn to_f64(self) -> f64 {
        self.units as f64 / self.token.get() as f64
    }
}

/// Shows a decimal number, exact to six digits.
impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:.6}", self.to_f64());
        f.pad(text.trim_end_matches('0').trim_end_matches('.'))
    }
}
