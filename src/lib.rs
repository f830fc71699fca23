//! Rate limiting middleware for tower and axum: token buckets and fixed windows, by any key.

//!
//! A [`Limit`] is a named [`Quota`]: a *token bucket*, which refills continuously, or a *fixed
//! window*, which refills at the start of each window. A [`RateLimiter`] admits a request if there are
//! enough tokens, and otherwise says exactly when there will be. Use it as a layer around a service,
//! on a single route, or by a call.
//!
//! ```
//! use axum::{Router, routing::get};
//! use tollgate::key::ClientIp;
//! use tollgate::{Limit, MINUTE, Quota, RateLimitExt, RateLimited, RateLimiter};
//!
//! const PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(10, MINUTE).capacity(20));
//! const SEARCH: Limit = Limit::new("search", Quota::token_bucket(2, MINUTE));
//!
//! fn app(limiter: &RateLimiter) -> Router {
//!     let search = limiter.layer(&SEARCH).key(ClientIp::peer());
//!     Router::new()
//!         .route("/search", get(async || "found").rate_limit(search))
//!         .layer(limiter.layer(&PER_CLIENT).key(ClientIp::peer()))
//! }
//!
//! async fn mail(limiter: &RateLimiter, user: u64) -> Result<u64, RateLimited> {
//!     let permit = limiter.limit(&PER_CLIENT).key(user).await?; // if refused, `?` returns a 429
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
//! Serve the app with `app.into_make_service_with_connect_info::<SocketAddr>()`. Without it, requests
//! lack their key, the address of the client, and get a 500.
//!
//! # Where to look
//!
//! * [The guides](_guide), one for each need: numbers, users and proxies, queues, plans, real costs,
//!   Redis, testing, recipes, and migrating from other limiters.
//! * [`Quota`]: the numbers of a limit, in code or as text (`"10 per minute, capacity 20"`).
//! * [`middleware`]: the layer, for servers and clients; [`routes`]: limits on routes of axum;
//!   [`key`]: keys of requests; [`fields`]: header fields.
//! * [`limiter`]: calls that take, reserve, settle, look, reset, penalize and block.
//! * [`throttle`]: streams, sinks and bodies that wait for a limit item by item.
//! * `observe`: an observer for traces, and [`Observer`] for one of your own.
//! * [`backend`]: stores: memory, those of the crates below, or your own.
//! * [`clock`]: time, also for tests; [`algebra`]: the formula, and
//!   [`calculate`](algebra::calculate) to predict decisions.
//!
//! Crates of the same version add more. Stores:
//!
//! | crate | adds |
//! |---|---|
//! | [`tollgate-redis`](https://docs.rs/tollgate-redis) | buckets in Redis or Valkey, shared by several processes; over TLS with its feature `tls` |
//! | [`tollgate-postgres`](https://docs.rs/tollgate-postgres) | buckets in PostgreSQL, also inside your own transaction; over TLS with its feature `tls` |
//! | [`tollgate-sqlx`](https://docs.rs/tollgate-sqlx) | decisions inside transactions of `sqlx` |
//! | [`tollgate-embedded`](https://docs.rs/tollgate-embedded) | buckets in a file of this machine, which survive a restart |
//! | [`tollgate-optimistic`](https://docs.rs/tollgate-optimistic) | buckets in any store that can compare and swap |
//! | [`tollgate-leasing`](https://docs.rs/tollgate-leasing) | batches of tokens that each node serves from memory, for limits that one store cannot keep up with |
//!
//! Around the limiter:
//!
//! | crate | adds |
//! |---|---|
//! | [`tollgate-admin`](https://docs.rs/tollgate-admin) | routes for operators: list and show keys, reset, penalize, block |
//! | [`tollgate-client`](https://docs.rs/tollgate-client) | layers for clients: retry when the server says so, and stay below its limits |
//! | [`tollgate-config`](https://docs.rs/tollgate-config) | limits from a file, with keys, conditions and queues, reloaded while the service runs |
//! | [`tollgate-conformance`](https://docs.rs/tollgate-conformance) | the contract of a store as a test suite |
//! | [`tollgate-metrics`](https://docs.rs/tollgate-metrics) | an observer for the facade crate `metrics`: Prometheus, OpenTelemetry |
//! | [`tollgate-plan`](https://crates.io/crates/tollgate-plan) | a program that replays an access log against a quota, and counts the refusals |
//!
//! # What it does not do
//!
//! * It does not stop floods of packets or connections, which never become requests.
//! * In memory, limits belong to one process; they outlive it only if you
//!   [save them](_guide::restarts).
//!
//! # Features
//!
//! | feature | adds | default |
//! |---|---|---|
//! | `memory` | the store in this process, [`RateLimiter::in_memory`] | yes |
//! | `middleware` | the tower layer, keys, header fields | yes |
//! | `axum` | limits on routes, [`RateLimited`] as a response | yes |
//! | `quanta` | reads the CPU's time-stamp counter: about 3 times faster than the system clock | yes |
//! | `tracing` | log events: refusals of layers, missing keys, a store that fails; an observer for spans, and for refusals of calls | yes |
//! | `credentials` | keys from bearer tokens, API keys and cookies, hashed at once | no |
//! | `calendar` | windows that begin with the day, week or month of a time zone | no |
//! | `uuid` | [`Key`] from the `Uuid` of the crate `uuid` | no |
//! | `serde` | [`Quota`] and [`Limit`] in configuration files, [`Snapshot`] as JSON | no |

