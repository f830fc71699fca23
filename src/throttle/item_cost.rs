//! What an item costs.

use std::sync::{Mutex, PoisonError};

/// One token, or what a function of the item says.
pub(super) enum ItemCost<T> {
    One,
    // Never locked: the mutex makes it `Sync`, as some clients need their bodies to be.
    By(Mutex<Box<CostOf<T>>>),
}

type CostOf<T> = dyn FnMut(&T) -> u64 + Send;

impl<T> ItemCost<T> {
    pub(super) fn by(cost: impl FnMut(&T) -> u64 + Send + 'static) -> Self {
        Self::By(Mutex::new(Box::new(cost)))
    }

    pub(super) fn of(&mut self, item: &T) -> u64 {
        match self {
            Self::One => 1,
            Self::By(cost) => cost.get_mut().unwrap_or_else(PoisonError::into_inner)(item),
        }
    }
}
