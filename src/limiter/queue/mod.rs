//! The wait queue: who waits for which reserved place, and what becomes of places that are given up.
//!
//! # Design
//!
//! A reservation is a place: an instant, granted by its bucket or by several, and the units taken for
//! it. Whoever waits stands in the line of all who wait for the same buckets, within its own future:
//! there is no task and no thread. The timers of the first two in line are set to the first two
//! places; whoever goes wakes the next.
//!
//! When somebody gives up, the place is handed down the line, and what is left over in the end is
//! undone if nothing was taken from its buckets since: that is when each of them, refreshed to now,
//! holds exactly what the reservation left, refreshed to now. Giving the tokens back without that
//! condition would break the bound, as those who reserved later have counted on them being spent.
//! Only the last place can be undone, so they are undone one after another from there.
//!
//! Whoever has not been polled keeps its instant, as its work may be planned for it. When it gives
//! up, its place is offered to those who wait.

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

pub(crate) use self::held_slot::HeldSlot;
pub(crate) use self::queue_wait::QueueWait;
pub(crate) use self::registry::QueueRegistry;
pub(crate) use self::waiter_handle::{Turn, WaiterHandle};
