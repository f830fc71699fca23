//! The limiter: calls that take, look, reserve and settle, and what they answer.
//!
//! In reading order:
//!
//! 1. [`RateLimiter::limit`] takes tokens: its answer is a [`Permit`] or a [`RateLimited`].
//!    [`and`](LimitCall::and) takes from several limits, or from none.
//! 2. [`Permit::settle`] corrects what was taken when the work has cost less or more.
//! 3. [`LimitCall::reserve`] takes what will be there later: its answer is a [`Reservation`], to be
//!    awaited. [`RateLimiter::drain`] ends all waiting when the server shuts down.
//! 4. [`RateLimiter::peek`] looks and takes nothing: its answer is a [`Snapshot`].
//! 5. [`RateLimiter::waiting`] tells how many requests wait, and for how long.
//! 6. [`RateLimiter::reset`], [`penalize`](RateLimiter::penalize) and
//!    [`block`](RateLimiter::block) administer a bucket.
//!
//! # A streaming handler
//!
//! A handler whose answer is a stream returns before the cost is known. So the body takes the
//! permit with it, made its own by [`into_owned`](Permit::into_owned), and settles it on drop: when
//! the stream ends, and also if the client goes away before that.
//!
//! ```
//! use axum::body::{Body, Bytes};
//! use http_body_util::BodyExt;
//! use tollgate::{DAY, Limit, Permit, Quota, RateLimited, RateLimiter};
//!
//! const LLM_TOKENS: Limit = Limit::new("llm-tokens", Quota::token_bucket(40_000, DAY));
//!
//! /// Counts what is sent, and settles when it is dropped.
//! struct Metered {
//!     permit: Option<Permit<'static>>,
//!     used: u64,
//! }
//!
//! impl Metered {
//!     fn count(&mut self, bytes: usize) {
//!         self.used += bytes as u64;
//!     }
//! }
//!
//! impl Drop for Metered {
//!     fn drop(&mut self) {
//!         if let Some(permit) = self.permit.take() {
//!             tokio::spawn(permit.settle(self.used));
//!         }
//!     }
//! }
//!
//! async fn chat(limiter: RateLimiter) -> Result<Body, RateLimited> {
//!     let permit = limiter.limit(&LLM_TOKENS).cost(1_000).await?.into_owned();
//!     let mut metered = Metered { permit: Some(permit), used: 0 };
//!     let answer = Body::from("forty-two"); // in production, the model's answer as it comes
//!     Ok(Body::new(answer.map_frame(move |frame| {
//!         // By a method: the closure has to capture all of it, and not a copy of one field.
//!         metered.count(frame.data_ref().map_or(0, Bytes::len));
//!         frame
//!     })))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = RateLimiter::in_memory();
//! let body = chat(limiter.clone()).await?;
//! assert_eq!(limiter.peek(&LLM_TOKENS).await?.remaining(), 39_000);
//! assert_eq!(axum::body::to_bytes(body, 100).await?, "forty-two");
//! # tokio::task::yield_now().await;
//! assert_eq!(limiter.peek(&LLM_TOKENS).await?.remaining(), 39_991);
//! # Ok(())
//! # }
//! ```
//!
//! Under a layer, [`Meter`] is the short form of this.
//!
//! [`Meter`]: crate::middleware::Meter
//!
//! # Design
//!
//! A call names limits, keys and costs: a list of `Demand`. The engine submits them to the store,
//! and makes an `Outcome` of a complete answer, which is the only source of grants, refusals and
//! levels. The layer of the middleware goes the same way. One bucket in this process is decided
//! without a list.

mod calls;
mod demand;
mod detached;
mod engine;
mod forget;
mod grant;
mod limit;
#[cfg(feature = "memory")]
mod line;
mod peek;
mod penalty;
mod permit;
mod progress;
mod queue;
mod random;
mod rate_limited;
mod reservation;
mod reserve_call;
mod reserved_slot;
mod settle;
mod shared_resets;
mod snapshot;
mod too_large;
mod wait;
mod waiting;

pub use self::calls::LimitCall;
#[cfg(feature = "memory")]
pub(crate) use self::demand::units_of;
pub(crate) use self::demand::{Demand, Mode};
pub(crate) use self::detached::DetachOnDrop;
pub(crate) use self::engine::Outcome;
pub use self::engine::RateLimiter;
pub(crate) use self::grant::Grant;
pub use self::limit::{Limit, LimitError};
#[cfg(feature = "memory")]
pub(crate) use self::line::LineSlot;
pub use self::peek::{PeekCall, ResetCall};
pub use self::penalty::{BlockCall, PenalizeCall};
pub use self::permit::Permit;
pub(crate) use self::queue::{HeldSlot, PendingReservation};
pub(crate) use self::random::Random;
pub use self::rate_limited::RateLimited;
pub use self::reservation::{Ready, Reservation};
pub use self::reserve_call::ReserveCall;
pub(crate) use self::reserved_slot::{PendingTurn, ReservedSlot, UsedTurn};
pub use self::settle::Settle;
pub(crate) use self::settle::Settlement;
pub(crate) use self::snapshot::Level;
pub use self::snapshot::Snapshot;
pub(crate) use self::wait::Wait;
pub use self::waiting::Waiting;
