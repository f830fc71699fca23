//! Why a bucket is on the list.

use crate::algebra::State;
use crate::clock::Timestamp;

/// Why a bucket is on the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::backend) enum DebtorKind {
    InDebt,
    Blocked,
}

impl DebtorKind {
    /// Why a bucket in this state is on the list at `now`; `None` if it is not.
    pub(super) fn of(State { value, ts }: State, now: Timestamp) -> Option<Self> {
        match (value < 0, ts > now) {
            (false, _) => None,
            (true, false) => Some(Self::InDebt),
            (true, true) => Some(Self::Blocked),
        }
    }
}
