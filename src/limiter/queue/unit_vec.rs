//! What a slot takes of its buckets, and leaves in them.

use std::sync::Arc;

use crate::algebra::{State, Units};

/// The units that are taken of each bucket of a queue; of one bucket nearly always.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum UnitVec {
    One(Units),
    /// As many as there are buckets, in their order.
    Many(Arc<Vec<Units>>),
}

/// What each bucket of a queue held after a reservation.
#[derive(Clone, Debug)]
pub(crate) enum StateVec {
    One(State),
    /// As many as there are buckets, in their order.
    Many(Arc<Vec<State>>),
}

impl UnitVec {
    pub(super) fn of(units: impl IntoIterator<Item = Units>) -> Self {
        let units: Vec<_> = units.into_iter().collect();
        match units[..] {
            [one] => Self::One(one),
            _ => Self::Many(Arc::new(units)),
        }
    }

    pub(super) fn as_slice(&self) -> &[Units] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }

    /// Whether a slot that takes `place` is large enough for this. What fits is no larger in the
    /// order of costs, either.
    pub(super) fn fits(&self, place: &Self) -> bool {
        match (self, place) {
            (Self::One(units), Self::One(place)) => units <= place,
            _ => {
                let (units, place) = (self.as_slice(), place.as_slice());
                units.len() == place.len() && units.iter().zip(place).all(|(a, b)| a <= b)
            }
        }
    }

    /// Whether nothing is needed.
    pub(super) fn is_nothing(&self) -> bool {
        self.as_slice().iter().all(|&units| units <= 0)
    }
}

impl StateVec {
    pub(super) fn of(states: impl IntoIterator<Item = State>) -> Self {
        let states: Vec<_> = states.into_iter().collect();
        match states[..] {
            [one] => Self::One(one),
            _ => Self::Many(Arc::new(states)),
        }
    }

    pub(crate) fn as_slice(&self) -> &[State] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}
