//! The time of a store's clock, as far as this process knows.

use std::sync::atomic::{AtomicI64, Ordering};

use tollgate::backend::BackendError;
use tollgate::clock::Timestamp;

/// How far the clock of a store is ahead of that of this process.
///
/// What a store is told of calendars holds for some time around it. If the clocks are further apart,
/// the store says so and its time, the call is sent again, and the next ones are right.
#[derive(Debug, Default)]
pub struct StoreTime {
    /// In microseconds.
    ahead: AtomicI64,
}

/// How often a call is sent whose windows do not hold at the time of the store. One may end while a
/// call is under way, but not several.
const TRIES: usize = 4;

/// A call that is sent again if its windows do not hold at the time of the store.
#[derive(Debug)]
pub struct TimedCall<'s> {
    time: &'s StoreTime,
    own: Timestamp,
    around: Timestamp,
    tries: usize,
}

impl StoreTime {
    /// A call that is made when the clock of this process shows `own`.
    pub fn begin(&self, own: Timestamp) -> TimedCall<'_> {
        let ahead = self.ahead.load(Ordering::Relaxed);
        let around = Timestamp::from_micros(own.as_micros().saturating_add(ahead));
        TimedCall { time: self, own, around, tries: TRIES }
    }
}

/// For tests, which know better.
impl StoreTime {
    /// Believes that the clock of the store is so far ahead.
    pub fn believe(&self, ahead: i64) {
        self.ahead.store(ahead, Ordering::Relaxed);
    }

    /// How far it believes it to be.
    pub fn ahead(&self) -> i64 {
        self.ahead.load(Ordering::Relaxed)
    }
}

impl TimedCall<'_> {
    /// The time at which the clock of the store probably is.
    pub const fn around(&self) -> Timestamp {
        self.around
    }

    /// The store has said that its clock is elsewhere, and done nothing.
    ///
    /// # Errors
    ///
    /// If it has said so too often: its clock jumps.
    pub fn outside(&mut self, store: &'static str, now: Timestamp) -> Result<(), BackendError> {
        self.around = now;
        let ahead = now.as_micros().saturating_sub(self.own.as_micros());
        self.time.ahead.store(ahead, Ordering::Relaxed);
        self.tries = self.tries.saturating_sub(1);
        match self.tries {
            0 => Err(BackendError::unavailable(store, "its clock jumps from window to window")),
            _ => Ok(()),
        }
    }
}
