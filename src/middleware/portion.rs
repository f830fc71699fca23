//! A portion of the requests or of the keys: some percent, or one in some number.

use std::fmt;
use std::num::NonZeroU32;

/// A portion of all requests or of all keys: some percent, or one in some number.
///
/// It is computed in integers, so [`ALL`](Self::ALL) misses none and [`NONE`](Self::NONE) has none.
///
/// # Examples
///
/// ```
/// use tollgate::middleware::Portion;
///
/// const TENTH: Portion = Portion::percent(10);
/// assert_eq!(TENTH.to_string(), "10 of 100");
/// assert_eq!(Portion::one_in(1_000).to_string(), "1 of 1000");
/// ```
#[doc(alias("percentage", "rollout", "sampling"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Portion {
    part: u32,
    whole: NonZeroU32,
}

impl Portion {
    /// None of them.
    pub const NONE: Self = Self { part: 0, whole: NonZeroU32::MIN };

    /// All of them.
    pub const ALL: Self = Self { part: 1, whole: NonZeroU32::MIN };

    /// This many percent, from 0 to 100.
    ///
    /// # Panics
    ///
    /// If `percent` is more than 100. In a `const`, that is a compile error. For numbers that are
    /// known at run time, use [`try_percent`](Self::try_percent).
    #[must_use]
    #[track_caller]
    pub const fn percent(percent: u32) -> Self {
        match Self::try_percent(percent) {
            Some(portion) => portion,
            None => panic!("a portion is at most 100 percent"),
        }
    }

    /// Like [`percent`](Self::percent), for numbers that are known at run time only; `None` if
    /// `percent` is more than 100.
    #[must_use]
    pub const fn try_percent(percent: u32) -> Option<Self> {
        match percent {
            0..=100 => Some(Self { part: percent, whole: HUNDRED }),
            _ => None,
        }
    }

    /// One in this many, at least 1.
    ///
    /// # Panics
    ///
    /// If `whole` is zero. In a `const`, that is a compile error.
    #[must_use]
    #[track_caller]
    pub const fn one_in(whole: u32) -> Self {
        match NonZeroU32::new(whole) {
            Some(whole) => Self { part: 1, whole },
            None => panic!("a portion of one in 0 is no portion (use 1 or more)"),
        }
    }

    /// Whether nothing belongs to it.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.part == 0
    }

    /// Whether everything belongs to it.
    #[must_use]
    pub const fn is_all(self) -> bool {
        self.part >= self.whole.get()
    }

    /// Whether the key or the request of this random number belongs to the portion, where all
    /// numbers are equally likely. A number that belongs to some percent belongs to any higher
    /// percentage.
    pub(super) fn contains(self, random: u64) -> bool {
        // The upper 64 bits of the product are uniform over `0..whole`: no division, and hardly a
        // bias.
        let scaled = u128::from(random).saturating_mul(u128::from(self.whole.get())) >> 64;
        scaled < u128::from(self.part)
    }
}

const HUNDRED: NonZeroU32 = NonZeroU32::MIN.saturating_add(99);

impl fmt::Display for Portion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.part, self.whole)
    }
}
