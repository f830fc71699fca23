//! What responses show clients about their limits: header fields, and the responses to refusals.
//!
//! By default, every response shows how the limits stand, in the fields of the [IETF
//! draft](https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11) "RateLimit
//! header fields for HTTP", version 11. A refusal also has `Retry-After`:
//!
//! ```text
//! HTTP/1.1 429 Too Many Requests
//! RateLimit-Policy: "api";q=10;w=60
//! RateLimit: "api";r=0;t=6
//! Retry-After: 6
//! Content-Type: application/problem+json
//! Cache-Control: no-store
//!
//! {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",
//!  "title":"Quota Exceeded","status":429,"violated-policies":["api"]}
//! ```
//!
//! Choose other fields by their [`Dialect`], and the form of `Retry-After` by a method of the layer:
//!
//! ```
//! use tollgate::fields::Dialect;
//! use tollgate::{Limit, MINUTE, Quota, RateLimiter};
//!
//! const API: Limit = Limit::new("api", Quota::token_bucket(10, MINUTE));
//!
//! let layer = RateLimiter::in_memory()
//!     .layer(&API)
//!     .dialects(Dialect::XRateLimit)
//!     .retry_after_date();
//! # drop(layer);
//! ```
//!
//! [`OnRefusal`](crate::middleware::OnRefusal) sets the body of a refusal, which is problem details
//! (RFC 9457) by default. A gRPC request gets a status of gRPC instead.
//!
//! # Design
//!
//! The text that depends on the limit alone is formatted once, in `policy`. Most layers have one limit
//! and send draft 11: the text of such a limit is kept for as long as the process runs, and responses
//! add the numbers. All other responses use a `field_set`. Both are written in front of the fields of
//! inner layers.

mod dialect;
mod exact_wait;
mod field_set;
mod foreign;
mod grpc;
mod list;
mod most_constrained;
mod number;
mod partition_key;
mod policy;
mod problem;
mod rejection;
mod retry_after;

pub use self::dialect::Dialect;
pub(crate) use self::dialect::Dialects;
pub use self::exact_wait::ExactWait;
pub(crate) use self::exact_wait::put_exact_wait;
pub(crate) use self::field_set::{FieldSet, FieldSetBuilder, Member};
pub(crate) use self::foreign::ForeignFields;
pub(crate) use self::grpc::{has_grpc_failed, is_grpc, status_of};
pub(crate) use self::partition_key::PartitionKey;
pub(crate) use self::policy::{FieldNumbers, KeptPolicy, PolicyText};
#[cfg(feature = "axum")]
pub(crate) use self::problem::push_string as push_json_string;
#[doc(hidden)]
pub use self::rejection::problem_response;
pub(crate) use self::rejection::{
    RetryHint, SERVER_TIMING, SOON, Wording, failure, put_challenge, put_content_length,
    put_no_store, put_retry_after, refusal, refusal_by, refusal_for_good, server_timing,
};
pub(crate) use self::retry_after::RetryAfter;

/// `Cache-Control` of every refusal: a cache that keeps one would answer other clients by it.
const NO_STORE: http::HeaderValue = http::HeaderValue::from_static("no-store");
