//! The limiter: calls that take, look, reserve and settle, and what they answer.
//!
//! [`RateLimiter::limit`] takes: its answer is a [`Permit`] or a [`RateLimited`]. A permit can be
//! [settled](Permit::settle) when the work has cost less or more. [`LimitCall::reserve`] waits for
//! what is short: its answer is a [`Reservation`]. [`RateLimiter::peek`] looks and takes nothing:
//! its answer is a [`Snapshot`]. [`RateLimiter::reset`], [`penalize`](RateLimiter::penalize) and
//! [`block`](RateLimiter::block) administer a bucket.
//!
//! # Design
//!
//! A call names limits, keys and costs: a list of `Demand`. The engine submits them to the store, and
//! makes an `Outcome` of a complete answer, which is the only source of grants, refusals and levels.
//! The layer of the middleware goes the same way. One bucket in this process is decided without a
//! list, by `decide_one`.

mod calls;
mod demand;
mod detached;
mod engine;
mod grant;
mod limit;
mod peek;
mod penalty;
mod permit;
mod progress;
mod queue;
mod random;
mod rate_limited;
mod reservation;
mod settle;
mod snapshot;
mod too_large;

pub use self::calls::{LimitCall, ReserveCall};
pub(crate) use self::demand::{Demand, Mode};
pub(crate) use self::detached::DetachOnDrop;
pub(crate) use self::engine::Outcome;
pub use self::engine::RateLimiter;
#[cfg(feature = "memory")]
pub(crate) use self::engine::decide_one;
pub(crate) use self::grant::Grant;
pub use self::limit::{Limit, LimitError};
pub use self::peek::{PeekCall, ResetCall};
pub use self::penalty::{BlockCall, PenalizeCall};
pub use self::permit::Permit;
pub(crate) use self::queue::{HeldSlot, QueueWait, Turn, WaiterHandle};
pub(crate) use self::random::Random;
pub use self::rate_limited::RateLimited;
pub use self::reservation::{Ready, Reservation};
pub use self::settle::Settle;
pub(crate) use self::settle::Settlement;
pub(crate) use self::snapshot::Level;
pub use self::snapshot::Snapshot;
