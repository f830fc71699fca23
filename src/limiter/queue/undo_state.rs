//! What the store has said about undoing the free slots of a queue.

use super::time_slot::CreationKey;

/// How often one slot is tried again after a pending return. In a busy process some return is
/// always pending, and each of these tries is one more call of the store.
const MAX_RETRIES: u8 = 4;

/// Which free slots may be tried. The one that was reserved last is undone first: as long as it
/// stands, it is a charge that came after all others, and none of them can be undone.
#[derive(Debug, Default)]
pub(super) struct UndoState {
    /// Whether the store was asked to undo a slot and has not answered. There is one such call at a
    /// time: a store that answers late may carry out several in any order, and refuse all but one.
    is_undoing: bool,
    /// The slot that the store refused to undo. Neither it nor an older one is tried until
    /// something has changed.
    refused: Option<CreationKey>,
    /// The slot that was last refused while returns were pending, and how often. The store may have
    /// refused only because it had not carried out such a return yet.
    awaited: Option<(CreationKey, u8)>,
    /// The slot by which the ledgers know this queue.
    pub(super) kept_by: Option<CreationKey>,
}

impl UndoState {
    /// Whether the caller is to take out the newest slot and ask the store to undo it: no call is
    /// pending, and the store would not refuse.
    pub(super) fn begin(&mut self, newest: CreationKey) -> bool {
        // What charged the bucket after the refused slot was made came after all older ones as
        // well.
        let may_begin = !self.is_undoing && self.refused.is_none_or(|refused| newest > refused);
        // Set before the caller unlocks the queue. From here on the slot is with the caller alone,
        // which must record an answer: without one, no slot of this queue is ever undone again.
        self.is_undoing |= may_begin;
        may_begin
    }

    /// Records that the store has undone a slot, or that its answer was lost. In the second case
    /// the slot counts as spent, since it may have been undone.
    pub(super) const fn record_undone(&mut self) {
        self.is_undoing = false;
        // The undone slot was a charge itself. Older slots that were refused because of it may be
        // next.
        self.refused = None;
    }

    /// Records that the store refused to undo a slot.
    pub(super) const fn record_refusal(&mut self, slot: CreationKey) {
        self.is_undoing = false;
        self.refused = Some(slot);
    }

    /// Lets the refused slots be tried again.
    pub(super) const fn retry(&mut self) {
        self.refused = None;
    }

    /// Whether the refused slot is to be tried again once the pending returns are answered: not if
    /// that was in vain `MAX_RETRIES` times.
    pub(super) fn awaits_return(&mut self) -> bool {
        let before = self.awaited.filter(|(slot, _)| Some(*slot) == self.refused);
        let times = before.map_or(1, |(_, times)| times.saturating_add(1));
        // Counted for each slot apart, by its creation: another slot begins at one again.
        self.awaited = self.refused.map(|slot| (slot, times));
        times <= MAX_RETRIES
    }
}
