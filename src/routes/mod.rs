//! For axum: limits on routes, keys from extractors, refusals as responses, and
//! [`Admission`](crate::middleware::Admission) in handlers.
//!
//! ```
//! use axum::Router;
//! use axum::routing::{get, post};
//! use tollgate::routes::RateLimitExt;
//! use tollgate::key::{ClientIp, header};
//! use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimiter};
//!
//! const PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(10, MINUTE));
//! const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));
//!
//! let limiter = RateLimiter::in_memory();
//! let app: Router = Router::new()
//!     .route("/", get(async || "hello"))
//!     .route(
//!         "/login",
//!         post(async || "welcome").rate_limit(limiter.layer(LOGIN).key(header("x-user"))),
//!     )
//!     .layer(limiter.layer(PER_CLIENT).key(ClientIp::peer()));
//! # drop(app);
//! ```

mod admission;
mod annotate;
mod extract;
mod response;

pub use self::admission::MissingAdmission;
pub use self::annotate::RateLimitExt;
pub use self::extract::{Extract, ExtractFuture, ExtractLayer, extract};
