//! The client side: a tower layer that retries refused requests when `Retry-After` says so.
//!
//! [`RetryLayer`] makes an HTTP client obey `Retry-After`: a request that is answered with status 429
//! or 503 and a time to come back is sent again at that time. Between two services that both use
//! Tollgate, nothing else is needed.
//!
//! ```
//! use std::convert::Infallible;
//! use std::sync::atomic::{AtomicU32, Ordering};
//!
//! use http::{Request, Response};
//! use tokio::time::Instant;
//! use tollgate::retry::RetryLayer;
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Infallible> {
//! static ASKED: AtomicU32 = AtomicU32::new(0);
//! let busy_at_first = service_fn(async |_: Request<&'static str>| {
//!     let response = match ASKED.fetch_add(1, Ordering::Relaxed) {
//!         0 => Response::builder().status(429).header("retry-after", "2").body("not yet"),
//!         _ => Response::builder().body("welcome"),
//!     };
//!     Ok::<_, Infallible>(response.unwrap())
//! });
//! let client = RetryLayer::new().layer(busy_at_first);
//!
//! let start = Instant::now();
//! let response = client.oneshot(Request::new("hello")).await?;
//! assert_eq!(*response.body(), "welcome");
//! assert_eq!(start.elapsed().as_secs(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! The number of tries, the longest wait, the jitter, and which requests are retried:
//!
//! ```
//! use std::time::Duration;
//!
//! use tollgate::retry::RetryLayer;
//!
//! let layer = RetryLayer::new()
//!     .tries(3)
//!     .max_wait(Duration::from_secs(10))
//!     .jitter(Duration::from_millis(500))
//!     .only(|head| head.method().is_idempotent());
//! # drop(layer);
//! ```
//!
//! # Design
//!
//! **The server decides how long to wait.** There is no backoff: a response without a readable
//! `Retry-After` is returned as it is, and so are all other statuses and all errors. The field is a
//! number of seconds or a date in any of the three forms of HTTP (RFC 9110, section 10.2.3). A date is
//! compared with the response's own `Date`, so the two machines need not agree on the time; without a
//! readable `Date`, it is compared with this machine's clock. A date in the past means at once.
//!
//! **No wait is in vain.** All waits of one request together stay within
//! [`max_wait`](RetryLayer::max_wait). If the next one would exceed it, the refusal is returned at once.
//! Only waits count: use a timeout to bound the time until the service is ready and has answered.
//!
//! **Every method is retried**, idempotent or not: a server that answers 429 or 503 with a time to come
//! back has not done the work. If something between you and the server answers 503 for work that may
//! have been done, restrict the retries by [`only`](RetryLayer::only).
//!
//! **The whole request is sent again**: method, target, version, header fields, extensions and body are
//! cloned before each send but the last. A streamed body cannot be cloned; collect it first, for
//! instance into a `Full<Bytes>` of `http-body-util`, whose clones share their bytes.
//!
//! **The service that was made ready is the one that is called.** Retries go to a clone of it, which is
//! made ready after the wait: a service that is ready may hold a slot, which it should not do while it
//! waits. Responses that are not returned are dropped before the wait, with their bodies unread.
//!
//! If the client also keeps a limit of its own, made by
//! [`RateLimiter::layer`](crate::RateLimiter::layer), put `Retry` outside and `RateLimit` inside: the
//! layer then waits for that limit as well.

mod future;
mod layer;
mod policy;
mod service;

pub use self::future::ResponseFuture;
pub use self::layer::RetryLayer;
pub use self::service::Retry;