#![warn(clippy::unwrap_used, clippy::expect_used)]
#![cfg_attr(not(test), warn(clippy::as_conversions, clippy::indexing_slicing))]
#![cfg_attr(docsrs, feature(doc_cfg))]
// Links to what a left out feature would add are then plain text. The build with all features, which
// is the one that is published, still finds links that lead nowhere.
#![cfg_attr(
    not(all(feature = "axum", feature = "credentials", feature = "memory")),
    allow(rustdoc::broken_intra_doc_links)
)]

// The conformance suite names this crate, also where it is a part of its unit tests.
#[cfg(test)]
extern crate self as tollgate;

#[cfg(all(any(doc, doctest), feature = "axum", feature = "memory"))]
pub mod _guide;
pub mod algebra;
pub mod backend;
pub mod clock;
#[cfg(feature = "middleware")]
pub mod fields;
#[cfg(feature = "middleware")]
pub mod key;
#[doc(hidden)]
pub mod kit;
// What the limiter offers to the rooms above is unused where they are left out. The build with all
// features still finds what nothing uses.
#[cfg_attr(not(all(feature = "memory", feature = "axum")), allow(dead_code, unused_imports))]
pub mod limiter;
#[cfg(feature = "middleware")]
pub mod middleware;
#[cfg(feature = "tracing")]
pub mod observe;
pub mod quota;
#[cfg(feature = "axum")]
pub mod routes;
pub mod throttle;

pub use self::backend::Key;
#[cfg(test)]
#[allow(unused_imports, reason = "for the macro of the suite, which few stores use here")]
pub(crate) use self::backend::conformance::suite;
pub use self::clock::{ParseError, Timestamp};
#[cfg(feature = "middleware")]
pub use self::key::{Head, KeyExtractor};
pub use self::limiter::{
    Limit, Observer, OnFailure, Permit, RateLimited, RateLimiter, Reservation, Snapshot,
};
#[cfg(feature = "middleware")]
pub use self::middleware::{OnRefusal, RateLimit, RateLimitLayer, Rule};
pub use self::quota::{DAY, HOUR, MINUTE, Quota, SECOND, WEEK, days, hours, minutes};
#[cfg(feature = "axum")]
pub use self::routes::RateLimitExt;
