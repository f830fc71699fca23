//! What clients are told: header fields and refusals.
//!
//! By default, the fields are those of the IETF draft "RateLimit header fields for HTTP", version 11
//! (`draft-ietf-httpapi-ratelimit-headers-11`), with `Retry-After` of RFC 9110, section 10.2.3.
//! Refusals are problem details (RFC 9457) with status 429 (RFC 6585, section 4), or a status of gRPC
//! where that is asked. [`Dialect`] is a guide to the dialects that there are.

mod dialect;
mod field_set;
mod grpc;
mod list;
mod most_constrained;
mod number;
mod partition_key;
mod policy;
mod problem;
mod rejection;
mod retry_after;
mod template;

pub use self::dialect::{Dialect, Dialects};
pub(crate) use self::field_set::{Known, Teller, Told, member};
pub(crate) use self::grpc::{has_grpc_failed, is_grpc};
pub use self::partition_key::PartitionKey;
pub(crate) use self::policy::Label;
pub(crate) use self::rejection::{
    ComeBack, Form, SERVER_TIMING, failure, put_retry_after, put_soon, quota_exceeded, refusal,
    too_large, waited,
};
pub use self::retry_after::RetryAfter;
pub(crate) use self::template::Ready;
