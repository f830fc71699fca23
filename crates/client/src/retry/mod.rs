//! The client side: a tower layer that sends refused requests again, when the server says so.
//!
//! [`RetryLayer`] makes an HTTP client obey servers that limit requests. If a response refuses and
//! names a time to wait, the layer waits for that long and sends the request again. Between two
//! services that both use Tollgate, nothing else is needed. What other servers send is read as the
//! module [`client`](crate) says.
//!
//! ```
//! use std::convert::Infallible;
//! use std::sync::atomic::{AtomicU32, Ordering};
//!
//! use http::{Request, Response};
//! use tokio::time::Instant;
//! use tollgate_client::retry::RetryLayer;
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Infallible> {
//! static REQUESTS: AtomicU32 = AtomicU32::new(0);
//! let busy_at_first = service_fn(async |_: Request<&'static str>| {
//!     let response = match REQUESTS.fetch_add(1, Ordering::Relaxed) {
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
//! # Settings
//!
//! Set how often a request is sent, how long it may wait in total, a random addition to each wait,
//! which requests are retried, and which statuses refuse:
//!
//! ```
//! use std::time::Duration;
//!
//! use tollgate_client::retry::RetryLayer;
//!
//! let layer = RetryLayer::new()
//!     .tries(3)
//!     .max_wait(Duration::from_secs(10))
//!     .jitter(Duration::from_millis(500))
//!     .only(|head| head.method().is_idempotent())
//!     .statuses([429, 503, 529].map(|status| http::StatusCode::from_u16(status).unwrap()));
//! # drop(layer);
//! ```
//!
//! By default 429 and 503 refuse, and 403 if it names a wait. For servers that name none, choose a
//! [`backoff`](RetryLayer::backoff), and a [`budget`](RetryLayer::budget) so that retries do not
//! multiply the load of a server that fails.
//!
//! A client can also keep within a known quota, by
//! [`RateLimiter::layer`](tollgate::RateLimiter::layer). Put `Retry` outside and `RateLimit` inside:
//! retries then obey that limit as well.
//!
//! # Design
//!
//! **The server decides how long to wait.** Its time is a field such as `Retry-After`, or the reset
//! of a limit that has nothing left. A date is compared with the `Date` of the response, so the
//! clocks of the two machines need not agree. A date in the past means a retry at once. A time that
//! cannot be read is taken for [half a minute](crate::ASSUMED_WAIT), and the log says so,
//! once for each host and field. Without a time, the `backoff` decides, and unless there is one,
//! the response is returned. So are all other statuses and all errors, and a refusal with
//! `x-should-retry: false`.
//!
//! **In one process, the wait is exact.** If a [`RateLimitLayer`](tollgate::RateLimitLayer) inside has
//! refused the request, or a handler has returned a [`RateLimited`](tollgate::RateLimited), without a
//! connection in between, the wait is its [`ExactWait`](tollgate::fields::ExactWait) and not the whole
//! seconds of `Retry-After`. Several requests that wait for one token then come back at the same
//! time: allow more [`tries`](RetryLayer::tries), or add [`jitter`](RetryLayer::jitter).
//!
//! **A refusal that would take too long is returned at once.** All waits of one request together
//! stay within [`max_wait`](RetryLayer::max_wait). If the next wait would exceed it, the layer does
//! not wait at all. Only waits count: use a timeout to bound the time in which the service becomes
//! ready and responds.
//!
//! **Every method is retried**, idempotent or not, if a response refuses and names a time: the
//! server has not done the work. If a proxy in between answers 503 for work that may have been
//! done, restrict the retries by [`only`](RetryLayer::only). By a `backoff`, a request is sent
//! again after a 429 or another client error. After a 503 or the like, it is sent again only if its
//! method is idempotent, or if it has an `Idempotency-Key`, which stays the same.
//!
//! **The whole request is sent again**: method, target, version, header fields, extensions and body
//! are cloned before each send but the last. A streamed body cannot be cloned, and a request with
//! one does not compile here, rather than be sent with half of its body:
//!
//! ```compile_fail,E0599
//! use std::convert::Infallible;
//!
//! use http::{Request, Response};
//! use tollgate_client::retry::RetryLayer;
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! struct Stream; // not `Clone`
//!
//! # async fn send() {
//! let server = service_fn(async |_: Request<Stream>| Ok::<_, Infallible>(Response::new(())));
//! let client = RetryLayer::new().layer(server);
//! let response = client.oneshot(Request::new(Stream)).await;
//! # drop(response);
//! # }
//! ```
//!
//! Collect it first, for instance into a `Full<Bytes>` of `http-body-util`, since clones of that
//! share their bytes. A body whose clones share one stream is not fit: the second would be what the
//! first has left.
//!
//! **A caller with a deadline** puts a timeout around the call. When the future is dropped, no
//! further request is sent.
//!
//! **A request that waits does not hold a ready service.** The first send calls the service that
//! was made ready. Each retry goes to a clone of it, which is made ready after the wait. A response
//! that is not returned is dropped before the wait, with its body unread.

mod future;
mod layer;
mod policy;
mod service;

pub use self::future::ResponseFuture;
pub use self::layer::RetryLayer;
pub use self::service::Retry;
