//! What clients are told: header fields and problem details.
//!
//! The fields are those of the IETF draft "RateLimit header fields for HTTP", version 11
//! (`draft-ietf-httpapi-ratelimit-headers-11`), with `Retry-After` of RFC 9110, section 10.2.3.
//! Refusals are problem details (RFC 9457) with status 429 (RFC 6585, section 4).

mod fields;
mod label;
mod problem;
mod response;

pub use self::fields::Fields;
pub(crate) use self::fields::Told;
pub(crate) use self::label::{Label, List};
pub(crate) use self::response::{
    SERVER_TIMING, failure, quota_exceeded, refusal, too_large, waited,
};
