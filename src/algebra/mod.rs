//! The one formula: what a bucket holds, what a charge leaves in it, how long to wait.
//!
//! # Design
//!
//! Both kinds of limit compile to the same three integers, so there is one formula, not two:
//!
//! * *step*: how often the bucket gains, in microseconds. Token bucket: 1. Fixed window: the
//!   period.
//! * *gain*: the units gained at each step.
//! * *token*: how many units one token is worth.
//!
//! A token bucket of `rate` per `period` has `g = gcd(rate, period)`, `gain = rate / g` and
//! `token = period / g`, so that a whole number of units is gained in every microsecond. The state
//! of a bucket is two numbers, a [`State`]; [`Bucket::refresh`] and [`charge`] say what becomes of
//! it. All numbers are integers, and all stay within 2^53 so that a script which counts in doubles
//! gives the same answers.
//!
//! A limit in shards takes from one of two of them or from both: [`charge_pair`]. What is to refuse
//! until an instant is brought there: [`block`].
//!
//! There is no clock here, no lock, no I/O and no async: [`Backend`](crate::backend::Backend)s
//! apply these functions atomically.

#![deny(clippy::arithmetic_side_effects, clippy::as_conversions)]

mod block;
mod bucket;
mod calculate;
mod charge;
mod history;
mod pair;
mod rescale;
mod tokens;

pub use self::block::block;
pub use self::bucket::{Bucket, State, Units};
pub use self::calculate::{Calculation, calculate};
pub use self::charge::{Charged, Terms, Verdict, charge, refund, undo, untouched};
pub use self::history::{Violation, check_history};
pub use self::pair::{ChargedPair, charge_pair};
pub use self::rescale::rescale;
pub use self::tokens::Tokens;
