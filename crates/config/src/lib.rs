//! Load limits from a file in TOML, JSON or YAML, and reload them.
//!
//! An operator sets the numbers, the key, the cost, conditions, the queue, header fields, and the
//! policy while the store fails. The program looks up each limit by its name when it starts. A
//! mistake in the file or in the program is an error at the start, and not at the first request.
//!
//! # Examples
//!
//! ```
//! use axum::{Router, routing::{get, post}};
//! use tollgate_config::{Config, ConfigError};
//! use tollgate::{RateLimitExt, RateLimiter};
//!
//! // In production, a file: `Config::from_file("limits.toml")?`.
//! const LIMITS: &str = r#"
//! [limits]
//! login = { quota = "5 per hour", key = "header x-user" }
//!
//! [limits.api]
//! quota = "10 per second, capacity 20"
//! key = "client address"
//! exempt_paths = ["/health"]
//! "#;
//!
//! fn app(config: &Config, limiter: &RateLimiter) -> Result<Router, ConfigError> {
//!     let [login, api] = config.limits(["login", "api"])?;
//!     let app = Router::new()
//!         .route("/login", post(async || "welcome").rate_limit(login.layer(limiter)?))
//!         .route("/health", get(async || "well"))
//!         .layer(api.layer(limiter)?);
//!     config.finish()?; // an entry that no code looks up is an error as well
//!     Ok(app)
//! }
//!
//! let config = Config::from_text("limits.toml", LIMITS)?;
//! let app = app(&config, &RateLimiter::in_memory())?;
//! # drop(app);
//! # Ok::<(), ConfigError>(())
//! ```
//!
//! In a handler, use a [`ConfiguredLimit`] like a [`Limit`](tollgate::Limit):
//! `limiter.limit(&exports).key(user).await?`.
//!
//! The [guide] lists all fields. A configuration that is a part of the
//! application's own file is read through serde, as [`Config`] implements its `Deserialize`.
//!
//! # Design
//!
//! Each format becomes one tree of values with their places, and one reader goes through it. So all
//! formats have the same fields and the same messages, and all mistakes of a file are reported at
//! once, also those about several fields.
//!
//! A mistake that would pass silently is an error: a limit without a key in a layer, a field
//! without an effect, an entry that no code looks up.
//!
//! Reading a hostile file takes a bounded time: its length and the depth of its tables are bounded, and
//! an alias in YAML is an error.

#![warn(clippy::unwrap_used, clippy::expect_used)]
#![cfg_attr(not(test), warn(clippy::as_conversions, clippy::indexing_slicing))]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod block_fields;
mod changes;
mod client_address;
mod configured_limit;
mod entry;
mod field_names;
mod file_fields;
mod file_settings;
mod format;
mod key_text;
mod layer_fields;
mod load;
mod lookup;
mod numbers;
mod origin;
mod portion;
mod problem;
mod queue_fields;
mod read_json;
mod read_serde;
mod read_toml;
#[cfg(feature = "yaml")]
mod read_yaml;
mod reader;
mod reload;
mod rule_fields;
mod statuses;
mod suggestion;
#[cfg(test)]
mod tests;
mod tree;

/// The guide.
#[cfg(any(doc, doctest))]
#[doc = include_str!("links.md")]
#[doc = include_str!("../docs/configuration.md")]
pub mod guide {}

pub use self::changes::{ConfigChanges, QuotaChange};
pub use self::configured_limit::ConfiguredLimit;
pub use self::lookup::Config;
pub use self::problem::{ConfigError, ConfigProblem};
