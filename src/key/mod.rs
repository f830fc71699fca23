//! Keys: which client, user or tenant a request belongs to, and how to take that from the request.
//!
//! A [`KeyExtractor`] reads the [`Head`] of a request and names the bucket that its tokens come from.
//! The functions here make the usual extractors, tuples combine them, and [`from_fn()`] takes any closure.
//!
//! ```
//! use tollgate::key::{self, ClientIp, KeyExtractor, Networks};
//! # fn takes(_: impl KeyExtractor) {}
//! # #[derive(Clone)] struct Tenant { id: u64 }
//!
//! # takes(
//! ClientIp::peer()                                       // the address of the peer
//! # ); takes(
//! ClientIp::x_forwarded_for(Networks::new(["10.0.0.0/8"])) // the client's, behind these proxies
//! # ); takes(
//! key::header("x-user")                                  // a header field
//! # ); takes(
//! key::extension(|tenant: &Tenant| tenant.id)            // what another layer knows
//! # ); takes(
//! key::from_fn(|head| if head.method().is_safe() { "reads" } else { "writes" }) // anything
//! # ); takes(
//! (key::header("x-tenant"), ClientIp::peer())            // each address of each tenant
//! # ); takes(
//! key::header("x-user").or(ClientIp::peer())             // the second if the first is missing
//! # ); takes(
//! ClientIp::peer().unless(|head| head.uri().path() == "/health") // all but health checks
//! # );
//! ```
//!
//! The feature `credentials` adds `bearer`, `api_key` and `cookie`, which keep only a digest of the secret,
//! and `tower-sessions` adds `session`. Extractors cannot wait. What has to, such as a query for the user,
//! runs in a layer outside of the limit that leaves its result as a request extension;
//! `tollgate::routes::extract` makes such a layer of any extractor of axum.
//!
//! To choose the limit itself by the request (by plan, method or path), see
//! [`limit_with`](crate::Rule::limit_with).

#[cfg(feature = "credentials")]
mod api_key;
#[cfg(feature = "credentials")]
mod bearer;
mod claim;
mod client_ip;
#[cfg(feature = "credentials")]
mod cookie;
#[cfg(feature = "credentials")]
mod digest;
mod extension;
mod extractor;
mod field_value;
mod from_fn;
mod global;
mod head;
mod header;
mod key_error;
#[cfg(feature = "axum")]
mod matched_path;
#[cfg(feature = "tower-sessions")]
mod session;
mod setup_warning;
mod tuples;

#[cfg(feature = "credentials")]
pub use self::api_key::{ApiKey, api_key};
#[cfg(feature = "credentials")]
pub use self::bearer::{Bearer, bearer};
pub use self::claim::{Claim, claim};
pub use self::client_ip::{ClientIp, NetworkError, Networks, Proxies};
#[cfg(feature = "credentials")]
pub use self::cookie::{Cookie, cookie};
#[cfg(feature = "credentials")]
pub use self::digest::digest;
pub use self::extension::{Extension, extension};
pub use self::extractor::{Extracted, KeyExtractor, Or, Unless};
pub use self::from_fn::{FromFn, IntoExtracted, from_fn};
pub use self::global::{Global, global};
pub use self::head::Head;
pub use self::header::{Header, header};
pub use self::key_error::KeyError;
#[cfg(feature = "axum")]
pub use self::matched_path::{MatchedPath, matched_path};
#[cfg(feature = "tower-sessions")]
pub use self::session::{Session, session};
pub use self::setup_warning::SetupWarning;
pub use crate::backend::Key;
