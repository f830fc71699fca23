//! Waiting in the memory store: the timers of its lines.
//!
//! # Design
//!
//! The store keeps a line for each bucket, first in, first out, and grants the waiters that are due
//! whenever a call touches the bucket. The timers here do so when no call comes:
//!
//! * A line in which several requests wait has one timer for its head, the [driver](LineDriver). It
//!   wakes the waiters in the order of the line.
//! * A waiter that is alone in its line has a timer of its own, at the instant that it was told. It
//!   needs no task.
//! * The other waiters have a timer of their own as well, 10 ms later. They need it if the runtime
//!   of the driver is blocked.
//!
//! ```text
//! in line ---- its turn ----> granted ---- use_up() ----> used: the work runs
//!   |    |                       |
//!   |    | drop                  | drop
//!   |    v                       v
//!   |  leaves       its tokens go to the waiters behind it, or to the bucket
//!   | keep()
//!   v
//! kept
//! ```
//!
//! A request over several buckets stands in the line of each one that is short, and has its turn
//! when all of them have granted. If it leaves before that, the tokens of those that have granted
//! go back.
//!
//! The page of [`queue`](super::queue) compares this with stores that other processes use as well.

mod driver;
mod slot;

use self::driver::LineDriver;
pub(crate) use self::slot::LineSlot;
