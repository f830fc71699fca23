//! Which store has decided, when there are two.

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
