//! The buckets whose rows hold up, or fail, each call that names them.
//!
//! # Design
//!
//! A call names many buckets, so one row that another transaction has locked would keep all clients
//! waiting. So calls for all wait for a lock only a moment. Then the server tells which rows are the
//! cause, and for a while the jobs that name these buckets are *aside*: each bucket has a slot of its
//! own, and its calls wait as long as callers do. The other jobs of the call are sent again at once.
//! Calls for a bucket that is aside hold no other row while they wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::backend::hashed::PrehashedMap;
use crate::backend::remote::key_name::KeyName;
use crate::backend::remote::operation::Operation;

/// The slot of all jobs that are not aside.
pub(super) const COMMON: u16 = 0;

/// The slots of those that are. They are a group of the queues.
const FIRST: u16 = 64;
const SLOTS: u16 = 64;

/// How many buckets can be aside. If they are more than the slots, several share one. At this bound the
/// list is cleared, and failing calls fill it again.
const MOST: usize = 16_384;

/// The hashes of the buckets of a job.
pub(super) type BucketHashes = SmallVec<[u64; 1]>;

/// The buckets that are aside.
#[derive(Debug)]
pub(super) struct Aside {
    /// Whether some may be. Nearly always, none are.
    is_used: AtomicBool,
    rows: Mutex<Rows>,
    /// How long a bucket is aside after a call has failed by it.
    lasts: Duration,
}

#[derive(Debug, Default)]
struct Rows {
    buckets: PrehashedMap<u64, Row>,
    /// When the last of them is no longer aside.
    until: Option<Instant>,
    /// When a lock of the whole table no longer counts.
    table_until: Option<Instant>,
    next: u16,
}

#[derive(Debug)]
struct Row {
    slot: u16,
    until: Instant,
    is_locked: bool,
}

impl Aside {
    pub(super) fn new(lasts: Duration) -> Self {
        Self { is_used: AtomicBool::default(), rows: Mutex::default(), lasts }
    }

    /// The slot of an operation: that of the bucket by which calls for it fail.
    pub(super) fn slot(&self, operation: &Operation) -> u16 {
        if !self.is_used.load(Ordering::Relaxed) {
            return COMMON;
        }
        let (now, mut rows) = (Instant::now(), self.rows());
        if rows.until.is_none_or(|until| until <= now) {
            rows.buckets.clear();
            self.is_used.store(false, Ordering::Relaxed);
            return COMMON;
        }
        let names = operation.names();
        let aside = names.iter().filter_map(|name| rows.buckets.get(&name.own_hash()));
        // A lock may be gone the next moment, unlike other faults.
        let worst = aside.filter(|row| row.until > now);
        let worst = worst.max_by_key(|row| (!row.is_locked, row.until, row.slot));
        worst.map_or(COMMON, |row| row.slot)
    }

    /// Notes that a call has failed by this bucket, and whether its row was locked.
    pub(super) fn note(&self, name: &KeyName, is_locked: bool) {
        let (now, mut rows) = (Instant::now(), self.rows());
        let until = now.checked_add(self.lasts).unwrap_or(now);
        let Rows { buckets, next, .. } = &mut *rows;
        if buckets.len() >= MOST {
            buckets.retain(|_, row| row.until > now);
            if buckets.len() >= MOST {
                buckets.clear();
            }
        }
        let row = buckets.entry(name.own_hash()).or_insert_with(|| {
            *next = next.wrapping_add(1);
            Row { slot: FIRST.saturating_add(*next % SLOTS), until, is_locked }
        });
        (row.until, row.is_locked) = (until, is_locked);
        rows.until = Some(until);
        self.is_used.store(true, Ordering::Relaxed);
    }

    /// Notes that the whole table is locked.
    pub(super) fn note_table(&self) {
        self.rows().table_until = Instant::now().checked_add(self.lasts);
    }

    /// Whether a job on these buckets is late because of a lock.
    pub(super) fn is_locked(&self, buckets: &BucketHashes) -> bool {
        let (now, rows) = (Instant::now(), self.rows());
        let lately = |row: &Row| row.is_locked && row.until > now;
        rows.table_until.is_some_and(|until| until > now)
            || buckets.iter().any(|bucket| rows.buckets.get(bucket).is_some_and(lately))
    }

    /// A poisoned lock is harmless: nothing panics while it is held, except without memory.
    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
