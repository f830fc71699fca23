//! Returns the tokens of settlements and refunds: to the waiters of this process first, and the
//! rest to the store.
//!
//! # Design
//!
//! A waiter gets its turn by returned units only if they cover its cost in *all* buckets of its
//! queue. Its own slot is then free, as if it had left. The units never reach the store, so no
//! newcomer can take them first.
//!
//! For example, the first waiter costs 3 and the second 1. A return of 2 does not cover the first
//! waiter, so all of it goes to the store: the second waiter must not overtake. A return of 4
//! grants both.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::ledger::Ledger;
use super::registry::{QueueRegistry, SharedQueue};
use super::reserved_slot::QueueBucket;
use super::time_slot::{Cost, StoreEvent, TimeSlot};
use crate::algebra::{Bucket, State, Units, Verdict};
use crate::backend::{Adjustment, Answer, Applied, BucketId, Change, Reading, ResetMark};
use crate::clock::Timestamp;
use crate::limiter::detached::{DetachOnDrop, noted};
use crate::limiter::lock::lock;

impl QueueRegistry {
    /// Carries out these adjustments. Returned units grant the first waiter on their buckets if
    /// they cover its cost, then the next one. What is left goes to the store, which answers.
    ///
    /// The ledgers count the returns from before the store is asked, so that an undo at the same
    /// time never takes them for too little.
    pub(crate) fn give_back(
        self: &Arc<Self>,
        adjustments: &mut [Adjustment<'_>],
    ) -> Answer<Applied> {
        // Before the store is asked. Units that had reached the bucket could be taken by a newcomer
        // of any process, ahead of the waiters here.
        self.grant_waiters(adjustments);
        self.give_to_store(adjustments)
    }

    /// Carries out these adjustments, of which no waiter gets anything.
    fn give_to_store(self: &Arc<Self>, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        let (registry, mut returns) = (Arc::downgrade(self), SmallVec::<[PendingReturn; 2]>::new());
        for adjustment in adjustments.iter() {
            let units = adjustment.change().returns_at_most();
            if units > 0 {
                let ledger = lock(&self.ledgers).get(adjustment.id());
                // At its most, whatever the store will say, and before it is asked: an undo of
                // another thread that reads the ledger from here on expects at least what the
                // bucket holds.
                lock(&ledger).begin_return(units);
                returns.push((ledger, *adjustment.bucket(), adjustment.change()));
            }
        }
        noted(
            || self.backend.adjust(adjustments),
            move |answer, at_once| end_returns(registry.upgrade(), &returns, answer, at_once),
        )
    }

    /// Grants the first waiters what the adjustments return, and deducts it from these.
    fn grant_waiters(&self, adjustments: &mut [Adjustment<'_>]) {
        let mut buckets = SmallVec::<[BucketId<'_>; 4]>::new();
        for adjustment in adjustments.iter().filter(|one| one.change().returns_at_most() > 0) {
            // Each bucket once, as each doubles the number of look-ups.
            if !buckets.contains(&adjustment.id()) {
                buckets.push(adjustment.id());
            }
        }
        let mark = self.resets.mark();
        let queues = lock(&self.queues).find_subsets(&buckets);
        for queue in queues {
            let parts = queue.buckets.iter();
            // A queue is skipped if one of its buckets gets nothing back. That also skips queues
            // that were only found because hashes collide, and those on the same name with another
            // quota.
            let Some(indices) = parts.map(|part| adjustment_index(part, adjustments)).collect()
            else {
                continue;
            };
            let indices: SmallVec<[usize; 2]> = indices;
            let now = Instant::now();
            let returned = |cost: &Cost, adjustments: &[Adjustment<'_>], at| {
                let parts = indices.iter().zip(cost).map(|(&index, &units)| {
                    let one = adjustments.get(index)?;
                    (units <= certain_return(one, at)).then(|| paid(one, units, mark))
                });
                parts.collect()
            };
            // One waiter for each time the queue is locked. What it takes is deducted before the
            // next is looked at, so no unit is granted twice; only this call knows of these units,
            // so no other thread can.
            while let Some(cost) = queue.with(|waiters| {
                waiters.grant_returned(|cost, at| returned(cost, adjustments, at), now)
            }) {
                for (&index, &units) in indices.iter().zip(&cost) {
                    if let Some(adjustment) = adjustments.get_mut(index) {
                        // `returned` has compared each part with its adjustment, so the rest is not
                        // below zero.
                        let change = adjustment.change().returning_less(units);
                        let unpaid = adjustment.unpaid().saturating_sub(units).max(0);
                        *adjustment = adjustment.with_change(change).with_unpaid(unpaid);
                    }
                }
            }
            queue.undo_free_slots();
        }
    }
}

impl SharedQueue {
    /// Returns the units that a waiter was granted and has not used, but for what a reset has forgiven.
    pub(super) fn give_back(&self, unused: &[Reading]) {
        let parts = self.buckets.iter().zip(unused);
        let parts =
            parts.filter(|(part, taken)| !self.resets.has_forgiven(part.id(), taken.mark()));
        let mut refunds: SmallVec<[Adjustment<'_>; 2]> = parts
            .map(|(part, taken)| {
                let units = taken.units();
                let refund = Adjustment::refund(part.id(), part.bucket(), units);
                refund.with_unpaid(taken.unpaid().of(units))
            })
            .collect();
        if let Some(registry) = self.registry.upgrade().filter(|_| !refunds.is_empty()) {
            // Not awaited: it completes in a task if the store answers later.
            drop(DetachOnDrop::new(registry.give_back(&mut refunds)));
        }
    }

    /// Returns what this slot has in flight: no work runs by it, and no instant depends on it.
    ///
    /// To the store alone if it was a debt: no waiter may run by that.
    pub(super) fn end_in_flight(&self, slot: &TimeSlot) {
        let parts = self.buckets.iter().zip(&slot.taken);
        let ended = parts.filter(|(part, taken)| {
            part.is_in_flight() && !self.resets.has_forgiven(part.id(), taken.mark())
        });
        let mut refunds: SmallVec<[Adjustment<'_>; 2]> = ended
            .map(|(part, taken)| {
                let (units, left) = (taken.units(), taken.state());
                let refund = Adjustment::refund_since(part.id(), part.bucket(), units, left);
                refund.with_unpaid(taken.unpaid().of(units))
            })
            .collect();
        if let Some(registry) = self.registry.upgrade().filter(|_| !refunds.is_empty()) {
            let was_there = slot.taken.iter().all(|taken| taken.state().value >= 0);
            drop(DetachOnDrop::new(match was_there {
                true => registry.give_back(&mut refunds),
                false => registry.give_to_store(&refunds),
            }));
        }
    }
}

/// The position of the adjustment that returns units to this bucket.
///
/// Work in flight may have been admitted by other numbers. It makes place all the same, and nothing
/// else does.
fn adjustment_index(part: &QueueBucket, adjustments: &[Adjustment<'_>]) -> Option<usize> {
    let counts_like = |other: &Bucket| {
        part.bucket() == other || (part.is_in_flight() && part.bucket().token() == other.token())
    };
    adjustments.iter().position(|one| {
        one.id() == part.id() && counts_like(one.bucket()) && one.change().returns_at_most() > 0
    })
}

/// So many units of an adjustment, as they were paid: first those that a local store has not paid.
fn paid(one: &Adjustment<'_>, units: Units, mark: ResetMark) -> Reading {
    let state = State { value: 0, ts: Timestamp::UNIX_EPOCH };
    let reading = Reading::new(Verdict::Admitted, state, Duration::ZERO).taking(units);
    reading.with_receipt(one.receipt()).with_mark(mark)
}

/// The units that an adjustment returns whenever the store carries it out, or zero.
///
/// A late refund returns less the more the bucket has gained meanwhile. If it granted a waiter now,
/// the rest could be more than the store would return.
fn certain_return(adjustment: &Adjustment<'_>, at: Timestamp) -> Units {
    let (change, bucket) = (adjustment.change(), adjustment.bucket());
    let most = change.returns_at_most();
    if change.returns(bucket, at + CLOCK_MARGIN) < most { 0 } else { most }
}

/// How far the store's clock may be ahead of what this process knows.
const CLOCK_MARGIN: Duration = Duration::from_secs(1);

/// A return to a bucket. The ledger counts it at its most until it is answered.
type PendingReturn = (Arc<Mutex<Ledger<SharedQueue>>>, Bucket, Change);

/// Records the store's answer about these returns, or that none comes.
fn end_returns(
    registry: Option<Arc<QueueRegistry>>,
    returns: &[PendingReturn],
    answer: Option<&Applied>,
    at_once: bool,
) {
    let heard = Instant::now();
    for (ledger, bucket, change) in returns {
        let number = registry.as_ref().map_or(0, |registry| registry.number());
        let thread = at_once.then(|| std::thread::current().id());
        // A refusal returned nothing, but its answer is as good as one of zero: the ledger stops
        // counting the most.
        let returned = answer.map(|applied| {
            let is_made = applied.verdict() != Verdict::Refused;
            let returned = if is_made { change.returns(bucket, applied.now()) } else { 0 };
            (StoreEvent { at: applied.now(), number, thread, heard }, returned)
        });
        lock(ledger).end_return(change.returns_at_most(), returned, heard);
    }
    // After all ledgers have the answers: a queue on two of these buckets would otherwise ask with
    // the one number too large, and be refused again.
    let queues = returns.iter().flat_map(|(ledger, ..)| lock(ledger).take_awaiting());
    queues.for_each(|queue| queue.retry_undo());
}
