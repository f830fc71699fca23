//! What responses tell clients: header fields, and the answers to requests that are refused.
//!
//! By default, the fields are those of the IETF draft "RateLimit header fields for HTTP", version 11
//! (`draft-ietf-httpapi-ratelimit-headers-11`), with `Retry-After` of RFC 9110, section 10.2.3.
//! Refusals are problem details (RFC 9457) with status 429 (RFC 6585, section 4); a gRPC request gets
//! a status of gRPC. [`Dialect`] is a guide to the other fields that a layer can send.
//!
//! # Design
//!
//! What depends on the limit alone is laid out once: the text of its policy (`policy`), and for a
//! layer the map of its header fields (`template`). A response clones such a map and fills in the
//! numbers. Most layers have one limit and speak draft 11: `lone` has all that they say. A `field_set`
//! is what any other response gets; it is written in front of the fields that an inner layer has left.

mod dialect;
mod field_set;
mod grpc;
mod list;
mod lone;
mod most_constrained;
mod number;
mod partition_key;
mod policies;
mod policy;
mod problem;
mod rejection;
mod retry_after;
mod template;

pub use self::dialect::{Dialect, Dialects};
pub(crate) use self::field_set::{FieldSet, FieldSetBuilder, Member};
pub(crate) use self::grpc::{has_grpc_failed, is_grpc, status_of};
pub(crate) use self::lone::LoneTemplate;
pub use self::partition_key::PartitionKey;
pub(crate) use self::policy::{FieldNumbers, PolicyText};
pub(crate) use self::rejection::{
    RetryHint, SERVER_TIMING, Wording, failure, put_content_length, put_no_store, put_retry_after,
    put_retry_soon, refusal, server_timing, too_large,
};
pub use self::retry_after::RetryAfter;
#[cfg(feature = "retry")]
pub(crate) use self::retry_after::read_retry_after;
pub(crate) use self::template::FieldTemplate;

/// `Cache-Control` of every refusal: a cache that keeps one would answer other clients by it.
const NO_STORE: http::HeaderValue = http::HeaderValue::from_static("no-store");
