//! Exact rate limiting for tower and axum: token buckets and fixed windows, by any key.
//!
//! A [`Limit`] is a named [`Quota`]: a token bucket, which gains its tokens continuously, or a fixed
//! window, which gains them at each window's start. A [`RateLimiter`] decides for each request
//! whether its tokens are there, and if not, exactly when they will be: as a layer around a
//! service, on a route, or as a call.
//!
//! ```
//! use axum::{Router, routing::post};
//! use tollgate::key::{ClientIp, header};
//! use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimitExt, RateLimited, RateLimiter};
//!
//! const PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(10, MINUTE).capacity(20));
//! const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));
//!
//! fn app(limiter: &RateLimiter) -> Router {
//!     let login = post(async || "in").rate_limit(limiter.layer(&LOGIN).key(header("x-user")));
//!     Router::new().route("/login", login).layer(limiter.layer(&PER_CLIENT).key(ClientIp::peer()))
//! }
//!
//! async fn mail(limiter: &RateLimiter, user: u64) -> Result<u64, RateLimited> {
//!     let permit = limiter.limit(&PER_CLIENT).key(user).await?; // a refusal leaves here, as 429
//!     Ok(permit.remaining())
//! }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! # let limiter = RateLimiter::in_memory();
//! # drop(app(&limiter));
//! # assert_eq!(mail(&limiter, 7).await.unwrap(), 19);
//! # }
//! ```
//!
//! # Where to look
//!
//! * [`Quota`]: the numbers of a limit, in code or as text (`"10 per minute, capacity 20"`).
//! * [`limiter`]: the calls that take, reserve, settle, look, reset, penalize and block, and what
//!   they answer.
//! * [`middleware`]: the layer, for servers and clients, one heading a use case; [`routes`]: limits on
//!   routes of axum.
//! * [`key`]: which bucket pays; [`fields`]: what clients are told.
//! * [`retry`]: a layer for clients that come back when they are told to.
//! * [`backend`]: where buckets are, in memory or in Redis, and how to write another store.
//! * [`algebra`]: the formula, and [`calculate`](algebra::calculate) to predict what it says;
//!   [`clock`]: time, also for tests.
//!
//! # What it does not do
//!
//! * It does not defend against floods of packets or connections, which never become requests.
//! * It does not count how many requests run at once: tower's `ConcurrencyLimit` does.
//! * In memory, several processes have several limits, and a restart begins with full buckets.
//!
//! # Features
//!
//! | feature | adds | default |
//! |---|---|---|
//! | `memory` | the store in this process, [`RateLimiter::in_memory`] | yes |
//! | `middleware` | the tower layer, keys, header fields | yes |
//! | `axum` | limits on routes, [`RateLimited`] as a response | yes |
//! | `quanta` | reads the CPU's time-stamp counter: about 3 times faster than the system clock | yes |
//! | `retry` | the tower layer for clients that obeys `Retry-After` | yes |
//! | `tracing` | log events: refusals, missing keys, a store that fails | yes |
//! | `credentials` | keys from bearer tokens, API keys and cookies, hashed at once | no |
//! | `tower-sessions` | keys from the sessions of `tower-sessions` | no |
//! | `redis` | buckets in Redis or Valkey, shared by several processes | no |
//! | `redis-tls` | `redis` over TLS | no |
//! | `serde` | [`Quota`] in configuration files | no |

#![warn(clippy::unwrap_used, clippy::expect_used)]
#![cfg_attr(not(test), warn(clippy::as_conversions, clippy::indexing_slicing))]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod algebra;
pub mod backend;
pub mod clock;
#[cfg(feature = "middleware")]
pub mod fields;
#[cfg(feature = "middleware")]
pub mod key;
// What the limiter offers to the rooms above is unused where they are left out. The build with all
// features still finds what nothing uses.
#[cfg_attr(
    not(all(feature = "memory", feature = "axum", feature = "retry")),
    allow(dead_code, unused_imports)
)]
pub mod limiter;
#[cfg(feature = "middleware")]
pub mod middleware;
pub mod quota;
#[cfg(feature = "retry")]
pub mod retry;
#[cfg(feature = "axum")]
pub mod routes;

pub use self::backend::Key;
pub use self::clock::Timestamp;
#[cfg(feature = "middleware")]
pub use self::key::{Head, KeyExtractor};
pub use self::limiter::{Limit, Permit, RateLimited, RateLimiter, Reservation, Snapshot};
#[cfg(feature = "middleware")]
pub use self::middleware::{OnFailure, OnRefusal, RateLimit, RateLimitLayer, Rule};
pub use self::quota::{DAY, HOUR, MINUTE, Quota, SECOND};
#[cfg(feature = "axum")]
pub use self::routes::RateLimitExt;

/// The code in the README compiles.
#[cfg(all(doctest, feature = "axum", feature = "memory", feature = "redis"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// The code in the guide to queues compiles.
#[cfg(all(doctest, feature = "axum", feature = "memory"))]
#[doc = include_str!("../docs/queueing.md")]
struct QueueingGuide;

/// The code in the guide to several limits compiles.
#[cfg(all(doctest, feature = "axum", feature = "memory"))]
#[doc = include_str!("../docs/several-limits.md")]
struct SeveralLimitsGuide;

/// The code in the guide to counting by the response compiles.
#[cfg(all(doctest, feature = "axum", feature = "memory"))]
#[doc = include_str!("../docs/by-response.md")]
struct ByResponseGuide;

/// The code in the guide to keys compiles.
#[cfg(all(doctest, feature = "axum", feature = "memory"))]
#[doc = include_str!("../docs/keys-and-proxies.md")]
struct KeysGuide;

/// The code in the recipes compiles and runs.
#[cfg(all(doctest, feature = "axum", feature = "memory", feature = "credentials"))]
#[doc = include_str!("../docs/recipes.md")]
struct Recipes;

/// The code in the guide to header fields compiles.
#[cfg(all(doctest, feature = "axum", feature = "memory"))]
#[doc = include_str!("../docs/headers.md")]
struct HeadersGuide;

/// The code in the page on security compiles.
#[cfg(all(doctest, feature = "axum", feature = "memory"))]
#[doc = include_str!("../docs/security.md")]
struct SecurityGuide;

/// The code in the page on performance compiles.
#[cfg(all(doctest, feature = "axum", feature = "memory"))]
#[doc = include_str!("../docs/performance.md")]
struct PerformancePage;

/// The code in the guide to Redis compiles.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../docs/redis.md")]
struct RedisGuide;
