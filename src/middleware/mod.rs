//! The limiter as a tower layer, for servers and clients alike.
//!
//! [`RateLimiter::layer`](crate::RateLimiter::layer) makes a [`RateLimitLayer`]; around a service
//! it becomes a [`RateLimit`]. For each request it takes the key from the head and asks the
//! limiter. The request runs, waits for its turn, or is answered with status 429 and the time to
//! come back.
//!
//! # Limit every request
//!
//! A bare limit takes one token of each request, from one bucket that all of them share:
//!
//! ```
//! use std::convert::Infallible;
//!
//! use http::{Request, Response};
//! use tollgate::{Limit, MINUTE, Quota, RateLimiter};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! const ALL: Limit = Limit::new("all", Quota::token_bucket(1, MINUTE));
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Infallible> {
//! let hello = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new("hello")));
//! let service = RateLimiter::in_memory().layer(&ALL).layer(hello);
//!
//! let response = service.clone().oneshot(Request::new(())).await?;
//! assert_eq!(response.headers()["ratelimit"], "\"all\";r=0;t=60");
//!
//! let response = service.oneshot(Request::new(())).await?;
//! assert_eq!(response.status(), 429);
//! assert_eq!(response.headers()["retry-after"], "60");
//! # Ok(())
//! # }
//! ```
//!
//! # By key
//!
//! With a key, each client, user or tenant has a bucket of its own. [`key`](crate::key) has the
//! usual extractors; a tuple of them is a key of several parts, and `key_with` takes any function
//! of the head. The cost may depend on the request as well. A missing key is answered with 500, as
//! it is usually a mistake of the server; where clients may leave it out, say what happens then:
//!
//! ```
//! use std::convert::Infallible;
//!
//! use http::{Request, Response, StatusCode};
//! use tollgate::key::header;
//! use tollgate::middleware::MissingKey;
//! use tollgate::{HOUR, Limit, Quota, RateLimiter, Rule};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! const EXPORTS: Limit = Limit::new("exports", Quota::fixed_window(10, HOUR));
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Infallible> {
//! let rule = Rule::new(&EXPORTS)
//!     .key(header("x-user"))
//!     .cost_with(|head| if head.uri().path().ends_with(".zip") { 10 } else { 1 })
//!     .missing_key(MissingKey::Reject(StatusCode::UNAUTHORIZED));
//! let hello = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new("hello")));
//! let service = RateLimiter::in_memory().layer(rule).layer(hello);
//!
//! let of = |user| Request::get("/all.zip").header("x-user", user).body(()).unwrap();
//! for (request, status) in [
//!     (of("alice"), 200),
//!     (of("alice"), 429),
//!     (of("bob"), 200),
//!     (Request::new(()), 401),
//! ] {
//!     assert_eq!(service.clone().oneshot(request).await?.status(), status);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Rule::limit_with`] chooses the limit itself by the request, such as that of a plan.
//!
//! # Several limits
//!
//! A limit with its key, its cost and its conditions is a [`Rule`]. A layer of several rules takes
//! from all limits or from none, in one step and one round trip to the store:
//!
//! ```
//! use std::convert::Infallible;
//!
//! use http::{Request, Response};
//! use tollgate::key::header;
//! use tollgate::{Limit, MINUTE, Quota, RateLimiter, Rule};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! const PER_USER: Limit = Limit::new("per-user", Quota::token_bucket(5, MINUTE));
//! const EVERYONE: Limit = Limit::new("everyone", Quota::token_bucket(1, MINUTE));
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Infallible> {
//! let limiter = RateLimiter::in_memory();
//! let layer = limiter.layer(Rule::new(&PER_USER).key(header("x-user"))).and(&EVERYONE);
//! let hello = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new("hello")));
//! let service = layer.layer(hello);
//!
//! let ask = || Request::builder().header("x-user", "alice").body(()).unwrap();
//! assert_eq!(service.clone().oneshot(ask()).await?.status(), 200);
//! // Refused by the shared limit, so the user pays nothing either.
//! assert_eq!(service.oneshot(ask()).await?.status(), 429);
//! assert_eq!(limiter.peek(&PER_USER).key("alice").await.unwrap().remaining(), 4);
//! # Ok(())
//! # }
//! ```
//!
//! # Queue
//!
//! In a layer with a [`Queue`], requests that are short of tokens wait for their turn, in the order
//! in which they came:
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
//! let layer = RateLimiter::in_memory().layer(&SPACED).queue(Duration::from_secs(1));
//! let response = layer.layer(hello).oneshot(Request::new(())).await?;
//! assert_eq!(response.headers()["server-timing"], "queue;dur=100.000;desc=\"spaced\"");
//! # Ok(())
//! # }
//! ```
//!
//! # Count by the response
//!
//! A rule can give its tokens back if the response says so, and so count failures only. All
//! requests pay up front, so many at once get no further than one after another:
//!
//! ```
//! use std::convert::Infallible;
//!
//! use http::{Method, Request, Response, StatusCode};
//! use tollgate::key::header;
//! use tollgate::{HOUR, Limit, Quota, RateLimiter, Rule};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! const FAILURES: Limit = Limit::new("failed-logins", Quota::token_bucket(5, HOUR));
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Infallible> {
//! let limiter = RateLimiter::in_memory();
//! let failures = Rule::new(&FAILURES)
//!     .key(header("x-user"))
//!     .only_methods([Method::POST])
//!     .refund_if(|response| response.status() != StatusCode::UNAUTHORIZED);
//! let login = service_fn(async |request: Request<StatusCode>| {
//!     Ok::<_, Infallible>(Response::builder().status(request.into_body()).body(()).unwrap())
//! });
//! let service = limiter.layer(failures).layer(login);
//!
//! for (status, left) in [(StatusCode::OK, 5), (StatusCode::UNAUTHORIZED, 4)] {
//!     let request = Request::post("/").header("x-user", "alice").body(status).unwrap();
//!     service.clone().oneshot(request).await?;
//!     assert_eq!(limiter.peek(&FAILURES).key("alice").await.unwrap().remaining(), left);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Rule::reset_if`] makes the bucket as new instead, as after a log-in that has succeeded.
//!
//! # Shadow and roll-out
//!
//! A [shadow](Rule::shadow) rule decides and reports, but refuses nothing: to see what a limit
//! would do. [`Rule::enforce`] then enforces it on more and more of the keys:
//!
//! ```
//! use std::convert::Infallible;
//!
//! use http::{Request, Response};
//! use tollgate::middleware::Portion;
//! use tollgate::{Limit, MINUTE, Quota, RateLimiter, Rule};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! const PLANNED: Limit = Limit::new("planned", Quota::token_bucket(1, MINUTE));
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Infallible> {
//! let hello = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new("hello")));
//! for (portion, last) in [(Portion::NONE, 200), (Portion::percent(100), 429)] {
//!     let rule = Rule::new(&PLANNED).enforce(portion); // of none: the same as `.shadow()`
//!     let service = RateLimiter::in_memory().layer(rule).layer(hello);
//!     assert_eq!(service.clone().oneshot(Request::new(())).await?.status(), 200);
//!     assert_eq!(service.oneshot(Request::new(())).await?.status(), last);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Settle
//!
//! Where the cost is known only when the work is done, requests pay an estimate, and the layer
//! settles it by the [`ActualCost`] of the response:
//!
//! ```
//! use std::convert::Infallible;
//!
//! use http::{Request, Response};
//! use tollgate::middleware::ActualCost;
//! use tollgate::{Limit, MINUTE, Quota, RateLimiter};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! const LLM: Limit = Limit::new("llm-tokens", Quota::token_bucket(40_000, MINUTE));
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Infallible> {
//! let model = service_fn(async |_: Request<()>| {
//!     let mut response = Response::new("forty-two");
//!     response.extensions_mut().insert(ActualCost::new(300));
//!     Ok::<_, Infallible>(response)
//! });
//! let limiter = RateLimiter::in_memory();
//! let service = limiter.layer(&LLM).cost(1_000).settle().layer(model);
//! service.oneshot(Request::new(())).await?;
//! assert_eq!(limiter.peek(&LLM).await.unwrap().remaining(), 39_700);
//! # Ok(())
//! # }
//! ```
//!
//! A handler that takes the [`Meter`] of its request counts as it goes, and so does the stream of
//! its response that keeps it. If the client goes away in the middle of either, what was counted so
//! far is paid, and the rest is given back:
//!
//! ```
//! use std::convert::Infallible;
//! use std::future::pending;
//!
//! use http::{Request, Response};
//! use tollgate::middleware::Meter;
//! use tollgate::{Limit, MINUTE, Quota, RateLimiter};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! const LLM: Limit = Limit::new("llm-tokens", Quota::token_bucket(40_000, MINUTE));
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), tollgate::RateLimited> {
//! let model = service_fn(async |request: Request<()>| {
//!     if let Some(meter) = Meter::from_extensions(request.extensions()) {
//!         meter.add(300);
//!     }
//!     pending::<()>().await; // the client goes away
//!     Ok::<_, Infallible>(Response::new("forty-two"))
//! });
//! let limiter = RateLimiter::in_memory();
//! let service = limiter.layer(&LLM).cost(1_000).settle().layer(model);
//! let response = service.oneshot(Request::new(()));
//! let timeout = tokio::time::timeout(MINUTE, response).await;
//! assert!(timeout.is_err());
//! assert_eq!(limiter.peek(&LLM).await?.remaining(), 39_700);
//! # Ok(())
//! # }
//! ```
//!
//! [`RateLimitLayer::refund_dropped`] gives everything back instead.
//!
//! # Handlers that look
//!
//! A layer that [exposes](RateLimitLayer::expose) what it has decided puts an [`Admission`] into
//! the request's extensions. By it a handler sees how its limits stand, takes more, or settles by
//! itself. In axum it is an extractor:
//!
//! ```
//! use axum::Router;
//! use axum::body::{Body, to_bytes};
//! use axum::routing::get;
//! use http::Request;
//! use tollgate::middleware::Admission;
//! use tollgate::{Limit, MINUTE, Quota, RateLimitExt, RateLimited, RateLimiter};
//! use tower::ServiceExt;
//!
//! const SEARCHES: Limit = Limit::new("searches", Quota::token_bucket(10, MINUTE));
//!
//! async fn search(admission: Admission) -> Result<String, RateLimited> {
//!     admission.charge(4).await?; // a slow one, as it turns out: 429 if that is not left
//!     Ok(format!("{:?} left", admission.remaining()))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let layer = RateLimiter::in_memory().layer(&SEARCHES).expose();
//! let app: Router = Router::new().route("/", get(search).rate_limit(layer));
//! let response = app.oneshot(Request::new(Body::empty())).await?;
//! assert_eq!(to_bytes(response.into_body(), 100).await?, "Some(5) left");
//! # Ok(())
//! # }
//! ```
//!
//! # Answer in other words
//!
//! What concerns the layer as a whole is set on the layer: how it [words](OnRefusal) a refusal,
//! which [header fields](crate::fields::Dialect) it sends, and what it does while the store
//! [fails](OnFailure):
//!
//! ```
//! use std::convert::Infallible;
//!
//! use http::{Request, Response};
//! use tollgate::fields::Dialect;
//! use tollgate::middleware::{OnFailure, OnRefusal};
//! use tollgate::{Limit, MINUTE, Quota, RateLimiter};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! const API: Limit = Limit::new("api", Quota::token_bucket(1, MINUTE));
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Infallible> {
//! let layer = RateLimiter::in_memory()
//!     .layer(&API)
//!     .dialects(Dialect::XRateLimit)
//!     .on_refusal(OnRefusal::plain_text())
//!     .on_failure(OnFailure::Admit);
//! let hello = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new("hello")));
//! let response = layer.layer(hello).oneshot(Request::new(())).await?;
//! assert_eq!(response.headers()["x-ratelimit-remaining"], "0");
//! # Ok(())
//! # }
//! ```
//!
//! # Design
//!
//! The layer never changes the error of the inner service: a refusal is a response. The service
//! that was made ready is the one that is called, so that services which reserve something in
//! `poll_ready` work as they should. If the store answers at once, as the memory store does, the
//! inner service is called within `call`, and nothing is boxed or cloned. The inner service has to
//! be `Clone` for stores that answer later; tower's `Buffer` makes any service so.
//!
//! A request that has to wait lets go of the service that was made ready for it, as that may hold
//! something that other requests need meanwhile, and makes another one ready when its turn has
//! come. The requests behind it are released once it has called that service, or was told to wait
//! by it: so the inner service is called in the order of admission.

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
#[cfg(feature = "memory")]
mod lone;
mod meter;
mod missing_key;
mod on_failure;
mod on_refusal;
mod on_response;
mod plan;
mod planned_rule;
mod portion;
mod queue;
mod queued_call;
mod reject;
mod response_head;
mod rule;
mod rule_builder;
mod rule_options;
mod rules;
mod service;
mod setup_check;
mod shadow;
mod waiter_counter;

pub use self::actual_cost::ActualCost;
pub use self::admission::Admission;
pub use self::body::ResponseBody;
pub use self::chosen_limit::ChosenLimit;
pub use self::future::ResponseFuture;
pub use self::layer::{IsOne, One, RateLimitLayer, Several};
pub use self::meter::Meter;
pub use self::missing_key::MissingKey;
pub use self::on_failure::OnFailure;
pub use self::on_refusal::{OnRefusal, RefusedRequest};
pub use self::portion::{Portion, PortionError};
pub use self::queue::{Queue, QueueFull};
pub use self::response_head::ResponseHead;
pub use self::rule::Rule;
pub use self::service::RateLimit;
