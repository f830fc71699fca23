//! What the other crates of the workspace share with this one.
//!
//! It is no part of the public interface, and may change with every version: these crates are
//! released together, and each names the version of this one exactly.
//!
//! | item | for |
//! |---|---|
//! | [`excerpt`] | texts of others in errors: short, on one line |
//! | [`parse_period`], [`Calendar`], [`Quota::read`](crate::Quota::read) | the numbers of a quota, field by field |
//! | [`ADDRESS_FIELDS`] | fields that are no key, in a file as in code |
//! | [`Random`] | jitter |
//! | `problem` | a response of problem details (RFC 9457) |
//! | [`NameTable`], `COUNT` and `index` of [`Outcome`](crate::limiter::Outcome) and the like | what observers keep for each limit |
//! | [`Bucket::part_of`](crate::algebra::Bucket::part_of), [`Quota::windows`](crate::Quota::windows) | changed numbers and calendars in the suite for stores |
//! | [`explain_cost`] | a cost that its limit can never grant, before the first request |

pub use crate::algebra::MOST_AHEAD;
pub use crate::backend::kit::*;
pub use crate::clock::kit::*;
pub use crate::clock::not_before;
#[cfg(feature = "middleware")]
pub use crate::fields::problem_response as problem;
#[cfg(feature = "middleware")]
pub use crate::key::kit::*;
pub use crate::limiter::kit::*;
pub use crate::quota::kit::*;
pub use crate::quota::{Kind, MAX_UNITS};
