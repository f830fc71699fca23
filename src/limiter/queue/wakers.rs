//! The wakers that an operation on a queue collects.

use std::task::Waker;

/// Wakers to be woken and wakers to be dropped, once the queue is unlocked. Both run code of the
/// runtime, which may call this queue again.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    pub(super) wake: Vec<Waker>,
    pub(super) discard: Vec<Waker>,
}

/// Stores a waker. Returns the one that it replaces, or `None` if that wakes the same task.
pub(super) fn replace_waker(slot: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    match slot {
        Some(known) if known.will_wake(waker) => None,
        slot => slot.replace(waker.clone()),
    }
}
