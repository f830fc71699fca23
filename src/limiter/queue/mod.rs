//! The wait queue of a store that other processes take from as well: which waiter has which slot,
//! and what happens to slots that are given up.
//!
//! # Design
//!
//! A slot is what a reservation was granted: an instant, and the units that were taken for it of
//! one bucket or of several. All waiters on the same buckets stand in one queue, each within its
//! own future: there is no task and no thread. Each has a timer at the instant that it was told. The
//! waiters of the first two slots are woken when they have moved forward, to set theirs earlier.
//! Whichever timer is the first grants all waiters whose instants have come and wakes them.
//!
//! ```text
//!             HeldSlot  (reserved, not polled yet: it keeps its instant)
//!                 | first poll
//!                 v
//!   +---------- waiting ----------+   a slot before it is free: it moves forward, its own slot is free
//!   |             | its instant   |
//!   | dropped     | has come, or  | drained
//!   |             | units that    |
//!   |             | came back     |
//!   |             v cover its cost|
//!   |          granted            |
//!   |             | its work runs |
//!   v             v               v
//! slot is free   used            answered with 503
//! ```
//!
//! A free slot goes to the waiter behind it with the largest cost that fits, whose own slot is free
//! in turn ([`reassign`]), for a bounded number of steps ([`reassign_budget`]). What is left over in the end is
//! undone if no process has charged its buckets since ([`undo`], [`ledger`]), and stays on offer to
//! newcomers otherwise ([`free_slots`]), also while no request waits but an answer is on its way ([`queue_retention`]). Once a slot was undone, one other queue on its buckets is
//! tried, whose slot may be the next ([`retries`]).
//! To return the units without that condition would break the bound, as later reservations have
//! counted on them being spent.
//!
//! What requests return grants the first waiters their turns, where it covers their costs, and goes
//! to the store otherwise ([`give_back`]). The queues that it may cover are found by their buckets
//! ([`queue_index`]), of which a shared one may have as many queues as there are clients.
//!
//! A reservation that was not polled keeps its instant, as its work may be planned for it. When it
//! is dropped, its slot is offered to the waiters.

mod bucket_set;
mod cost_class;
mod drain;
mod drained;
mod free_slots;
mod give_back;
mod granting;
mod held_slot;
mod ledger;
mod local_instant;
mod pending_reservation;
mod queue_index;
mod queue_retention;
mod reassign;
mod reassign_budget;
mod registry;
mod retries;
mod time_slot;
mod undo;
mod unit_vec;
mod wait_queue;
mod waiter_handle;
mod wakers;

pub(crate) use self::bucket_set::QueueBucket;
pub(crate) use self::drained::Drained;
pub(crate) use self::held_slot::HeldSlot;
pub(crate) use self::pending_reservation::PendingReservation;
pub(crate) use self::registry::QueueRegistry;
pub(crate) use self::time_slot::StoreEvent;
pub(crate) use self::waiter_handle::{SlotTurn, WaiterHandle};
