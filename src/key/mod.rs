//! Keys: which client, user or tenant a request belongs to.
//!
//! Each key of a limit has a bucket of its own. A [`KeyExtractor`] takes the key from the [`Head`]
//! of a request. Choose it by what the limit is for:
//!
//! | requests are limited by | extractor |
//! |---|---|
//! | the address of the client | [`ClientIp::peer`], or [`ClientIp::x_forwarded_for`] behind proxies |
//! | the user or tenant that your authentication established | [`extension`](extension()), [`header`](header()) |
//! | a token, an API key or a cookie | `bearer`, `api_key`, `cookie` |
//! | a session of `tower-sessions` or the like | [`extension`](extension()), with the digest of its id |
//! | the route, in axum | `matched_path` |
//! | anything else in the head | [`from_fn`](from_fn()) |
//! | nothing: one bucket for all requests | [`global`](global()) |
//!
//! ```
//! use tollgate::key::{ClientIp, header};
//! use tollgate::{Limit, MINUTE, Quota, RateLimiter};
//!
//! const PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(10, MINUTE));
//! const PER_USER: Limit = Limit::new("per-user", Quota::token_bucket(60, MINUTE));
//!
//! let limiter = RateLimiter::in_memory();
//! let per_client = limiter.layer(&PER_CLIENT).key(ClientIp::peer());
//! let per_user = limiter.layer(&PER_USER).key(header("x-user"));
//! # drop((per_client, per_user));
//! ```
//!
//! A limit does not protect a server from clients that can choose their key: they get a new bucket
//! for each key that they make up. Use keys that a client cannot choose, or add a limit by address.
//!
//! # Combinations
//!
//! A tuple makes a bucket for each combination of keys. [`or`](KeyExtractor::or) takes a second key
//! if the first is missing, and [`unless`](KeyExtractor::unless) exempts requests:
//!
//! ```
//! use tollgate::key::{ClientIp, KeyExtractor, header};
//!
//! let each_address_of_each_tenant = (header("x-tenant"), ClientIp::peer());
//! let user_or_address = header("x-user").or(ClientIp::peer());
//! let all_but_health_checks = ClientIp::x_forwarded_for(["10.0.0.0/8"])
//!     .unless(|head| head.uri().path() == "/health");
//! # drop((each_address_of_each_tenant, user_or_address, all_but_health_checks));
//! ```
//!
//! # Details
//!
//! The feature `credentials` adds `bearer`, `api_key` and `cookie`. Their keys are digests of the
//! secrets.
//!
//! Extractors are not async. If a key takes a query, such as for the user of a token, run the query
//! in a layer outside of the limit, and leave its result in the extensions of the request. For any
//! extractor of axum, `tollgate::routes::extract` makes such a layer. For a key in the body,
//! `tollgate::routes::extract_body` does, and [`buffer_body`](crate::middleware::buffer_body())
//! without axum.
//!
//! To choose the limit itself by the request, such as by plan, method or path, see
//! [`Rule::limit_with`](crate::Rule::limit_with).

#[cfg(feature = "credentials")]
mod bearer;
mod client_ip;
#[cfg(feature = "credentials")]
mod cookie;
#[cfg(feature = "credentials")]
mod digest;
mod extension;
mod extractor;
mod from_fn;
mod global;
mod head;
mod header;
mod key_error;
#[cfg(feature = "axum")]
mod matched_path;
mod setup_warning;
mod tuples;

pub use self::client_ip::{ClientIp, Networks, Proxies};
#[cfg(feature = "credentials")]
pub use self::cookie::{cookie, try_cookie};
#[cfg(feature = "credentials")]
pub use self::digest::digest;
pub use self::extension::extension;
pub(crate) use self::extractor::empty_key;
pub use self::extractor::{Extracted, KeyExtractor};
pub(crate) use self::from_fn::FromFn;
pub use self::from_fn::{IntoExtracted, from_fn};
pub use self::global::global;
pub use self::head::Head;
pub use self::header::{Header, header};
#[cfg(feature = "credentials")]
pub use self::header::{api_key, bearer};
pub use self::key_error::KeyError;
#[cfg(feature = "axum")]
pub use self::matched_path::matched_path;
pub(crate) use self::setup_warning::Beside;
pub use self::setup_warning::SetupWarning;
pub use crate::backend::Key;

pub(crate) mod kit {
    pub use super::header::ADDRESS_FIELDS;
}
