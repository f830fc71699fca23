//! What requests return: to the waiters of this process first, and the rest to the store.

use std::sync::{Arc, Weak};
use std::time::Duration;

use smallvec::SmallVec;

use super::bucket_set::QueueBucket;
use super::ledger::Ledger;
use super::registry::{QueueRegistry, SharedQueue};
use super::time_slot::StoreEvent;
use super::unit_vec::UnitVec;
use crate::algebra::{Bucket, Units, Verdict};
use crate::backend::{Adjustment, Answer, Applied, Change};
use crate::clock::Timestamp;
use crate::limiter::detached::DetachOnDrop;

impl QueueRegistry {
    /// Makes these adjustments. The first waiter on the buckets runs at once if what they return
    /// covers its cost, then the next one; the rest goes to the store, which answers.
    pub(crate) fn give_back(
        self: &Arc<Self>,
        adjustments: &mut [Adjustment<'_>],
    ) -> Answer<Applied> {
        self.grant_waiters(adjustments);
        let mut returning = Returning { registry: Arc::downgrade(self), returns: SmallVec::new() };
        for adjustment in adjustments.iter() {
            let units = adjustment.change().returns_at_most();
            if units > 0 {
                let ledger = self.ledgers.get(adjustment.id());
                ledger.ask(units);
                let (bucket, change) = (*adjustment.bucket(), adjustment.change());
                returning.returns.push(Return { ledger, bucket, change, units });
            }
        }
        match self.backend.adjust(adjustments) {
            Answer::Ready(answer) => {
                returning.hear(answer.as_ref().ok(), true);
                Answer::Ready(answer)
            }
            Answer::Pending(answer) => Answer::pending(async move {
                let answer = answer.await;
                returning.hear(answer.as_ref().ok(), false);
                answer
            }),
        }
    }

    /// Takes out of the adjustments what grants waiters their turn.
    fn grant_waiters(&self, adjustments: &mut [Adjustment<'_>]) {
        let mut queues = Vec::<Arc<SharedQueue>>::new();
        for adjustment in adjustments.iter().filter(|one| one.change().returns_at_most() > 0) {
            for queue in self.ledgers.get(adjustment.id()).queues() {
                if !queues.iter().any(|known| Arc::ptr_eq(known, &queue)) {
                    queues.push(queue);
                }
            }
        }
        for queue in queues {
            let parts = queue.whose().parts().iter();
            let Some(places) = parts.map(|part| place_of(part, adjustments)).collect() else {
                continue;
            };
            let places: SmallVec<[usize; 2]> = places;
            let now = queue.now();
            let covers = |cost: &UnitVec, adjustments: &[Adjustment<'_>], at| {
                let mut parts = places.iter().zip(cost.as_slice());
                parts.all(|(&place, &units)| {
                    let adjustment = adjustments.get(place);
                    adjustment.is_some_and(|one| units <= returned_surely(one, at))
                })
            };
            while let Some(cost) = queue.with(|line, wakers| {
                let at = line.clock.shows(now);
                line.grant_returned(|cost| covers(cost, adjustments, at), now, wakers)
            }) {
                for (&place, &units) in places.iter().zip(cost.as_slice()) {
                    if let Some(adjustment) = adjustments.get_mut(place) {
                        let change = adjustment.change().returning_less(units);
                        *adjustment = adjustment.with_change(change);
                    }
                }
            }
            queue.undo_free_slots();
        }
    }
}

impl SharedQueue {
    /// Gives back what a waiter was granted of returned units and has not used.
    pub(super) fn give_back(&self, units: &UnitVec) {
        let parts = self.whose().parts().iter().zip(units.as_slice());
        let mut refunds: SmallVec<[Adjustment<'_>; 2]> = parts
            .map(|(part, &units)| Adjustment::refund(part.id(), part.bucket(), units))
            .collect();
        if let Some(registry) = self.registry.upgrade() {
            // The store completes it by itself.
            drop(DetachOnDrop::new(registry.give_back(&mut refunds)));
        }
    }
}

/// The adjustment that returns units to this bucket.
fn place_of(part: &QueueBucket, adjustments: &[Adjustment<'_>]) -> Option<usize> {
    adjustments.iter().position(|one| {
        one.id() == part.id() && one.bucket() == part.bucket() && one.change().returns_at_most() > 0
    })
}

/// How much an adjustment returns, if that does not depend on the store's time. (A late refund is
/// less the more the bucket has gained; what is left of one could be too much otherwise.)
fn returned_surely(adjustment: &Adjustment<'_>, at: Timestamp) -> Units {
    let (change, bucket) = (adjustment.change(), adjustment.bucket());
    let most = change.returns_at_most();
    if change.returns(bucket, at + LEEWAY) < most { 0 } else { most }
}

/// By how much the store's clock may be ahead of what is known.
const LEEWAY: Duration = Duration::from_secs(1);

/// Returns that the store was asked for.
struct Returning {
    registry: Weak<QueueRegistry>,
    /// Empty once the answer was heard.
    returns: SmallVec<[Return; 2]>,
}

struct Return {
    ledger: Arc<Ledger<SharedQueue>>,
    bucket: Bucket,
    change: Change,
    /// What the ledger was told.
    units: Units,
}

impl Returning {
    fn hear(&mut self, answer: Option<&Applied>, at_once: bool) {
        let returns = std::mem::take(&mut self.returns);
        let registry = self.registry.upgrade();
        for Return { ledger, bucket, change, units, .. } in &returns {
            let number = registry.as_ref().map_or(0, |registry| registry.number());
            let thread = at_once.then(|| std::thread::current().id());
            let returned = answer.map(|applied| {
                let is_made = applied.verdict() != Verdict::Refused;
                let returned = if is_made { change.returns(bucket, applied.now()) } else { 0 };
                (StoreEvent { at: applied.now(), number, thread }, returned)
            });
            ledger.hear(*units, returned, number);
        }
        let queues = returns.iter().flat_map(|one| one.ledger.queues());
        queues.for_each(|queue| queue.returned());
    }
}

/// Not heard, as the runtime has gone or the store's client has panicked.
impl Drop for Returning {
    fn drop(&mut self) {
        self.hear(None, false);
    }
}
