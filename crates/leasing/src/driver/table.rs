//! What a node remembers of its leased buckets, in bounded memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use siphasher::sip::SipHasher13;
use tokio::sync::Notify;

use super::super::node::LeaseNode;
use super::super::terms::LeaseTerms;
use tollgate::backend::{BackendError, Key};
use tollgate::clock::Timestamp;
use tollgate_kit::hashed::PrehashedMap;

/// A leased bucket.
#[derive(Debug)]
pub(super) struct LeaseRecord {
    /// Which of the leased limits.
    pub(super) limit: usize,
    pub(super) key: Key,
    pub(super) terms: LeaseTerms,
    pub(super) node: LeaseNode,
    /// The callers that wait for the answer to a question.
    pub(super) answered: Option<Arc<Notify>>,
    /// Why the last question failed.
    pub(super) error: Option<BackendError>,
    /// When its lots are looked at. The entry of that instant in the part's heap is the one that
    /// counts.
    look: Option<Timestamp>,
}

/// The records, in parts that are locked by themselves.
#[derive(Debug)]
pub(super) struct LeaseTable {
    parts: Box<[Mutex<TablePart>]>,
    hash_keys: [u64; 2],
    /// How many records a part has at most.
    room: usize,
}

#[derive(Debug)]
pub(super) struct TablePart {
    // Boxed, so that a map that grows moves little.
    records: PrehashedMap<u64, Box<LeaseRecord>>,
    /// When to look at the lots of which records, which are named by their hashes. A record whose
    /// lots have nothing to give back is not in it.
    looks: BinaryHeap<Reverse<(Timestamp, u64)>>,
    /// When idle records were last removed.
    swept: Timestamp,
    /// When a lot of a record that was removed has last paid.
    forgotten: Option<Timestamp>,
}

/// Enough that threads rarely meet, few enough that each has room.
const PARTS: usize = 64;

/// How often idle records are removed from a full part, in microseconds.
const SWEEP_EVERY: u64 = 100_000;

/// Where a bucket is in the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeasePlace {
    limit: usize,
    hash: u64,
}

impl LeaseTable {
    pub(super) fn new(max_keys: usize) -> Self {
        let part = || TablePart {
            records: PrehashedMap::default(),
            looks: BinaryHeap::new(),
            swept: Timestamp::from_micros(i64::MIN),
            forgotten: None,
        };
        let random = RandomState::new();
        Self {
            parts: (0..PARTS.min(max_keys.max(1))).map(|_| Mutex::new(part())).collect(),
            hash_keys: [random.hash_one(0_u8), random.hash_one(1_u8)],
            room: (max_keys / PARTS.min(max_keys.max(1))).max(1),
        }
    }

    /// The place of a bucket. Clients cannot predict the hash.
    #[inline]
    pub(super) fn place(&self, limit: usize, key: &Key) -> LeasePlace {
        let [one, other] = self.hash_keys;
        let mut hasher = SipHasher13::new_with_keys(one, other);
        hasher.write_usize(limit);
        hasher.write(key.as_bytes());
        LeasePlace { limit, hash: hasher.finish() }
    }

    /// Locks the part of a bucket; `None` if there is none, which does not happen.
    #[inline]
    pub(super) fn part(&self, place: LeasePlace) -> Option<MutexGuard<'_, TablePart>> {
        let count = u64::try_from(self.parts.len()).unwrap_or(1);
        // The upper bits: the map goes by the lower ones.
        let nth = (place.hash >> 32).checked_rem(count).unwrap_or(0);
        self.parts.get(usize::try_from(nth).unwrap_or(0)).map(lock)
    }

    /// All parts, one after the other.
    pub(super) fn parts(&self) -> impl Iterator<Item = MutexGuard<'_, TablePart>> {
        self.parts.iter().map(lock)
    }

    pub(super) const fn room(&self) -> usize {
        self.room
    }
}

/// Wakes callers that wait for an answer. Their wakers are code of others: no lock may be held.
pub(super) fn wake(waiting: Option<Arc<Notify>>) {
    waiting.as_deref().inspect(|waiting| Notify::notify_waiters(waiting));
}

/// A poisoned lock is harmless: nothing panics while it is held, except without memory.
#[inline]
fn lock(part: &Mutex<TablePart>) -> MutexGuard<'_, TablePart> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TablePart {
    /// The record of a bucket.
    #[inline]
    pub(super) fn find(&mut self, place: LeasePlace, key: &Key) -> Option<&mut LeaseRecord> {
        let record = self.records.get_mut(&place.hash)?;
        // Two keys of one hash do not happen. If they did, one of them would not be leased.
        (record.limit == place.limit && record.key == *key).then_some(&mut **record)
    }

    /// Makes the record of a bucket that has none. `None` if there is no room for it.
    pub(super) fn add(
        &mut self,
        place: LeasePlace,
        key: &Key,
        terms: LeaseTerms,
        room: usize,
        now: Timestamp,
    ) -> Option<&mut LeaseRecord> {
        if self.records.len() >= room {
            self.sweep(now);
        }
        if self.records.len() >= room || self.records.contains_key(&place.hash) {
            return None;
        }
        let record = LeaseRecord {
            limit: place.limit,
            key: key.clone(),
            terms,
            node: LeaseNode::new(&terms, now, place.hash),
            answered: None,
            error: None,
            look: None,
        };
        Some(self.records.entry(place.hash).or_insert_with(|| Box::new(record)))
    }

    /// Removes the records of buckets that are hardly used: they are not leased anyway.
    fn sweep(&mut self, now: Timestamp) {
        if now.micros_since(self.swept) < SWEEP_EVERY {
            return;
        }
        self.swept = now;
        let forgotten = &mut self.forgotten;
        self.records.retain(|_, record| {
            let is_idle = record.node.is_idle(&record.terms, now) && record.answered.is_none();
            if is_idle {
                *forgotten = record.node.last_paid().max(*forgotten);
            }
            !is_idle
        });
    }

    /// When a lot of a record that was removed has last paid.
    pub(super) const fn forgotten(&self) -> Option<Timestamp> {
        self.forgotten
    }

    /// Sees to it that the lots of a record are looked at, if some of them may go back.
    pub(super) fn plan_look(&mut self, place: LeasePlace, now: Timestamp) {
        let Some(record) = self.records.get_mut(&place.hash) else { return };
        let Some(look) = record.node.next_look(&record.terms, now) else { return };
        if record.look.is_none_or(|planned| look < planned) {
            record.look = Some(look);
            self.looks.push(Reverse((look, place.hash)));
        }
    }

    /// Looks at the lots of all records for which it is time. Returns how many these are.
    pub(super) fn look(
        &mut self,
        now: Timestamp,
        mut look_at: impl FnMut(&mut LeaseRecord),
    ) -> usize {
        let mut count = 0_usize;
        while let Some(Reverse((look, hash))) = self.looks.peek().copied()
            && look <= now
        {
            self.looks.pop();
            // Otherwise the record was removed, or is looked at some other time.
            let record = self.records.get_mut(&hash);
            let Some(record) = record.filter(|record| record.look == Some(look)) else { continue };
            count = count.saturating_add(1);
            look_at(record);
            record.look = record.node.next_look(&record.terms, now).filter(|next| *next > now);
            self.looks.extend(record.look.map(|next| Reverse((next, hash))));
        }
        count
    }

    /// Whether there are lots to look at later.
    pub(super) fn has_looks(&self) -> bool {
        !self.looks.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }
}
