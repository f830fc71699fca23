//! Why a bucket is on the list.

use crate::algebra::State;
use crate::clock::Timestamp;

/// Why a bucket is on the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DebtorKind {
    /// It owes tokens: to a penalty, to reservations, or to work that cost more than it paid. Also a
    /// fixed window in which a [block](crate::algebra::block) ends: it is closed until the next.
    InDebt,
    /// It gains nothing until an instant that is still to come: it is
    /// [blocked](crate::algebra::block).
    Blocked,
}

impl DebtorKind {
    /// Why a bucket in this state is on the list at `now`; `None` if it is not.
    #[must_use]
    pub fn of(State { value, ts }: State, now: Timestamp) -> Option<Self> {
        match (value < 0, ts > now) {
            (false, _) => None,
            (true, false) => Some(Self::InDebt),
            (true, true) => Some(Self::Blocked),
        }
    }
}
