//! All lines of a limiter, found by the buckets that they wait for.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::entrance::Entrance;
use super::moment::{Epoch, Moment};
use super::whose::Whose;
use crate::clock::Timestamp;
use crate::limiter::RateLimiter;

/// The lines in which somebody waits or for which there is a reservation.
#[derive(Debug)]
pub(crate) struct Lines {
    open: Mutex<HashSet<Open>>,
    /// After which nobody is to wait.
    end: Mutex<Option<Moment>>,
    epoch: Epoch,
    numbers: AtomicU64,
}

/// A line, found by whose it is.
#[derive(Debug)]
struct Open(Arc<Entrance>);

impl Borrow<Whose> for Open {
    fn borrow(&self) -> &Whose {
        self.0.whose()
    }
}

impl PartialEq for Open {
    fn eq(&self, other: &Self) -> bool {
        self.0.whose() == other.0.whose()
    }
}

impl Eq for Open {}

impl Hash for Open {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.whose().hash(state);
    }
}

/// Above this, room for lines is given back when most of it is not used.
const ROOM: usize = 1_024;

impl Lines {
    pub(crate) fn new() -> Self {
        let (open, end, numbers) = Default::default();
        Self { open, end, epoch: Epoch::new(), numbers }
    }

    pub(super) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Tells reservations apart.
    pub(super) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// The line of a bucket, with one reservation more, which the store made at `now`.
    pub(super) fn reserve(
        &self,
        limiter: &RateLimiter,
        whose: Whose,
        now: Timestamp,
    ) -> Arc<Entrance> {
        let heard = self.epoch.now();
        let mut open = lock(&self.open);
        let entrance = match open.get(&whose) {
            Some(Open(entrance)) => Arc::clone(entrance),
            None => {
                let entrance = Arc::new(Entrance::new(limiter.clone(), whose));
                open.insert(Open(Arc::clone(&entrance)));
                entrance
            }
        };
        // While the lines are locked, so that nobody takes this one for empty.
        entrance.with(|line, _| {
            line.outside = line.outside.saturating_add(1);
            line.clock.heard(now, heard);
        });
        entrance
    }

    /// Forgets a line with which nobody has anything to do.
    pub(super) fn forget(&self, entrance: &Entrance) {
        let mut open = lock(&self.open);
        let found = open.get(entrance.whose());
        let is_this = found.is_some_and(|Open(found)| std::ptr::eq(&raw const **found, entrance));
        let forgotten = if is_this && entrance.with(|line, _| line.is_empty()) {
            let forgotten = open.take(entrance.whose());
            if open.capacity() > ROOM && open.len() < open.capacity() / 8 {
                open.shrink_to(ROOM);
            }
            forgotten
        } else {
            None
        };
        // Its limiter may be the last handle, and run other people's code when it goes.
        drop(open);
        drop(forgotten);
    }

    /// After which instant nobody is to wait, if there is one.
    pub(super) fn end(&self) -> Option<Moment> {
        *lock(&self.end)
    }

    /// Lets nobody wait for longer than until `end`. Returns the lines in which somebody may.
    pub(super) fn close(&self, end: Moment) -> (Moment, Vec<Arc<Entrance>>) {
        // Whoever enters after this sees the end; whoever has entered before is in the lines.
        let end = {
            let mut known = lock(&self.end);
            let end = known.map_or(end, |known| known.min(end));
            *known = Some(end);
            end
        };
        (end, lock(&self.open).iter().map(|Open(entrance)| Arc::clone(entrance)).collect())
    }
}

/// What a lock guards is never left half changed by anything that can panic, so that a panic
/// elsewhere in the holder's thread does no harm here.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
