//! All lines of a limiter, found by the bucket that they wait for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use tokio::time::Instant;

use super::line::{Line, Ticket};
use super::place::{Order, Place};
use super::wakers::Wakers;
use crate::algebra::{Bucket, State};
use crate::backend::{BucketId, Key};
use crate::clock::Timestamp;
use crate::limiter::Limit;

/// Whose bucket it is. Numbers are part of it: a place is worth nothing under other ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Whose {
    pub(crate) limit: Limit,
    pub(crate) key: Key,
}

impl Whose {
    pub(crate) fn id(&self) -> BucketId<'_> {
        BucketId::new(self.limit.name(), &self.key)
    }

    pub(crate) const fn bucket(&self) -> &Bucket {
        self.limit.bucket()
    }
}

impl std::hash::Hash for Whose {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.limit.name().hash(state);
        self.key.hash(state);
        self.bucket().hash(state);
    }
}

/// The lines in which somebody waits.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    open: Mutex<HashMap<Whose, Arc<Entrance>>>,
    /// After which nobody is to wait.
    end: Mutex<Option<Instant>>,
    numbers: AtomicU64,
}

/// A line and its name, shared by those who stand in it.
#[derive(Debug)]
pub(super) struct Entrance {
    pub(super) whose: Whose,
    line: Mutex<Line>,
}

impl Entrance {
    /// Works on the line, and wakes whoever that concerns when its lock is free again.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Line, &mut Wakers) -> T) -> T {
        let mut wakers = Wakers::default();
        let done = work(&mut lock(&self.line), &mut wakers);
        wakers.wake.into_iter().for_each(Waker::wake);
        done
    }
}

impl Lines {
    /// The place of a reservation that `left` this in its bucket and waits from now on.
    pub(super) fn place(
        &self,
        bucket: &Bucket,
        units: i64,
        left: State,
        at: Timestamp,
        due: Instant,
    ) -> Place {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        Place { order: Order::new(bucket, left, at, number), due, units, left }
    }

    /// Lets a waiter into the line of its bucket. Returns the place that nobody needs then.
    pub(super) fn enter(
        &self,
        whose: Whose,
        own: Place,
        patient: bool,
    ) -> (Arc<Entrance>, Ticket, Option<Place>) {
        let mut open = lock(&self.open);
        let entrance = match open.get(&whose) {
            Some(entrance) => Arc::clone(entrance),
            None => {
                let line = Mutex::default();
                let entrance = Arc::new(Entrance { whose: whose.clone(), line });
                open.insert(whose, Arc::clone(&entrance));
                entrance
            }
        };
        // While the lines are locked, so that nobody takes this one for empty.
        let (ticket, free) = entrance.with(|line, _| line.enter(own, patient, Instant::now()));
        (entrance, ticket, free)
    }

    /// The line of a bucket, if anybody waits for it.
    pub(super) fn find(&self, whose: &Whose) -> Option<Arc<Entrance>> {
        lock(&self.open).get(whose).cloned()
    }

    /// Forgets a line in which nobody stands.
    pub(super) fn tidy(&self, entrance: &Entrance) {
        if entrance.with(|line, _| line.is_empty()) {
            let mut open = lock(&self.open);
            let is_this = |found: &Arc<Entrance>| std::ptr::eq(&raw const **found, entrance);
            if open.get(&entrance.whose).is_some_and(is_this)
                && entrance.with(|line, _| line.is_empty())
            {
                open.remove(&entrance.whose);
            }
        }
    }

    /// After which instant nobody is to wait, if there is one.
    pub(crate) fn end(&self) -> Option<Instant> {
        *lock(&self.end)
    }

    /// Sends those away whose turn would come after `end`, now and from now on. Returns the places
    /// that nobody needs then, those of each bucket with the last one first.
    pub(super) fn close(&self, end: Instant) -> Vec<(Arc<Entrance>, Vec<Place>)> {
        // Whoever enters after this sees the end; whoever has entered before is found below.
        let end = {
            let mut known = lock(&self.end);
            let end = known.map_or(end, |known| known.min(end));
            *known = Some(end);
            end
        };
        let entrances: Vec<_> = lock(&self.open).values().cloned().collect();
        let now = Instant::now();
        let close = |entrance: Arc<Entrance>| {
            let free = entrance.with(|line, wakers| line.close(end, now, wakers));
            (entrance, free)
        };
        entrances.into_iter().map(close).collect()
    }
}

/// What a lock guards is never left half changed by anything that can panic, so that a panic
/// elsewhere in the holder's thread does no harm here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
