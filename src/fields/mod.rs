//! What clients are told: header fields and refusals.
//!
//! By default, the fields are those of the IETF draft "RateLimit header fields for HTTP", version 11
//! (`draft-ietf-httpapi-ratelimit-headers-11`), with `Retry-After` of RFC 9110, section 10.2.3.
//! Refusals are problem details (RFC 9457) with status 429 (RFC 6585, section 4), or a status of gRPC
//! where that is asked. [`Fields`] is a guide to the dialects that there are.

mod fields;
mod grpc;
mod label;
mod list;
mod nearest;
mod number;
mod partition_key;
mod problem;
mod ready;
mod response;
mod retry_after;
mod told;

pub use self::fields::{Dialects, Fields};
pub(crate) use self::grpc::{has_grpc_failed, is_grpc};
pub(crate) use self::label::Label;
pub use self::partition_key::PartitionKey;
pub(crate) use self::ready::Ready;
pub(crate) use self::response::{
    ComeBack, Form, SERVER_TIMING, failure, put_retry_after, put_soon, quota_exceeded, refusal,
    too_large, waited,
};
pub use self::retry_after::RetryAfter;
pub(crate) use self::told::{Known, Teller, Told, member};
