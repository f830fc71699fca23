//! The wait queue: who waits for which reserved place, and what becomes of places that are given up.
//!
//! # Design
//!
//! A reservation is a place: an instant, granted by the bucket, and the units taken for it. Whoever
//! waits stands in the line of its bucket, within its own future: there is no task and no thread. The
//! timer of the first in line is set to the first place; whoever goes wakes the next.
//!
//! When somebody gives up, the place is handed down the line, and what is left over in the end is
//! undone if nothing was taken from the bucket since: that is when the bucket, refreshed to now,
//! holds exactly what the reservation left, refreshed to now. Giving the tokens back without that
//! condition would break the bound, as those who reserved later have counted on them being spent.
//!
//! Whoever has not begun to wait keeps its instant, as its work may be planned for it. When it
//! gives up, its place is offered to those who wait.

mod booking;
mod close;
mod cost;
mod entrance;
mod free;
mod hand_on;
mod line;
mod lines;
mod moment;
mod place;
mod sorted;
mod spot;
mod ticket;
mod turns;
mod waiting;
mod wakers;
mod whose;

pub(crate) use self::booking::Booking;
pub(crate) use self::lines::Lines;
#[cfg(feature = "middleware")]
pub(crate) use self::spot::{Spot, Used};
pub(crate) use self::waiting::Waiting;
