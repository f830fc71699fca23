//! The buckets whose rows hold up, or fail, each call that names them.
//!
//! # Design
//!
//! A call names many buckets, so one row that another transaction has locked would keep all clients
//! waiting. So calls for all wait for a lock only a moment. Then the server tells which rows are the
//! cause, and for a while the jobs that name these buckets are *aside*: each bucket has a slot of its
//! own, and its calls wait as long as callers do. The other jobs of the call are sent again at once.
//! Calls for a bucket that is aside hold no other row while they wait.
//!
//! A disk that is full has no room for new rows, and lets those change that are there. A call is one
//! transaction, so one new row fails it as a whole. So while the disk is full, the jobs that may need
//! a new row are *new*: they have one slot of their own. The rows that are there are known, since
//! calls have found them. Of calls for several new ones, one in a while tries: each that finds room
//! takes it from a row that is there, which needs some to change.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use tollgate::backend::BackendError;
use tollgate_kit::hashed::PrehashedMap;
use tollgate_kit::key_name::KeyName;
use tollgate_kit::operation::NamedOperation;

/// The slot of all jobs that are not aside.
pub(super) const COMMON: u16 = 0;

/// The slots of those that are. They are a group of the queues.
const FIRST: u16 = 64;
const SLOTS: u16 = 64;

/// The slot of jobs that may need a new row, while there is no room for one.
pub(super) const NEW: u16 = FIRST + SLOTS;

/// How many buckets can be aside, and how many rows are known. If those aside are more than the slots,
/// several share one. At this bound a list is cleared, and later calls fill it again.
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
    /// The buckets whose rows calls have found.
    known: PrehashedMap<u64, ()>,
    /// When the disk was last full, and the error of that.
    full: Option<(Instant, BackendError)>,
    /// When the last of all these is over.
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

/// How often calls for several new rows try whether a disk is still full.
const TRIED_EVERY: Duration = Duration::from_millis(100);

impl Rows {
    /// How long ago the disk was last full.
    fn full_for(&self) -> Option<Duration> {
        self.full.as_ref().map(|(at, _)| at.elapsed())
    }
}

impl Aside {
    pub(super) fn new(lasts: Duration) -> Self {
        Self { is_used: AtomicBool::default(), rows: Mutex::default(), lasts }
    }

    /// The slot of an operation: that of the bucket by which calls for it fail.
    pub(super) fn slot(&self, operation: &NamedOperation) -> u16 {
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
        if let Some(row) = worst {
            return row.slot;
        }
        let is_full = rows.full_for().is_some_and(|time| time < self.lasts);
        let is_known = |name: &KeyName| rows.known.contains_key(&name.own_hash());
        if is_full && !names.iter().all(is_known) { NEW } else { COMMON }
    }

    /// Notes that the rows of these buckets are there.
    pub(super) fn note_found(&self, buckets: impl Iterator<Item = u64>) {
        let known = &mut self.rows().known;
        for bucket in buckets {
            if known.len() >= MOST {
                known.clear();
            }
            known.insert(bucket, ());
        }
    }

    /// Notes that a call for these buckets has failed by a full disk. Those of them that are there are
    /// [noted](Self::note_found) after this.
    pub(super) fn note_full(&self, buckets: impl Iterator<Item = u64>, error: &BackendError) {
        let (now, mut rows) = (Instant::now(), self.rows());
        buckets.for_each(|bucket| _ = rows.known.remove(&bucket));
        rows.full = Some((now, error.clone()));
        rows.until = rows.until.max(now.checked_add(self.lasts));
        self.is_used.store(true, Ordering::Relaxed);
    }

    /// The error of a disk that was full just now, so that a call for several new rows need not try.
    pub(super) fn just_full(&self) -> Option<BackendError> {
        let rows = self.rows();
        let is_new = rows.full_for().is_some_and(|time| time < TRIED_EVERY);
        rows.full.as_ref().filter(|_| is_new).map(|(_, error)| error.clone())
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
        rows.until = rows.until.max(Some(until));
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

    /// Whether it is the slot of buckets that are aside.
    pub(super) fn is_aside(slot: u16) -> bool {
        slot != COMMON && slot != NEW
    }

    /// A poisoned lock is harmless: nothing panics while it is held, except without memory.
    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use tollgate::backend::{BucketId, Key};
    use tollgate_kit::key_name::KeyNames;
    use tollgate_kit::operation::Operation;

    const LASTS: Duration = Duration::from_secs(1);

    fn operation(keys: &[&str]) -> NamedOperation {
        let names = KeyNames::untagged("tollgate".to_owned(), None).unwrap();
        let keys: Vec<_> = keys.iter().map(|key| Key::from(*key)).collect();
        let ids: Vec<_> = keys.iter().map(|key| BucketId::new("l", key)).collect();
        NamedOperation::new(Operation::resets(&ids), &names)
    }

    fn full() -> BackendError {
        BackendError::full("postgres", "no room")
    }

    fn hashes(keys: &[&str]) -> Vec<u64> {
        operation(keys).names().iter().map(|name| name.own_hash()).collect()
    }

    /// One new key failed the call for all, which were then sent again one by one: one call in a hundred
    /// took 0.1 s.
    #[tokio::test(start_paused = true)]
    async fn while_the_disk_is_full_what_may_need_a_new_row_is_apart() {
        let aside = Aside::new(LASTS);
        aside.note_found(hashes(&["alice", "bob"]).into_iter());
        assert_eq!(aside.slot(&operation(&["made up"])), COMMON);
        aside.note_full(hashes(&["made up", "bob"]).into_iter(), &full());
        let slots = || {
            let all: [&[&str]; 4] = [&["alice"], &["bob"], &["made up"], &["alice", "made up"]];
            all.map(|keys| aside.slot(&operation(keys)))
        };
        // The call that has failed named bob, whose row may be gone.
        assert_eq!(slots(), [COMMON, NEW, NEW, NEW]);
        aside.note_found(hashes(&["bob"]).into_iter());
        assert_eq!(slots(), [COMMON, COMMON, NEW, NEW]);
        assert!([COMMON, NEW].iter().all(|slot| !Aside::is_aside(*slot)));
        assert!(aside.just_full().is_some_and(|error| error.is_full()));
        advance(TRIED_EVERY).await;
        assert!(aside.just_full().is_none());
        assert_eq!(slots(), [COMMON, COMMON, NEW, NEW]);
        advance(LASTS).await;
        assert_eq!(slots(), [COMMON; 4]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_locked_row_on_a_full_disk_is_waited_for_in_its_own_slot() {
        let aside = Aside::new(LASTS);
        aside.note_full(hashes(&["locked"]).into_iter(), &full());
        let locked = operation(&["locked", "made up"]);
        aside.note(&locked.names()[0], true);
        assert!(Aside::is_aside(aside.slot(&locked)));
    }

    #[test]
    fn the_known_rows_are_bounded() {
        let aside = Aside::new(LASTS);
        for bucket in 0..3 * MOST {
            aside.note_found(std::iter::once(bucket as u64));
        }
        assert!(aside.rows().known.len() <= MOST);
    }
}
