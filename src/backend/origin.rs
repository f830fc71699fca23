//! Which store has decided, when there are two, and what the other one has paid of it.

use crate::algebra::Units;

/// Which store took the units of a reading, so that a settlement goes to the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The store itself; the only one there is, unless a [`Fallback`](super::Fallback) is around it.
    #[default]
    Store,
    /// The local store of a [`Fallback`](super::Fallback).
    Fallback,
    /// Two stores, or one that cannot be told: one fallback is inside of another. Nothing is
    /// returned to either.
    Unknown,
}

impl Origin {
    /// The origin of what was taken here and there.
    pub(crate) const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Store, Self::Store) => Self::Store,
            (Self::Fallback, Self::Fallback) => Self::Fallback,
            _ => Self::Unknown,
        }
    }
}

/// The part of a charge in the store that the local store of a [`Fallback`](super::Fallback) has not
/// paid, as its bucket did not hold it.
///
/// It is counted in steps of 1/2047, so that a reading has room for it, and rounded up: what comes back
/// to the local bucket is never more than it has paid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Unpaid(u16);

impl Unpaid {
    /// The local store has paid all of it, or there is none.
    pub(crate) const NOTHING: Self = Self(0);

    const ALL: u16 = 2_047;

    /// So many units of `all`.
    pub(crate) fn part(units: Units, all: Units) -> Self {
        if units <= 0 || all <= 0 {
            return Self::NOTHING;
        }
        let steps = u128::from(units.min(all).unsigned_abs()).saturating_mul(u128::from(Self::ALL));
        Self(u16::try_from(steps.div_ceil(u128::from(all.unsigned_abs()))).unwrap_or(Self::ALL))
    }

    /// This part of so many units.
    pub(crate) fn of(self, all: Units) -> Units {
        // Nearly always. The rest is a division of 128 bits.
        if self == Self::NOTHING {
            return 0;
        }
        let units = u128::from(all.max(0).unsigned_abs()).saturating_mul(u128::from(self.0));
        Units::try_from(units.div_ceil(u128::from(Self::ALL))).unwrap_or(Units::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_never_less_than_it_was() {
        for all in [1, 2, 7, 40, 2_046, 2_047, 2_048, 5_000, 1 << 53, Units::MAX] {
            for units in [-1, 0, 1, all / 3, all / 2, all - 1, all] {
                let part = Unpaid::part(units, all);
                let read = part.of(all);
                let right = units.max(0);
                assert!(read >= right && read <= right.saturating_add(all / 2_047 + 1).min(all));
            }
            assert_eq!((Unpaid::NOTHING.of(all), Unpaid::part(all, all).of(all)), (0, all));
        }
        assert_eq!([Unpaid::part(3, 0), Unpaid::part(3, -1)], [Unpaid::NOTHING; 2]);
    }
}
