//! Waiting in the memory store: a request stands in the lines of its buckets, first in, first out.
//!
//! # Design
//!
//! The store keeps the lines, and grants what is due whenever a bucket is touched. What is here are
//! the two timers that touch it when nothing else does:
//!
//! * Each waiter has a timer at the instant that it was told. While no tokens come back, that is its
//!   turn.
//! * Each line in which waiters have moved forward has one for its head: the [driver](LineDriver).

mod driver;
mod slot;
mod wait;

use self::driver::LineDriver;
pub(crate) use self::slot::{LineSlot, LineTicket};
pub(crate) use self::wait::{LineTurn, LineWait};
