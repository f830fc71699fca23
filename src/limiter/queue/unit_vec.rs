//! Units and states of the buckets of a queue.

use smallvec::SmallVec;

use crate::algebra::{State, Units};

/// The units taken from each bucket of a queue, in the order of the set. Nearly always of one
/// bucket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UnitVec(SmallVec<[Units; 1]>);

/// What each bucket of a queue held after a reservation, in the order of the set.
pub(super) type StateVec = SmallVec<[State; 1]>;

impl FromIterator<Units> for UnitVec {
    fn from_iter<I: IntoIterator<Item = Units>>(units: I) -> Self {
        Self(units.into_iter().collect())
    }
}

impl UnitVec {
    pub(super) fn as_slice(&self) -> &[Units] {
        &self.0
    }

    /// Whether a slot that takes `slot` covers this cost. A cost that fits is never larger than the
    /// slot in the order of this type either, so classes above it need no look.
    pub(super) fn fits(&self, slot: &Self) -> bool {
        self.0.iter().zip(&slot.0).all(|(units, slot)| units <= slot)
    }

    /// Whether the cost is zero in every bucket.
    pub(super) fn is_nothing(&self) -> bool {
        self.0.iter().all(|&units| units <= 0)
    }
}
