//! Client-side rate limiting: stay below the limits of third-party APIs, and retry when
//! `Retry-After` says so.
//!
//! [`RetryLayer`](retry::RetryLayer) and [`PacingLayer`](pacing::PacingLayer) read the limits in each
//! response by [`read`], and so can a client of your own:
//!
//! ```
//! use std::time::Duration;
//!
//! use http::{HeaderMap, StatusCode};
//!
//! let mut headers = HeaderMap::new();
//! headers.insert("anthropic-ratelimit-requests-limit", "50".parse().unwrap());
//! headers.insert("anthropic-ratelimit-requests-remaining", "0".parse().unwrap());
//! headers.insert("anthropic-ratelimit-requests-reset", "2023-11-14T22:13:50Z".parse().unwrap());
//! headers.insert("date", "Tue, 14 Nov 2023 22:13:20 GMT".parse().unwrap());
//!
//! let reading = tollgate_client::read(&headers, StatusCode::TOO_MANY_REQUESTS);
//! assert_eq!(reading.limits()[0].remaining(), 0);
//! assert_eq!(reading.retry_after(), Some(Duration::from_secs(30)));
//! ```
//!
//! # What is read
//!
//! | field | forms |
//! |---|---|
//! | `Retry-After`, `X-RateLimit-Retry-After` | seconds, also with a fraction (rounded up), `1m30s`, a date of HTTP, an instant; of several lines the longest |
//! | `retry-after-ms`, `x-ms-retry-after-ms` | milliseconds; they count before `Retry-After` |
//! | `RateLimit`, `RateLimit-Policy` | IETF drafts 7 to 11; of draft 11 the limits that count requests, and not those of another unit (`qu`), such as `concurrent-requests` |
//! | `..limit..remaining..`, with `limit` and `reset` in its place | draft 6, Docker Hub, GitHub, Reddit, Mastodon, Twitter, OpenAI, Anthropic, Kong and others: any field whose name has both words |
//! | `X-RateLimit-Reset-After` | Discord; it counts before the reset |
//! | `X-RateLimit-Scope`, `X-RateLimit-Global` | Discord: what a refusal is about |
//! | `X-Shopify-Shop-Api-Call-Limit` | `32/40` |
//! | `X-Ratelimit` | the JSON of Trakt |
//! | `grpc-status-details-bin`, `grpc-retry-pushback-ms` | `google.rpc.RetryInfo`, milliseconds |
//! | `x-should-retry`, `stripe-should-retry` | `false`: the request is not to be sent again |
//!
//! A reset is a number of seconds, a number with units (`6m0s`), a Unix time in seconds or
//! milliseconds, a date of HTTP, or an instant (`2023-08-17T08:42:22.5+02:00`). Instants are
//! compared with the `Date` of the response, so the clocks of the two machines need not agree.
//!
//! # Design
//!
//! **Reading is total.** Any bytes have a reading. Counts below zero are zero, counts that do not
//! fit are the largest; of several counts the smallest is used, and of several times the longest.
//! Limits beyond the eighth are left out, those with the most tokens first.
//!
//! **Unreadable fields make a client wait longer, and are reported.** A wait is then assumed to be
//! [`ASSUMED_WAIT`], and a reset [`ASSUMED_RESET`] away. An unreadable count changes nothing that is
//! known. Each such field is in [`Reading::unreadable`].
//!
//! **The statuses that refuse are a setting** of [`Reader`] and of both layers. 403 counts only if the
//! response names a wait, as GitHub's do; otherwise it is about something else. If a refusal
//! has no wait of its own, it is the longest reset of the limits that have nothing left. A server
//! error, or `UNAVAILABLE` of gRPC, is not waited for because of such a limit, since the request
//! may have been carried out.

#![warn(clippy::unwrap_used, clippy::expect_used)]
#![cfg_attr(not(test), warn(clippy::as_conversions, clippy::indexing_slicing))]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod counts;
mod fields;
mod grpc;
mod limits;
pub mod pacing;
mod reader;
mod reading;
pub mod retry;
mod structured;
mod times;
mod told;
mod waits;

/// The guide.
#[cfg(any(doc, doctest))]
#[doc = include_str!("links.md")]
#[doc = include_str!("../docs/clients.md")]
pub mod guide {}

pub use self::reader::{Reader, read};
pub use self::reading::{LimitReading, Reading, RefusalScope, Unreadable};
pub(crate) use self::told::{Told, host_name};

use std::time::Duration;

/// The wait that is assumed where one cannot be read: half a minute.
pub const ASSUMED_WAIT: Duration = Duration::from_secs(30);

/// The time to the reset that is assumed where it cannot be read: a minute, the commonest window.
pub const ASSUMED_RESET: Duration = Duration::from_secs(60);

/// The limits of a response that are read.
pub(crate) const MAX_LIMITS: usize = 8;

/// A year: longer resets are cut off, so that instants do not overflow.
pub(crate) const FOREVER: Duration = Duration::from_secs(365 * 86_400);
