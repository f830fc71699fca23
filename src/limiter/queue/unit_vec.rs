//! What a slot takes of its buckets, and leaves in them.

use smallvec::SmallVec;

use crate::algebra::{State, Units};

/// The units that are taken of each bucket of a queue, in their order; of one bucket nearly always.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UnitVec(SmallVec<[Units; 1]>);

/// What each bucket of a queue held after a reservation, in their order.
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

    /// Whether a slot that takes `slot` is large enough for this. What fits is no larger in the
    /// order of costs, either.
    pub(super) fn fits(&self, slot: &Self) -> bool {
        self.0.iter().zip(&slot.0).all(|(units, slot)| units <= slot)
    }

    /// Whether nothing is needed.
    pub(super) fn is_nothing(&self) -> bool {
        self.0.iter().all(|&units| units <= 0)
    }
}
