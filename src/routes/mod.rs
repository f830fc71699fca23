//! Axum: limits on routes, refusals as responses, keys from extractors, and handlers that look.
//!
//! # Limits on routes
//!
//! [`RateLimitExt`] adds the method `rate_limit` to routes and routers:
//!
//! ```
//! use axum::Router;
//! use axum::routing::{get, post};
//! use tollgate::key::{ClientIp, header};
//! use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimitExt, RateLimiter};
//!
//! const PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(10, MINUTE));
//! const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));
//!
//! let limiter = RateLimiter::in_memory();
//! let login = limiter.layer(&LOGIN).key(header("x-user"));
//! let app: Router = Router::new()
//!     .route("/", get(async || "hello"))
//!     .route("/login", post(async || "welcome").rate_limit(login))
//!     .layer(limiter.layer(&PER_CLIENT).key(ClientIp::peer()));
//! # drop(app);
//! ```
//!
//! # Limits in handlers
//!
//! A handler that returns `Result<_, RateLimited>` answers a refusal by `?`, with status 429:
//!
//! ```
//! use axum::extract::State;
//! use axum::response::IntoResponse;
//! use tollgate::{DAY, Limit, Quota, RateLimited, RateLimiter};
//!
//! const EXPORTS: Limit = Limit::new("exports", Quota::fixed_window(1, DAY));
//!
//! async fn export(State(limiter): State<RateLimiter>) -> Result<String, RateLimited> {
//!     let permit = limiter.limit(&EXPORTS).key("alice").await?;
//!     Ok(format!("{} left for today", permit.remaining()))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let limiter = RateLimiter::in_memory();
//! for status in [200, 429] {
//!     let response = export(State(limiter.clone())).await.into_response();
//!     assert_eq!(response.status(), status);
//! }
//! # }
//! ```
//!
//! The limiter's [`dialects`](crate::RateLimiter::dialects) and
//! [`on_refusal`](crate::RateLimiter::on_refusal) say how such a refusal reads. A handler that
//! returns its permit, or a [`Snapshot`](crate::Snapshot) of it, beside its response shows clients
//! how the limit stands.
//!
//! # Keys from extractors
//!
//! A key extractor cannot wait, for example for a query. [`extract`] runs an extractor of axum
//! before the limit, and keeps its result for the key. [`extract_body`](extract_body()) does so for
//! extractors that read the body, such as `Json`. See there for examples.
//!
//! # What handlers can see and do
//!
//! [`Admission`](crate::middleware::Admission) and [`Meter`](crate::middleware::Meter) are
//! extractors. The first shows a handler how its limits stand, the second counts what a request
//! costs. If no layer around the route provides them, the response is 500.
//!
//! # Routes for operators
//!
//! The crate `tollgate-admin` makes routes that show limits and keys, and reset, penalize and block. They
//! are nowhere unless you mount them, behind your authentication.
//!
//! # What clients have left
//!
//! [`remaining`] tells a client how its limits stand, without a charge. The JavaScript module
//! [`PREDICTOR`] predicts from that what later requests will get.

mod admission;
mod extract;
mod extract_body;
mod meter;
mod misuse;
mod predictor;
mod remaining;
mod response;
mod route;

pub use self::extract::{Extract, extract};
pub use self::extract_body::extract_body;
pub use self::predictor::{PREDICTOR, predictor};
pub use self::remaining::remaining;
pub use self::route::RateLimitExt;
