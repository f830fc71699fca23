//! The formula behind every decision, as pure functions: what a bucket holds, what a charge leaves
//! in it, and how long to wait.
//!
//! Most programs do not need this module: a [`RateLimiter`](crate::RateLimiter) applies it. It is
//! public for other [stores](crate::backend::Backend), for clients that predict an answer
//! ([`calculate`]), and for tests that check a record of what ran ([`check_history`]).
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use tollgate::algebra::{Bucket, State, Terms, Verdict, charge};
//! use tollgate::{Quota, SECOND, Timestamp};
//!
//! // Two tokens a second; the bucket is empty.
//! let bucket = Bucket::new(&Quota::token_bucket(2, SECOND))?;
//! let now = Timestamp::UNIX_EPOCH;
//! let empty = State { value: 0, ts: now };
//!
//! let one = bucket.units(1).unwrap();
//! let charged = charge(&bucket, empty, one, Terms::AT_ONCE, now);
//! assert_eq!(charged.verdict(), Verdict::Refused);
//! assert_eq!(charged.wait(), Duration::from_millis(500));
//! # Ok::<(), tollgate::quota::QuotaError>(())
//! ```
//!
//! # Design
//!
//! Both kinds of limit compile to the same three integers, so there is one formula, not two:
//!
//! * *step*: how often the bucket gains, in microseconds. Token bucket: 1, or where its numbers
//!   are too large for that 10, 100, .. 1,000,000. Fixed window: the period.
//! * *gain*: the units gained at each step.
//! * *token*: how many units one token is worth.
//!
//! A token bucket of `rate` per `period` has `gain / token = rate · step / period` in lowest terms,
//! so it gains a whole number of units in every step. For example, 10 a minute is `gain = 1` and
//! `token = 6_000_000`. All numbers are integers within 2^53, so the scripts of Redis, which count
//! in doubles, give the same answers. Capacity and debt have to fit together, so the step is the
//! shortest in which they do: 4,999 per 30 days gain 4,999 units of 25,920,000,000 to a token in
//! every 0.1 ms. The steps of all buckets begin at the epoch, so a full bucket equals an absent one.
//!
//! The state of a bucket is two numbers, a [`State`]. [`Bucket::refresh`] brings it to the present,
//! [`charge`] takes from it, and [`charge_pair`] takes from two shards of a limit. [`refund`] and
//! [`undo`] give back, [`block`] withholds, and [`rescale`] converts the state when the quota
//! changes. A bucket whose quota has become slower is charged by [`charge_slower`] until it takes
//! that.
//!
//! There is no clock here, no lock, no I/O and no async: a [`Backend`](crate::backend::Backend)
//! applies these functions atomically. `script` of the crate `tollgate-redis` is a transcription of them in Lua,
//! with the same names in the same order.

#![deny(clippy::arithmetic_side_effects, clippy::as_conversions)]

mod ahead;
mod block;
mod bucket;
mod calculate;
mod charge;
mod numbers;
mod refund;
mod rescale;
mod state;
mod terms;
mod testing;
mod tokens;
mod two_choices;

pub use self::ahead::MOST_AHEAD;
pub use self::block::block;
pub use self::bucket::Bucket;
pub use self::calculate::{Calculation, calculate};
pub use self::charge::{Charged, Verdict, charge};
#[cfg(feature = "memory")]
pub(crate) use self::numbers::BucketNumbers;
pub use self::refund::{refund, undo, untouched};
pub use self::rescale::{charge_slower, rescale};
pub use self::state::{State, Units};
pub use self::terms::Terms;
pub use self::testing::{check_history, check_history_with_returns};
pub use self::tokens::Tokens;
pub use self::two_choices::{charge_pair, charge_pair_slower};
