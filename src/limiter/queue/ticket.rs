//! Where a waiter stands in the queue.

/// A waiter stands before all whose tickets are larger.
///
/// The waiter that comes last stands last, though slots behind it may have been undone, so that its
/// own is no later than one that was given up before. Only if tokens were given back is a slot
/// before those of others; its waiter stands before them then, by a label between theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket {
    label: i64,
    /// That of its reservation. Where no label is left between two others, the earlier one is
    /// first.
    number: u64,
}

/// How far apart tickets are, so that others fit between them: two dozen times in one place, and
/// half a million million in a queue that never empties.
const GAP: i64 = 1 << 24;

impl Ticket {
    /// Before all others.
    pub(super) const FIRST: Self = Self { label: i64::MIN, number: 0 };

    /// After all others.
    pub(super) const LAST: Self = Self { label: i64::MAX, number: u64::MAX };

    pub(super) const fn new(label: i64, number: u64) -> Self {
        Self { label, number }
    }

    /// The label after this one.
    pub(super) const fn after(label: i64) -> i64 {
        label.saturating_add(GAP)
    }

    /// A label between those of two neighbours; `before` is none if there is no waiter before.
    pub(super) fn between(before: Option<Self>, next: Self) -> i64 {
        match before {
            Some(before) => before.label.midpoint(next.label),
            None => next.label.saturating_sub(GAP),
        }
    }
}
