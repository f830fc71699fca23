//! The other side of a limit: a tower layer for clients that comes back when it was told to.
//!
//! [`RetryLayer`] around an HTTP client makes it obey `Retry-After`: a request that is answered
//! with status 429 or 503 and a time to come back is sent again at that time. Between two services
//! that both have Tollgate, nothing else is needed.
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
//! How often, how long, which requests, and how far apart from all others:
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
//! **Only what was told is waited for.** There is no backoff of our own: a response without a
//! readable `Retry-After` is returned as it is, and so are all other statuses and all errors. The
//! field is a number of seconds or a date in any of the three forms of HTTP (RFC 9110, section
//! 10.2.3). A date is compared with the response's own `Date`, so that it does not matter whether
//! the two machines agree on the time, and with this machine's clock if there is no `Date` that can
//! be read. A date that has passed means at once.
//!
//! **No wait in vain.** The waits of one request stay within [`max_wait`](RetryLayer::max_wait)
//! together. Where the next one would not, the refusal is returned at once. Only waits count: the
//! time that the service takes to become ready and to answer is for a timeout to bound.
//!
//! **Every method is sent again**, also those that are not idempotent: a server that answers 429 or
//! 503 and says when to come back says that it has not done the work. Where something in between
//! answers 503 for work that may have been done, restrict it by [`only`](RetryLayer::only).
//!
//! **A request is sent again whole**: method, target, version, header fields, extensions and body
//! are cloned before each send but the last. A streamed body cannot be cloned; collect it first,
//! for instance into a `Full<Bytes>` of `http-body-util`, whose clones share their bytes.
//!
//! **The service that was made ready is the one that is called.** Further sends go to a clone of
//! it, which is made ready after the wait and not before, lest it hold its place while nothing
//! happens. Responses that are not returned are dropped before the wait, bodies unread.
//!
//! Around a client that keeps a limit of its own, made by
//! [`RateLimiter::layer`](crate::RateLimiter::layer), the layer waits for that one as well: put
//! `Retry` outside and `RateLimit` inside.

mod future;
mod layer;
mod policy;
mod service;

pub use self::future::ResponseFuture;
pub use self::layer::RetryLayer;
pub use self::service::Retry;
