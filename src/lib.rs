//! Exact rate limiting for tower and axum, at the application layer, where the code knows who asks
//! and what it will cost.
//!
//! A [`Limit`] is a named [`Quota`]: a token bucket, which gains its tokens continuously, or a fixed
//! window, which gains them at each window's start. A [`RateLimiter`] decides for each request
//! whether its tokens are there, and if not, exactly when they will be.
//!
//! ```
//! use axum::Router;
//! use axum::routing::{get, post};
//! use tollgate::routes::RateLimitExt;
//! use tollgate::key::{ClientIp, header};
//! use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimiter};
//!
//! const PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(10, MINUTE).capacity(20));
//! const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));
//!
//! let limiter = RateLimiter::in_memory();
//! let login = post(async || "welcome").rate_limit(limiter.layer(LOGIN).key(header("x-user")));
//! let app: Router = Router::new()
//!     .route("/", get(async || "hello"))
//!     .route("/login", login)
//!     .layer(limiter.layer(PER_CLIENT).key(ClientIp::peer()));
//! # drop(app);
//! ```
//!
//! Inside a handler, or anywhere else, the limiter is asked directly:
//!
//! ```
//! use tollgate::{DAY, Limit, Quota, RateLimited, RateLimiter};
//!
//! const EXPORTS: Limit = Limit::new("exports", Quota::fixed_window(100, DAY));
//!
//! async fn export(limiter: &RateLimiter, user: u64, rows: u64) -> Result<String, RateLimited> {
//!     let permit = limiter.limit(&EXPORTS).key(user).cost(rows).await?.into_result()?;
//!     Ok(format!("{} rows left for today", permit.remaining()))
//! }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), RateLimited> {
//! # assert_eq!(export(&RateLimiter::in_memory(), 7, 30).await?, "70 rows left for today");
//! # Ok(())
//! # }
//! ```
//!
//! # Where to look
//!
//! * [`Quota`]: the numbers of a limit, in code or as text (`"10 per minute, capacity 20"`).
//! * [`RateLimiter`]: `limit`, `check` (look, take nothing), `reset`, `value`, `drain`; `penalize` and
//!   `block`.
//! * [`Reservation`](limiter::Reservation): a turn at a known instant, made by
//!   [`reserve`](limiter::LimitCall::reserve); [`Permit::settle`](limiter::Permit::settle): the
//!   bill after the work.
//! * [`middleware`]: the layer, for servers and clients, with a
//!   [queue](middleware::RateLimitLayer::queue), with tokens that come back
//!   [by the response](middleware::RateLimitLayer::refund_if), and in
//!   [shadow](middleware::RateLimitLayer::shadow); [`routes`]: limits on routes of axum.
//! * [`Admission`](middleware::Admission): what handlers see of a decision, and do about it.
//! * [`retry`]: the layer for clients that come back when they are told to.
//! * [`key`]: who is asking; [`fields`]: what clients are told.
//! * [`backend`]: where buckets live, and how to write another store.
//! * [`algebra`]: the formula, and [`calculate`](algebra::calculate) to predict what it says.
//!
//! # What it does not do
//!
//! It does not defend against floods of packets or connections, which never become requests. It
//! does not count how many requests run at once: tower's `ConcurrencyLimit` does. One process's
//! memory is not shared with another's.
//!
//! # Features
//!
//! | feature | adds | default |
//! |---|---|---|
//! | `memory` | the store in this process, [`RateLimiter::in_memory`] | yes |
//! | `middleware` | the tower layer, keys, header fields | yes |
//! | `axum` | limits on routes, [`RateLimited`] as a response | yes |
//! | `quanta` | the time from the processor's own counter | yes |
//! | `retry` | the tower layer for clients that obeys `Retry-After` | yes |
//! | `tracing` | events: refusals, missing keys, a store that fails | yes |
//! | `credentials` | keys from bearer tokens, API keys and cookies, hashed at once | no |
//! | `tower-sessions` | keys from the sessions of `tower-sessions` | no |
//! | `redis` | buckets in Redis or Valkey, for a fleet: single servers, clusters, sentinels | no |
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

/// The code in the guide to Redis compiles.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../docs/redis.md")]
struct Guide;
