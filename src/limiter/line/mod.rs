//! Waiting in the memory store: a request stands in the lines of its buckets, first in, first out.
//!
//! # Design
//!
//! The store keeps the lines, and grants what is due whenever a bucket is touched. What is here are
//! the timers that touch it when nothing else does:
//!
//! * A line in which several wait has one for its head, the [driver](LineDriver). It wakes those
//!   whose turn has come in their order.
//! * A waiter that stands alone has one of its own, at the instant that it was told. The others have
//!   one a little later, so that none depends on a driver whose runtime is blocked.

mod driver;
mod slot;

use self::driver::LineDriver;
pub(crate) use self::slot::{LineSlot, LineTurn};
