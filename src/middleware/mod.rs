//! The limiter as a tower layer, for servers and clients alike.
//!
//! [`RateLimiter::layer`](crate::RateLimiter::layer) makes a [`RateLimitLayer`]; around a service
//! it becomes a [`RateLimit`]. Each request's key is taken from its head, the limiter is asked, and
//! the request goes on or is answered with status 429 and the time to come back.
//!
//! ```
//! use std::convert::Infallible;
//!
//! use http::{Request, Response};
//! use tollgate::{Limit, MINUTE, Quota, RateLimiter, key};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! const PER_USER: Limit = Limit::new("per-user", Quota::token_bucket(1, MINUTE));
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Infallible> {
//! let hello = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new("hello")));
//! let service = RateLimiter::in_memory().layer(PER_USER).key(key::header("x-user")).layer(hello);
//!
//! let ask = || Request::builder().header("x-user", "alice").body(()).unwrap();
//! let response = service.clone().oneshot(ask()).await?;
//! assert_eq!(response.headers()["ratelimit"], "\"per-user\";r=0;t=60");
//!
//! let response = service.oneshot(ask()).await?;
//! assert_eq!(response.status(), 429);
//! assert_eq!(response.headers()["retry-after"], "60");
//! # Ok(())
//! # }
//! ```
//!
//! Everything about a rule can be said where it is made:
//!
//! ```
//! use tollgate::fields::Dialect;
//! use tollgate::key::{ClientIp, header};
//! use tollgate::middleware::{MissingKey, OnFailure};
//! use tollgate::{HOUR, Limit, Quota, RateLimiter};
//!
//! const EXPORTS: Limit = Limit::new("exports", Quota::fixed_window(100, HOUR));
//!
//! let layer = RateLimiter::in_memory()
//!     .layer(EXPORTS)
//!     .key((header("x-tenant"), ClientIp::peer()))
//!     .cost_with(|head| if head.uri().path().ends_with(".zip") { 10 } else { 1 })
//!     .missing_key(MissingKey::Reject(http::StatusCode::UNAUTHORIZED))
//!     .on_failure(OnFailure::Open)
//!     .dialects(Dialect::None);
//! # drop(layer);
//! ```
//!
//! Requests that are short of tokens wait for their turn, where the rule says so:
//!
//! ```
//! use std::convert::Infallible;
//! use std::time::Duration;
//!
//! use http::{Request, Response};
//! use tollgate::{Limit, Quota, RateLimiter, SECOND};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! const SPACED: Limit = Limit::new("spaced", Quota::token_bucket(10, SECOND).capacity(0));
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Infallible> {
//! let hello = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new("hello")));
//! let layer = RateLimiter::in_memory().layer(SPACED).queue(Duration::from_secs(1));
//! let response = layer.layer(hello).oneshot(Request::new(())).await?;
//! assert_eq!(response.headers()["server-timing"], "queue;dur=100.000;desc=\"spaced\"");
//! # Ok(())
//! # }
//! ```
//!
//! A rule can count by the response, be of some requests only, and watch before it refuses:
//!
//! ```
//! use http::{Method, StatusCode};
//! use tollgate::key::header;
//! use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimiter};
//!
//! const FAILURES: Limit = Limit::new("failed-logins", Quota::token_bucket(5, HOUR));
//! const PLANNED: Limit = Limit::new("logins", Quota::token_bucket(10, MINUTE));
//!
//! let layer = RateLimiter::in_memory()
//!     .layer(FAILURES)
//!     .key(header("x-user"))
//!     .only_methods([Method::POST])
//!     .refund_if(|response| response.status() != StatusCode::UNAUTHORIZED)
//!     .and(PLANNED)
//!     .key(header("x-user"))
//!     .shadow();
//! # drop(layer);
//! ```
//!
//! # Design
//!
//! The layer never changes the error of the inner service: a refusal is a response. The service
//! that was made ready is the one that is called, so that services which reserve something in
//! `poll_ready` work as they should. Where the store answers at once, as the memory store does, the
//! inner service is called within `call`, and nothing is boxed or cloned. The inner service has to
//! be `Clone` for those that answer later; tower's `Buffer` makes any service so.
//!
//! A request that has to wait lets go of the service that was made ready for it, as that may hold
//! something which others need meanwhile, and makes another one ready when its turn has come. Those
//! behind it are let go once it has called that one, or was told to wait by it: so the inner service
//! is called in the order of admission.

mod action;
mod actual_cost;
mod admission;
mod advertise;
mod body;
mod chosen_limit;
mod decide;
mod future;
mod layer;
mod ledger;
mod log;
mod missing_key;
mod on_failure;
mod on_refusal;
mod on_response;
mod plan;
mod planned_rule;
mod portion;
mod queue;
mod queued;
mod reject;
mod response_head;
mod rule;
mod rule_builder;
mod rule_options;
mod rules;
mod service;
mod setup_check;
mod shadow;

pub use self::actual_cost::{ActualCost, Meter};
pub use self::admission::Admission;
pub use self::body::ResponseBody;
pub use self::chosen_limit::ChosenLimit;
pub use self::future::ResponseFuture;
pub use self::layer::{IsOne, One, RateLimitLayer, Several};
pub use self::missing_key::MissingKey;
pub use self::on_failure::OnFailure;
pub use self::on_refusal::{OnRefusal, Refused};
pub use self::portion::{Portion, PortionError};
pub use self::queue::{Queue, QueueFull};
pub use self::response_head::ResponseHead;
pub use self::rule::Rule;
pub use self::service::RateLimit;
