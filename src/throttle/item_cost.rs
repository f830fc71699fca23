//! What an item costs.

/// One token, or what a function of the item says.
pub(super) enum ItemCost<T> {
    One,
    By(Box<dyn FnMut(&T) -> u64 + Send>),
}

impl<T> ItemCost<T> {
    pub(super) fn of(&mut self, item: &T) -> u64 {
        match self {
            Self::One => 1,
            Self::By(cost) => cost(item),
        }
    }
}
