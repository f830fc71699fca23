//! A line behind its lock, and what is done about its free places.

use std::sync::{Arc, Mutex};
use std::task::Waker;

use smallvec::SmallVec;

use super::line::Line;
use super::lines::lock;
use super::moment::{Epoch, Moment};
use super::place::Place;
use super::wakers::Wakers;
use super::whose::Whose;
use crate::algebra::Verdict;
use crate::backend::{Adjustment, Applied, BackendError};
use crate::limiter::RateLimiter;
use crate::limiter::unstoppable::Unstoppable;

/// A line and its name, shared by those who have to do with it.
///
/// It holds the limiter, and the limiter its lines, until nobody has to do with this one any more.
#[derive(Debug)]
pub(crate) struct Entrance {
    limiter: RateLimiter,
    whose: Whose,
    line: Mutex<Line>,
}

impl Entrance {
    pub(super) fn new(limiter: RateLimiter, whose: Whose) -> Self {
        Self { limiter, whose, line: Mutex::default() }
    }

    pub(crate) const fn limiter(&self) -> &RateLimiter {
        &self.limiter
    }

    pub(crate) const fn whose(&self) -> &Whose {
        &self.whose
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.limiter.lines().epoch()
    }

    pub(super) fn now(&self) -> Moment {
        self.epoch().now()
    }

    /// Works on the line, and wakes whoever that concerns when its lock is free again.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Line, &mut Wakers) -> T) -> T {
        let mut wakers = Wakers::default();
        let done = work(&mut lock(&self.line), &mut wakers);
        wakers.wake.into_iter().for_each(Waker::wake);
        done
    }

    /// Undoes the free places that can be: those from which nothing has been taken since. One after
    /// another, as the one before can be undone only when the one behind it was.
    ///
    /// Then forgets the line if nobody has to do with it.
    pub(super) fn tidy(self: &Arc<Self>) {
        while let Some(place) = self.with(|line, _| line.free.next_to_undo()) {
            let mut undo = SmallVec::<[Adjustment<'_>; 2]>::new();
            let amounts = place.grant.taken.as_slice().iter().zip(place.grant.left.as_slice());
            for (part, (&units, &left)) in self.whose.parts().iter().zip(amounts) {
                undo.push(Adjustment::undo(part.id(), part.bucket(), units, left));
            }
            let answer = self.limiter.backend().adjust(&undo);
            let undo = Undo { entrance: Arc::clone(self), place: Some(place) };
            match Unstoppable::new(answer) {
                now @ Unstoppable::Now(_) => now.finish_with(|refunded| undo.hear(&refunded)),
                // Nobody waits for this, so a store that answers later is heard by a task of its own.
                later @ Unstoppable::Later(_) => {
                    later.finish_with(|refunded| {
                        let entrance = Arc::clone(&undo.entrance);
                        undo.hear(&refunded);
                        entrance.tidy();
                    });
                    return;
                }
            }
        }
        if self.with(|line, _| line.is_empty()) {
            self.limiter.lines().forget(self);
        }
    }
}

/// A place that the store was asked to undo.
struct Undo {
    entrance: Arc<Entrance>,
    /// None once the answer was heard.
    place: Option<Place>,
}

impl Undo {
    fn hear(mut self, refunded: &Result<Applied, BackendError>) {
        // What became of it in a store that gives no answer is unknown: it is spent then.
        let undone = |applied: &Applied| applied.verdict() != Verdict::Refused;
        self.is(refunded.as_ref().map_or(true, undone));
    }

    fn is(&mut self, given: bool) {
        if let Some(place) = self.place.take() {
            let now = self.entrance.now();
            self.entrance.with(|line, wakers| line.undone(place, given, now, wakers));
        }
    }
}

/// Not heard, as the runtime has gone or the store's client has panicked.
impl Drop for Undo {
    fn drop(&mut self) {
        if self.place.is_some() {
            self.is(true);
            self.entrance.tidy();
        }
    }
}
