//! The rate limiter as a tower layer, for servers and for clients.
//!
//! [`RateLimiter::layer`](crate::RateLimiter::layer) makes a [`RateLimitLayer`] of a limit. Around
//! a service, the layer becomes a [`RateLimit`]. For each request, it takes the key from the head
//! and charges the bucket of that key. The request then runs, waits for its turn, or is answered
//! with status 429 and `Retry-After`. The sections below each show one use.
//!
//! # Every request, by client address
//!
//! Add the layer to the whole router, with [`ClientIp`](crate::key::ClientIp) as the key. Each
//! client then has a bucket of its own. Without `key`, all requests share one bucket.
//!
//! ```
//! use std::net::SocketAddr;
//!
//! use axum::{Router, routing::get};
//! use tollgate::key::ClientIp;
//! use tollgate::{Limit, MINUTE, Quota, RateLimiter};
//!
//! const PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(10, MINUTE));
//!
//! let app: Router = Router::new()
//!     .route("/", get(async || "hello"))
//!     .layer(RateLimiter::in_memory().layer(&PER_CLIENT).key(ClientIp::peer()));
//! // This passes the address of each peer to the layer. Without it, every response is 500.
//! let service = app.into_make_service_with_connect_info::<SocketAddr>();
//! # drop(service);
//! ```
//!
//! Behind a proxy, the peer is the proxy: name the proxies that you trust, as in
//! [`ClientIp::x_forwarded_for`](crate::key::ClientIp::x_forwarded_for). The module
//! [`key`](crate::key) has the extractors for users, API keys and tenants.
//!
//! # A route with a limit of its own
//!
//! In axum, [`rate_limit`](crate::RateLimitExt::rate_limit) puts a limit on one route:
//!
//! ```
//! use axum::{Router, routing::post};
//! use tollgate::key::header;
//! use tollgate::{HOUR, Limit, Quota, RateLimitExt, RateLimiter};
//!
//! const EXPORTS: Limit = Limit::new("exports", Quota::fixed_window(10, HOUR));
//!
//! let exports = RateLimiter::in_memory().layer(&EXPORTS).key(header("x-user"));
//! let app: Router = Router::new().route("/export", post(async || "done").rate_limit(exports));
//! # drop(app);
//! ```
//!
//! A request without this header field is answered with 400. [`Rule::missing_key`] sets another
//! answer.
//!
//! # What a refusal looks like
//!
//! The client gets status 429, the seconds to wait, how the limit stands, and problem details that
//! name the limit:
//!
//! ```
//! use std::convert::Infallible;
//!
//! use http::{Request, Response};
//! use tollgate::{Limit, MINUTE, Quota, RateLimiter};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! const API: Limit = Limit::new("api", Quota::token_bucket(1, MINUTE));
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Infallible> {
//! let hello = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new("hello")));
//! let service = RateLimiter::in_memory().layer(&API).layer(hello);
//!
//! let admitted = service.clone().oneshot(Request::new(())).await?;
//! assert_eq!(admitted.headers()["ratelimit"], "\"api\";r=0;t=60");
//!
//! let refused = service.oneshot(Request::new(())).await?;
//! assert_eq!(refused.status(), 429);
//! assert_eq!(refused.headers()["retry-after"], "60");
//! assert_eq!(refused.headers()["content-type"], "application/problem+json");
//! # Ok(())
//! # }
//! ```
//!
//! The layer can send [other header fields](crate::fields::Dialect), plain text, or the response of
//! [your own handler](OnRefusal::handler):
//!
//! ```
//! use tollgate::fields::Dialect;
//! use tollgate::middleware::OnRefusal;
//! use tollgate::{Limit, MINUTE, Quota, RateLimiter};
//!
//! const API: Limit = Limit::new("api", Quota::token_bucket(10, MINUTE));
//!
//! let layer = RateLimiter::in_memory()
//!     .layer(&API)
//!     .dialects(Dialect::XRateLimit)
//!     .on_refusal(OnRefusal::plain_text());
//! # drop(layer);
//! ```
//!
//! # Log-ins that fail
//!
//! [`Rule::refund_if`] returns the tokens of a request if the response shows that it should not
//! count. All requests pay up front, so 1,000 wrong passwords at once are limited like 1,000 in a
//! row:
//!
//! ```
//! use http::{Method, StatusCode};
//! use tollgate::key::header;
//! use tollgate::{HOUR, Limit, Quota, RateLimiter, Rule};
//!
//! const FAILURES: Limit = Limit::new("failed-logins", Quota::token_bucket(5, HOUR));
//!
//! let failures = Rule::new(&FAILURES)
//!     .key(header("x-user"))
//!     .only_methods([Method::POST])
//!     .refund_if(|response| response.status() != StatusCode::UNAUTHORIZED);
//! let layer = RateLimiter::in_memory().layer(failures);
//! # drop(layer);
//! ```
//!
//! [`Rule::reset_if`] makes the bucket full instead, for example after a log-in that succeeds.
//!
//! # A cost from the request
//!
//! [`Rule::cost_with`] computes the tokens that a request takes; [`Rule::limit_with`] chooses the
//! limit itself, such as that of a plan:
//!
//! ```
//! use tollgate::{HOUR, Limit, Quota, RateLimiter};
//!
//! const EXPORTS: Limit = Limit::new("exports", Quota::fixed_window(100, HOUR));
//!
//! let layer = RateLimiter::in_memory()
//!     .layer(&EXPORTS)
//!     .cost_with(|head| if head.uri().path().ends_with(".zip") { 10 } else { 1 });
//! # drop(layer);
//! ```
//!
//! # A key or a cost from the body
//!
//! [`buffer_body`](buffer_body()) reads the body before the limit, up to a bound, and keeps what a
//! closure finds in it for the key and the cost. See there for an example. With axum,
//! `tollgate::routes::extract_body` does so with any extractor of axum.
//!
//! # A cost that is known afterwards
//!
//! With [`settle`](RateLimitLayer::settle), requests pay an estimate first. The layer then returns
//! what is left of it, or takes what is short. The handler reports the cost by the [`Meter`] of the
//! request, also if the client disconnects in between, or by an [`ActualCost`] in the response:
//!
//! ```
//! use axum::{Router, routing::post};
//! use tollgate::middleware::Meter;
//! use tollgate::{Limit, MINUTE, Quota, RateLimitExt, RateLimiter};
//!
//! const LLM: Limit = Limit::new("llm-tokens", Quota::token_bucket(40_000, MINUTE));
//!
//! async fn chat(meter: Meter) -> &'static str {
//!     meter.add(300); // the work has cost this much so far
//!     "forty-two"
//! }
//!
//! let layer = RateLimiter::in_memory().layer(&LLM).cost(1_000).settle();
//! let app: Router = Router::new().route("/chat", post(chat).rate_limit(layer));
//! # drop(app);
//! ```
//!
//! # Several limits
//!
//! A limit with its key, its cost and its conditions is a [`Rule`]. A layer of several rules takes
//! tokens from all limits or from none, in one round trip to the store:
//!
//! ```
//! use tollgate::key::{ClientIp, header};
//! use tollgate::{Limit, MINUTE, Quota, RateLimiter, Rule};
//!
//! const PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(60, MINUTE));
//! const PER_TENANT: Limit = Limit::new("per-tenant", Quota::token_bucket(1_000, MINUTE));
//!
//! let layer = RateLimiter::in_memory()
//!     .layer(Rule::new(&PER_CLIENT).key(ClientIp::peer()))
//!     .and(Rule::new(&PER_TENANT).key(header("x-tenant")));
//! # drop(layer);
//! ```
//!
//! # Queue
//!
//! With a [`Queue`], a request that is short of tokens waits for its turn instead of being refused.
//! Requests run in the order in which they came:
//!
//! ```
//! use std::time::Duration;
//!
//! use tollgate::{Limit, Quota, RateLimiter, SECOND};
//!
//! const SPACED: Limit = Limit::new("spaced", Quota::token_bucket(10, SECOND).capacity(0));
//!
//! let layer = RateLimiter::in_memory().layer(&SPACED).queue(Duration::from_secs(30));
//! # drop(layer);
//! ```
//!
//! # Watch first, then enforce
//!
//! A [shadow](Rule::shadow) rule decides and logs, but refuses nothing. [`Rule::enforce`] then
//! enforces the limit on more and more of the keys:
//!
//! ```
//! use tollgate::key::ClientIp;
//! use tollgate::middleware::Portion;
//! use tollgate::{Limit, MINUTE, Quota, RateLimiter, Rule};
//!
//! const PLANNED: Limit = Limit::new("planned", Quota::token_bucket(10, MINUTE));
//!
//! let rule = || Rule::new(&PLANNED).key(ClientIp::peer());
//! let first_week = RateLimiter::in_memory().layer(rule().shadow());
//! let second_week = RateLimiter::in_memory().layer(rule().enforce(Portion::percent(10)));
//! # drop((first_week, second_week));
//! ```
//!
//! # When the store fails
//!
//! By default, requests are answered with 503 while the store does not answer.
//! [`OnFailure::Admit`] lets them pass during an outage. In both cases, the log has the error. A
//! [`Limit`](crate::Limit::on_failure) may say so for itself, and a
//! [`Fallback`](crate::backend::Fallback) around the store decides in its place:
//!
//! ```
//! use tollgate::middleware::OnFailure;
//! use tollgate::{Limit, MINUTE, Quota, RateLimiter};
//!
//! const API: Limit = Limit::new("api", Quota::token_bucket(10, MINUTE));
//!
//! let layer = RateLimiter::in_memory().layer(&API).on_failure(OnFailure::Admit);
//! # drop(layer);
//! ```
//!
//! # What a handler can see and do
//!
//! With [`expose`](RateLimitLayer::expose), a handler gets an [`Admission`]. It shows how the
//! limits stand, takes more tokens, or settles:
//!
//! ```
//! use axum::{Router, routing::get};
//! use tollgate::middleware::Admission;
//! use tollgate::{Limit, MINUTE, Quota, RateLimitExt, RateLimited, RateLimiter};
//!
//! const SEARCHES: Limit = Limit::new("searches", Quota::token_bucket(10, MINUTE));
//!
//! async fn search(admission: Admission) -> Result<String, RateLimited> {
//!     admission.charge(4).await?; // 429 if the bucket has fewer than four tokens left
//!     Ok(format!("{:?} left", admission.remaining()))
//! }
//!
//! let layer = RateLimiter::in_memory().layer(&SEARCHES).expose();
//! let app: Router = Router::new().route("/", get(search).rate_limit(layer));
//! # drop(app);
//! ```
//!
//! # On the client side
//!
//! The same layer around an HTTP client keeps a process within the quota of a server. To obey the
//! server's `Retry-After` as well, put the `RetryLayer` of `tollgate-client` around it:
//!
//! ```
//! use std::convert::Infallible;
//! use std::time::Duration;
//!
//! use http::{Request, Response};
//! use tollgate::{Limit, Quota, RateLimiter, SECOND};
//! use tower::{Layer, service_fn};
//!
//! const UPSTREAM: Limit = Limit::new("upstream", Quota::token_bucket(10, SECOND));
//!
//! let client = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new("hello")));
//! let limited = RateLimiter::in_memory().layer(&UPSTREAM).queue(Duration::from_secs(30));
//! let client = limited.layer(client);
//! # drop(client);
//! ```
//!
//! # Design
//!
//! **The layer never changes the error of the inner service.** A refusal is a response.
//!
//! **The service that was made ready is the one that is called**, so a service that reserves
//! something in `poll_ready` works as it should. A store that answers at once, as the memory store
//! does, lets the layer call the inner service within `call`, without boxes or clones. For stores
//! that answer later, the inner service has to be `Clone`; tower's `Buffer` makes any service so.
//!
//! **A request that waits does not hold a ready service.** Readiness may be a resource that other
//! requests need, so the request gives it up, and makes a service ready again when its turn comes.
//! The queue releases the next request after this call of the service, or after its `poll_ready`
//! returned `Pending`. So the inner service is called in the order of admission.

mod admission;
mod body;
mod buffer_body;
mod buffered_body;
mod call_response;
mod decide;
mod future;
mod layer;
mod ledger;
mod log;
#[cfg(feature = "memory")]
mod lone;
#[cfg(feature = "axum")]
mod look;
mod meter;
mod on_refusal;
mod on_response;
mod plan;
mod planned_rule;
mod portion;
mod queue;
mod queued_call;
#[cfg(feature = "axum")]
mod read_on;
#[cfg(not(feature = "axum"))]
mod read_on {
    /// Nothing, as only bodies of axum are read: others may be of any type.
    pub(super) fn read_on<B>(_: &std::sync::Arc<super::plan::Plan>, _: http::Request<B>) {}
}
mod reject;
mod response_head;
mod rule;
mod service;
mod settings;
mod setup_check;
mod shadow;
mod waiter_counter;

pub use self::admission::Admission;
pub use self::body::ResponseBody;
pub use self::buffer_body::{BufferBody, buffer_body};
pub use self::buffered_body::BufferedBody;
#[cfg(feature = "axum")]
pub(crate) use self::buffered_body::{BufferError, buffer};
#[cfg(feature = "axum")]
pub(crate) use self::call_response::{ResponseStyle, response_of, snapshot_fields};
pub use self::future::ResponseFuture;
pub use self::layer::{IntoLayer, IsOne, RateLimitLayer};
#[cfg(feature = "axum")]
pub(crate) use self::look::Outlook;
pub use self::meter::{ActualCost, Meter};
pub use self::on_refusal::{OnRefusal, RefusalBody, RefusedRequest};
pub use self::portion::Portion;
pub use self::queue::Queue;
pub use self::response_head::ResponseHead;
pub use self::rule::{IntoChosenLimit, IntoCost, IntoRule, Rule};
pub use self::service::RateLimit;
pub use crate::limiter::OnFailure;
