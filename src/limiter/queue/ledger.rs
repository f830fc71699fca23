//! What this process has returned to a bucket, so that it is not mistaken for a charge.
//!
//! # Design
//!
//! A reservation can be undone while no process has charged its bucket since. The bucket then holds
//! what the reservation left, and what was returned since. The store compares; this process keeps
//! count of its own returns.
//!
//! The count must never be too small: a return that is left out could hide a charge of as many
//! units. So a return counts from when the store is asked, in full, until the answer tells how much
//! it was and when; one whose answer stays away counts for all reservations of the next minute too.
//! A count that is too large only spends a slot that could have been undone.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::retries::Retries;
use super::time_slot::StoreEvent;
use crate::algebra::Units;
use crate::backend::BucketId;
use crate::clock::Timestamp;

/// The returns to one bucket, and the queues `Q` on it that are to be tried once more.
#[derive(Debug)]
pub(super) struct Ledger<Q> {
    returns: Mutex<Returns>,
    retries: Mutex<Retries<Q>>,
}

#[derive(Debug, Default)]
struct Returns {
    listed: VecDeque<(StoreEvent, Units)>,
    /// No return that is not listed came after this.
    forgotten: Option<Timestamp>,
    /// What the store was asked to return and has not answered, at most.
    pending: Units,
    /// The latest time of the store that is known.
    latest: Option<Timestamp>,
}

/// How many returns are listed. A reservation with more of them behind it is not undone.
const MAX_RETURNS: usize = 1_024;

/// How long a store may take to carry out what it did not answer.
const MAX_DELAY: Duration = Duration::from_secs(60);

impl<Q> Ledger<Q> {
    /// Hears that a reservation was made then.
    pub(super) fn record_reservation(&self, at: Timestamp) {
        let mut returns = lock(&self.returns);
        returns.latest = returns.latest.max(Some(at));
    }

    /// The store is asked to return this.
    pub(super) fn begin_return(&self, units: Units) {
        let mut returns = lock(&self.returns);
        returns.pending = returns.pending.saturating_add(units);
    }

    /// Hears what became of the units `asked`; nothing if the answer stayed away.
    pub(super) fn end_return(
        &self,
        asked: Units,
        returned: Option<(StoreEvent, Units)>,
        number: u64,
    ) {
        let mut returns = lock(&self.returns);
        returns.pending = returns.pending.saturating_sub(asked);
        let (event, units) = returned.unwrap_or_else(|| {
            let end = Timestamp::from_micros(i64::MAX);
            let at = returns.latest.map_or(end, |latest| latest + MAX_DELAY);
            (StoreEvent { at, number, thread: None }, asked)
        });
        if returned.is_some() {
            returns.latest = returns.latest.max(Some(event.at));
        }
        returns.listed.push_back((event, units));
        if returns.listed.len() > MAX_RETURNS
            && let Some((oldest, _)) = returns.listed.pop_front()
        {
            returns.forgotten = returns.forgotten.max(Some(oldest.at));
        }
    }

    /// What was returned since a reservation, at most; none if that is not known any more.
    pub(super) fn returned_since(&self, made: &StoreEvent) -> Option<Units> {
        let returns = lock(&self.returns);
        if returns.forgotten.is_some_and(|forgotten| made.at <= forgotten) {
            return None;
        }
        let since = returns.listed.iter().filter(|(event, _)| !event.is_before(made));
        Some(since.fold(returns.pending, |all, (_, units)| all.saturating_add(*units)))
    }

    /// The bucket is reset: what was reserved before that is not undone any more.
    pub(super) fn forget(&self) {
        let mut returns = lock(&self.returns);
        returns.forgotten = returns.forgotten.max(returns.latest);
    }

    /// Whether the store was asked to return something and has not answered.
    pub(super) fn has_pending_return(&self) -> bool {
        lock(&self.returns).pending > 0
    }

    /// The queues on the bucket whose free slots could not be undone.
    pub(super) fn retries(&self) -> MutexGuard<'_, Retries<Q>> {
        lock(&self.retries)
    }

    fn latest_return(&self) -> Option<Timestamp> {
        let returns = lock(&self.returns);
        let heard = returns.listed.iter().map(|(event, _)| event.at).max();
        heard.max(returns.forgotten)
    }
}

/// The ledgers of all buckets that something was returned to of late, or that have a queue.
#[derive(Debug)]
pub(super) struct Ledgers<Q> {
    /// By a hash of the bucket's name. Two that share a ledger by chance only spend slots.
    map: Mutex<LedgerMap<Q>>,
    hasher: RandomState,
}

#[derive(Debug)]
struct LedgerMap<Q> {
    ledgers: HashMap<u64, Arc<Ledger<Q>>>,
    forgotten: Option<Timestamp>,
    /// With how many to look for those that are not used any more.
    sweep: usize,
}

/// How many ledgers are kept at least before those are dropped that are not used.
const MIN_LEDGERS: usize = 1_024;

impl<Q> Default for Ledgers<Q> {
    fn default() -> Self {
        let map = LedgerMap { ledgers: HashMap::new(), forgotten: None, sweep: MIN_LEDGERS };
        Self { map: Mutex::new(map), hasher: RandomState::new() }
    }
}

impl<Q> Ledgers<Q> {
    /// The ledger of a bucket, which is kept while it is held.
    pub(super) fn get(&self, id: BucketId<'_>) -> Arc<Ledger<Q>> {
        let key = self.hasher.hash_one(id);
        let mut map = lock(&self.map);
        if let Some(known) = map.ledgers.get(&key) {
            return Arc::clone(known);
        }
        if map.ledgers.len() >= map.sweep {
            map.sweep();
        }
        let returns = Returns { forgotten: map.forgotten, ..Returns::default() };
        let ledger = Ledger { returns: Mutex::new(returns), retries: Mutex::default() };
        let ledger = Arc::new(ledger);
        map.ledgers.insert(key, Arc::clone(&ledger));
        ledger
    }
}

impl<Q> LedgerMap<Q> {
    /// Drops what is neither waited for nor asked for.
    fn sweep(&mut self) {
        let forgotten = &mut self.forgotten;
        self.ledgers.retain(|_, ledger| {
            let is_used = Arc::strong_count(ledger) > 1;
            if !is_used {
                *forgotten = (*forgotten).max(ledger.latest_return());
            }
            is_used
        });
        self.sweep = self.ledgers.len().saturating_mul(2).max(MIN_LEDGERS);
    }
}

/// What a lock guards is never left half changed by anything that can panic, so that a panic
/// elsewhere in the holder's thread does no harm here.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
