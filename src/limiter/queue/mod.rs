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

mod booking;
mod close;
mod cost;
mod free;
mod hand_on;
mod line;
mod moment;
mod place;
mod registry;
mod sorted;
mod spot;
mod ticket;
mod turns;
mod waiting;
mod wakers;
mod whose;

pub(crate) use self::booking::Booking;
pub(crate) use self::registry::QueueRegistry;
pub(crate) use self::spot::{Spot, Turn};
pub(crate) use self::waiting::Waiting;
