//! The calls that take, reserve, settle, look at and administer tokens, and what they answer.
//!
//! The layers of [`middleware`](crate::middleware) make these calls for HTTP requests. Make them
//! yourself in a handler, a job or a client.
//!
//! # Taking tokens
//!
//! A [`RateLimiter`] has the buckets, and a [`Limit`] is a quota with a name.
//! [`RateLimiter::limit`] takes tokens from one. Its answer is a [`Permit`] to run the work, or a
//! [`RateLimited`] that says why not and when to retry. [`LimitCall::and`] takes from several
//! limits or from none.
//!
//! ```
//! use tollgate::{Limit, MINUTE, Quota, RateLimited, RateLimiter, SECOND};
//!
//! const PER_USER: Limit = Limit::new("per-user", Quota::token_bucket(10, SECOND));
//! const LLM_TOKENS: Limit = Limit::new("llm-tokens", Quota::token_bucket(40_000, MINUTE));
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), RateLimited> {
//! let limiter = RateLimiter::in_memory();
//! let permit = limiter.limit(&PER_USER).key("alice").and(&LLM_TOKENS).cost(30_000).await?;
//! assert_eq!(permit.remaining(), 9); // of `PER_USER`, the smaller number
//!
//! let refused = limiter.limit(&LLM_TOKENS).cost(30_000).await.unwrap_err();
//! assert!(refused.is_refused() && refused.retry_after() <= Some(30 * SECOND));
//! # Ok(())
//! # }
//! ```
//!
//! # Waiting for tokens
//!
//! [`LimitCall::reserve`] takes tokens that the bucket does not have yet. Its answer is a
//! [`Reservation`]: the instant at which the work may run is known at once, and
//! [`ready`](Reservation::ready) waits for it. [`PeekCall::waiting`] tells how many requests
//! wait, and [`RateLimiter::drain`] ends all waiting when the server shuts down.
//!
//! # Correcting the cost
//!
//! [`Permit::settle`] says what the work really cost: the rest is returned, or the difference is
//! taken. [`Permit::refund`] returns everything. Dropping a permit returns nothing.
//!
//! # Looking and resetting
//!
//! [`RateLimiter::peek`] takes nothing. Its answer is a [`Snapshot`]: what is left, whether a cost
//! would fit, and the wait if not. [`RateLimiter::reset`] makes a bucket as if it had never been
//! used.
//!
//! # Penalties and blocks
//!
//! [`RateLimiter::penalize`] takes tokens whatever the bucket holds, into debt if need be.
//! [`RateLimiter::block`] closes a bucket for a time. [`RateLimiter::debtors`] lists the buckets that
//! are in debt or blocked.
//!
//! # Changing numbers
//!
//! [`RateLimiter::replace`] gives a limit other numbers while the program runs. What each key has
//! used stays used, and comes back by the faster numbers until the slower ones admit a request.
//!
//! # Observing
//!
//! [`RateLimiter::observe`] adds an [`Observer`], which is told each [`Decision`], each
//! [`QueueChange`], and how the store is. `tollgate::observe` has observers for metrics and traces.
//!
//! # Code that is not async
//!
//! [`LimitCall::now`] takes tokens in a `Drop`, an `Iterator` or a `poll_ready`, from a store that
//! answers at once. [`Permit::settle`] and [`Permit::refund`] ask the store before they return a
//! future, so in memory they have taken effect when it is dropped.
//!
//! # Moving a permit into a task or a stream
//!
//! A permit borrows the limiter and the limits. [`Permit::into_owned`] makes one that borrows
//! nothing. [`Permit::settle`] and [`Permit::refund`] return futures that borrow nothing, so
//! `tokio::spawn(permit.settle(740))` works as it is.
//!
//! ## A streaming handler
//!
//! A handler that answers with a stream returns before the cost is known. So its body owns the
//! permit and settles it on drop: when the stream ends, and also when the client disconnects before
//! that.
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
//!     let answer = Body::from("forty-two"); // in production, the stream of the model
//!     Ok(Body::new(answer.map_frame(move |frame| {
//!         // A method call makes the closure capture the whole value, not only the field `used`.
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
//! Under a layer, [`Meter`](crate::middleware::Meter) does the same in fewer lines.
//!
//! # Cancel safety
//!
//! In memory, each call is answered at its first poll, so there is nothing to cancel. With a store
//! that answers later, dropping a future has this effect:
//!
//! | the future of | dropped before it completes |
//! |---|---|
//! | [`limit`](RateLimiter::limit) | The tokens may be taken, and do not come back. |
//! | [`reserve`](LimitCall::reserve) | A task awaits the answer and cancels the reservation. |
//! | [`ready`](Reservation::ready) | The reservation is cancelled, in memory as well. |
//! | [`settle`](Permit::settle), [`refund`](Permit::refund) | A task completes it. The store was asked before the future was returned. |
//! | [`peek`](RateLimiter::peek), [`debtors`](RateLimiter::debtors) | Nothing was changed. |
//! | [`reset`](RateLimiter::reset) | The bucket may be reset or not. |
//! | [`penalize`](RateLimiter::penalize), [`block`](RateLimiter::block) | A task completes it, if the future was polled. |
//!
//! These tasks run on the tokio runtime in which the future is dropped. Outside of a runtime, the
//! effect may be lost: tokens stay taken that should have come back.
//!
//! # Design
//!
//! A call names limits, keys and costs: a list of `Demand`. Calls, reservations, layers and shadows
//! hand such a list to `decide`, and match the `Decided` that comes back. `decide` alone asks the
//! store, tells observers, counts failures and applies their policy. Only a `CompleteAnswer` makes
//! grants, refusals and levels. One bucket in memory is decided without a list, by the twin in
//! `lone_bucket`.

mod block_after;
mod calls;
mod cold_drop;
mod complete_answer;
mod debtors;
mod decide;
mod demand;
mod detached;
mod engine;
mod events;
mod failure_log;
mod grant;
mod handle;
mod in_flight;
mod limit;
mod limit_uses;
#[cfg(feature = "memory")]
mod line;
mod lock;
#[cfg(feature = "memory")]
mod lone_bucket;
mod name_table;
mod off;
mod peek;
mod penalty;
mod permit;
mod progress;
mod queue;
mod random;
mod rate_limited;
mod replacements;
mod reservation;
#[cfg(feature = "serde")]
mod serde;
mod shared_resets;
mod snapshot;
mod too_large;
mod waiting;

// In reading order. The blank lines keep rustfmt from sorting them.

pub use self::engine::RateLimiter;
pub use self::limit::{Limit, LimitError};

pub use self::calls::LimitCall;
pub use self::in_flight::InFlight;
pub use self::permit::{Permit, Settle};
pub use self::rate_limited::RateLimited;

pub use self::reservation::Reservation;

pub use self::peek::PeekCall;
pub use self::snapshot::Snapshot;
pub use crate::backend::OnFailure;

pub use self::penalty::ChangeCall;

pub use self::debtors::DebtorsCall;

pub use self::events::{Decision, Observer, Outcome, QueueChange, StoreHealth};

// For the rooms above.

pub(crate) use self::block_after::{BlockAfter, refusals_to_count};
pub(crate) use self::complete_answer::CompleteAnswer;
pub(crate) use self::decide::{Asked, Asking, Decided, LineTicket};
pub(crate) use self::demand::{Demand, Mode, units_of};
pub(crate) use self::detached::DetachOnDrop;
pub(crate) use self::events::{DecisionSource, QueueStay, QueueStep};
pub(crate) use self::grant::Grant;
pub(crate) use self::limit_uses::LimitUse;
pub(crate) use self::lock::lock;
pub(crate) use self::name_table::NameTable;
pub(crate) use self::permit::Settlement;
pub(crate) use self::queue::ReservedSlot;
pub(crate) use self::snapshot::{Kept, Level, Speech};
pub(crate) use self::waiting::wait_for_turn;

pub(crate) mod kit {
    pub use super::name_table::NameTable;
    pub use super::random::Random;
    pub use super::too_large::explain_cost;
}
