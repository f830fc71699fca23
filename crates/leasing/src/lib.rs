//! Leasing for tollgate: a node takes the tokens of a hot limit in lots, and serves them from its memory.
//!
//! [`Leasing`] goes around any store. The [guide] has the bound, the figures, and what it costs.
//!
//! # Design
//!
//! All rules are in the nodes. The store keeps one bucket of two numbers for each key, charged as
//! always. It keeps no list of nodes or lots, and its scripts know nothing of leasing.
//!
//! **Dated lots.** A lot is void one *life* `H` after its node has *sent* the question, whatever the
//! answer says. For a token bucket with the capacity `C` and the gain `g`, the bucket of the store
//! has the capacity `C - g·H`. A token that is used at `u` was charged after `u - H`. So what is
//! used in a window was charged in a window that is longer by `H`, in which the store charges at
//! most `C - g·H + g·(length + H) = C + g·length`. A fixed window holds nothing back: its lots end
//! with the window.
//!
//! **The line.** Lots leave a floor `F` for single requests. A lot that leaves less than a level `L`
//! starts later: when the bucket would be at `L` again. So nodes that are short of tokens queue
//! between `L` and `F`, and each knows its instant. All see the same line and arrive at the same
//! size of lots, which makes the line a fair one. The bound does not need it.
//!
//! **The floor** is no operation of its own. A question is a list of two charges: one that takes the
//! lot, and one of `F` that only looks. The second is judged by what the first one leaves, and if it
//! is refused, so is the list.
//!
//! **Giving back.** The store credits what comes back less what it has gained since the charge. So
//! its bucket never holds more than if the returned tokens had never been charged.
//!
//! **Permits.** Tokens of a permit go back to the lot that has paid them, or to one that was charged
//! before they were. If that lot is void they are lost, since the refill has replaced them. They
//! never go to a lot that was charged later: it would outlive their charge.
//!
//! **Lists** of charges take from lots first, and then from the store. Unless the store admits its
//! part, the lots have not paid: not after a refusal, and not after an error. If the caller goes
//! away, a task waits for the answer in its place.
//!
//! **Looks.** A lot that no request uses goes back while that is worth a trip. A heap names the instants
//! at which to look at such lots, so a tick costs nothing for all other buckets.
//!
//! ```text
//! terms         the numbers of a lease, from those of the limit
//! node          the state machine: time and events in, decisions and messages out
//! driver        the clock, the trips, the callers that wait
//! lease_error   why a limit cannot be leased
//! ```

#![warn(clippy::unwrap_used, clippy::expect_used)]
#![cfg_attr(not(test), warn(clippy::as_conversions, clippy::indexing_slicing))]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod driver;
mod lease_error;
mod node;
mod terms;
#[cfg(test)]
mod tests;

/// The guide.
#[cfg(any(doc, doctest))]
#[doc = include_str!("links.md")]
#[doc = include_str!("plots.md")]
#[doc = include_str!("../docs/leasing.md")]
pub mod guide {}

pub use self::driver::Leasing;
pub use self::lease_error::LeaseError;
