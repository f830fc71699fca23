//! Wakers that a queue has to do with.

use std::task::Waker;

/// Wakers to be woken and wakers to be dropped, both only when the queue is not locked any more:
/// they run other people's code, which may come back here.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    pub(super) wake: Vec<Waker>,
    pub(super) discard: Vec<Waker>,
}

/// Returns the waker that is not needed any more.
pub(super) fn replace_waker(slot: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    match slot {
        Some(known) if known.will_wake(waker) => None,
        slot => slot.replace(waker.clone()),
    }
}
