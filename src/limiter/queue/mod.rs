//! The wait queue: which waiter has which slot, and what happens to slots that are given up.
//!
//! # Design
//!
//! A slot is what a reservation was granted: an instant, and the units that were taken for it of
//! one bucket or of several. All waiters on the same buckets stand in one queue, each within its
//! own future: there is no task and no thread. The timers of the first two waiters are set to the
//! first two slots; a waiter that goes wakes the next.
//!
//! ```text
//!             HeldSlot  (reserved, not polled yet: it keeps its instant)
//!                 | first poll
//!                 v
//!   +---------- waiting ----------+   a slot before it is free: it moves up, and its own slot is free
//!   |             | its instant   |
//!   | dropped,    v has come      | drained
//!   |            due -------------|--> let go, if the inner service is not ready or it is not polled
//!   |             | its work runs |
//!   v             v               v
//! slot is free   used            answered with 503
//! ```
//!
//! A free slot goes to the next waiter that it is large enough for, whose own slot is then free in
//! turn. What is left over in the end is undone if nothing was taken from its buckets since: that
//! is when each of them, refreshed to now, holds exactly what the reservation left, refreshed to
//! now. To give the tokens back without that condition would break the bound, as later reservations
//! have counted on them being spent. Only the last slot can be undone, so slots are undone one
//! after another from there.
//!
//! A reservation that was not polled keeps its instant, as its work may be planned for it. When it
//! is dropped, its slot is offered to the waiters.

mod bucket_set;
mod drain;
mod due_waiters;
mod free_slots;
mod held_slot;
mod local_instant;
mod queue_wait;
mod reassign;
mod registry;
mod sorted_map;
mod ticket;
mod time_slot;
mod unit_vec;
mod wait_queue;
mod waiter_handle;
mod wakers;

pub(crate) use self::bucket_set::QueueBucket;
pub(crate) use self::held_slot::HeldSlot;
pub(crate) use self::queue_wait::{Drained, QueueWait};
pub(crate) use self::registry::QueueRegistry;
pub(crate) use self::waiter_handle::{Turn, WaiterHandle};
