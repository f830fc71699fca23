//! Lots: tokens that a node has taken in advance, with the date at which they become void.

use smallvec::SmallVec;

use tollgate::algebra::{State, Units};
use tollgate::clock::Timestamp;

/// Tokens that the store has charged for this node. `start`, `void` and `sent` are times of the
/// node's clock, `charged` is a state of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lot {
    pub(super) left: Units,
    pub(super) start: Timestamp,
    pub(super) void: Timestamp,
    pub(super) sent: Timestamp,
    /// What the charge left in the store's bucket, and when.
    pub(super) charged: State,
    /// When it first paid, by the time of the store as this node reckons it.
    pub(super) first_paid: Option<Timestamp>,
    /// Whether another lot has paid at that instant too.
    pub(super) is_first_shared: bool,
}

impl Lot {
    const fn is_running(&self, now: Timestamp) -> bool {
        self.start.as_micros() <= now.as_micros()
    }

    fn note_payment(&mut self, at: Timestamp, is_shared: bool) {
        if self.first_paid.is_none() {
            (self.first_paid, self.is_first_shared) = (Some(at), is_shared);
        }
    }

    /// Whether what lots or the store were paid at this instant was charged no earlier than this
    /// lot, as long as no other lot has begun to pay after it.
    pub(super) fn has_begun_before(&self, paid: Timestamp) -> bool {
        let first = self.first_paid;
        first.is_some_and(|first| first < paid || (first == paid && !self.is_first_shared))
    }
}

/// The lots of one bucket, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(super) struct Lots(SmallVec<[Lot; 2]>);

/// More lots than two are there only if answers were late. Any further one is lost.
const MAX_LOTS: usize = 4;

impl Lots {
    /// Takes units from the lots that run, the older first. Returns what they hold then, or `None`
    /// if they are short; then nothing is taken. `at` is the time of the store, and `last_paid` when
    /// a lot has last paid by it.
    #[inline]
    pub(super) fn pay(
        &mut self,
        units: Units,
        now: Timestamp,
        at: Timestamp,
        last_paid: Option<Timestamp>,
    ) -> Option<Units> {
        self.drop_void(now);
        // Nearly always one lot pays for all.
        if let [lot] = self.0.as_mut_slice()
            && lot.left >= units
            && lot.is_running(now)
        {
            lot.left = lot.left.saturating_sub(units);
            lot.note_payment(at, last_paid == Some(at));
            return Some(lot.left);
        }
        let held = self.held(now);
        if held < units || self.0.is_empty() {
            return None;
        }
        let (mut missing, mut is_shared) = (units, last_paid == Some(at));
        for lot in self.0.iter_mut().filter(|lot| lot.is_running(now)) {
            if missing == 0 {
                break;
            }
            let part = lot.left.min(missing);
            if part > 0 {
                lot.left = lot.left.saturating_sub(part);
                missing = missing.saturating_sub(part);
                lot.note_payment(at, is_shared);
                is_shared = true;
            }
        }
        Some(held.saturating_sub(units))
    }

    /// Takes up to so many units from all lots, whether they run or not. Returns how many it took.
    pub(super) fn drain(&mut self, units: Units) -> Units {
        let mut missing = units;
        for lot in &mut self.0 {
            let part = lot.left.min(missing);
            lot.left = lot.left.saturating_sub(part);
            missing = missing.saturating_sub(part);
        }
        units.saturating_sub(missing)
    }

    /// What the lots hold that run.
    pub(super) fn held(&self, now: Timestamp) -> Units {
        let running = self.0.iter().filter(|lot| lot.is_running(now) && lot.void > now);
        running.fold(0, |held, lot| held.saturating_add(lot.left))
    }

    /// What the lots hold that are not void at this instant yet.
    pub(super) fn held_beyond(&self, instant: Timestamp) -> Units {
        let alive = self.0.iter().filter(|lot| lot.void > instant);
        alive.fold(0, |held, lot| held.saturating_add(lot.left))
    }

    /// When the first of the lots that wait starts.
    pub(super) fn next_start(&self, now: Timestamp) -> Option<Timestamp> {
        let waiting = self.0.iter().filter(|lot| !lot.is_running(now) && lot.void > lot.start);
        waiting.map(|lot| lot.start).min()
    }

    /// The start of the window in which the running lots were charged.
    pub(super) fn window(&self) -> Option<Timestamp> {
        self.0.first().map(|lot| lot.charged.ts)
    }

    #[inline]
    pub(super) fn drop_void(&mut self, now: Timestamp) {
        // A lot that is used up stays until it is void: tokens may come back to it. One that is
        // used up and older than a lot that pays gets nothing back any more.
        if self.0.first().is_some_and(|lot| lot.void <= now) || self.0.len() > 1 {
            let last_paid = self.0.iter().rposition(|lot| lot.first_paid.is_some());
            let mut nth = 0_usize;
            self.0.retain(|lot| {
                let is_closed = lot.left == 0 && last_paid.is_some_and(|last| nth < last);
                nth = nth.saturating_add(1);
                lot.void > now && !is_closed
            });
        }
    }

    /// Adds a lot, unless there are too many.
    pub(super) fn push(&mut self, lot: Lot) {
        if self.0.len() < MAX_LOTS {
            self.0.push(lot);
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter_mut(&mut self) -> std::slice::IterMut<'_, Lot> {
        self.0.iter_mut()
    }

    /// The lot that has paid last of all, if it is not void.
    pub(super) fn last_to_pay(&mut self, now: Timestamp) -> Option<&mut Lot> {
        let last = self.0.iter_mut().rfind(|lot| lot.first_paid.is_some());
        last.filter(|lot| lot.void > now)
    }
}
