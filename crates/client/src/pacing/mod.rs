//! The client side: a tower layer that spaces requests, so that servers need not refuse any.
//!
//! [`PacingLayer`] reads from each answer what the server has left for this client, and sends later
//! requests to the same host no faster than that allows. Nothing has to be known about the server
//! in advance.
//!
//! ```
//! use std::convert::Infallible;
//!
//! use http::{Request, Response};
//! use tokio::time::Instant;
//! use tollgate_client::pacing::PacingLayer;
//! use tollgate::{Limit, Quota, RateLimiter, SECOND, backend::Memory, clock::TokioClock};
//! use tower::{Layer, Service, ServiceExt, service_fn};
//!
//! const THEIRS: Limit = Limit::new("theirs", Quota::token_bucket(10, SECOND));
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Infallible> {
//! let limiter = RateLimiter::new(Memory::new().clock(TokioClock::new()));
//! let hello = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new("hello")));
//! let server = limiter.layer(&THEIRS).layer(hello);
//! let mut client = PacingLayer::new().layer(server);
//!
//! let start = Instant::now();
//! for _ in 0..30 {
//!     let response = client.ready().await?.call(Request::new(())).await?;
//!     assert_eq!(response.status(), 200); // none is refused
//! }
//! assert_eq!(start.elapsed().as_secs(), 2); // 10 at once, and 20 at their rate
//! # Ok(())
//! # }
//! ```
//!
//! # Which fields are read
//!
//! Those of the IETF drafts, of GitHub, Twitter, Reddit, Mastodon, Docker Hub, Discord, Shopify,
//! Trakt, OpenAI, Anthropic and of many others: the module [`client`](crate) lists them. A
//! response that refuses, by 429 or 503, or by 403 with a time to wait, pauses all requests to the
//! host until then. If a 429 names no time, it is a second. If it names one that cannot be read, it
//! is [half a minute](crate::ASSUMED_WAIT), and the log says so, once for each host and
//! field.
//!
//! A server that shows nothing before it refuses gets every request at once, unless the client
//! knows its [`quota`](PacingLayer::quota).
//!
//! # Settings
//!
//! ```
//! use std::time::Duration;
//!
//! use tollgate_client::pacing::PacingLayer;
//!
//! let layer = PacingLayer::new()
//!     .quota(10, Duration::from_secs(1)) // what they allow, if it is known
//!     .max_wait(Duration::from_secs(10))
//!     .headroom(5) // tokens that are left to other clients
//!     .key_with(|head| head.uri().host().map(str::to_owned)); // instead of scheme and authority
//! # drop(layer);
//! ```
//!
//! Put `Retry` outside and `Pace` inside. If other clients use up what the fields have shown, a
//! request is refused nevertheless, and then sent again in the line. A layer that follows redirects
//! belongs outside as well: each request then counts for its own host. Inside, the answer of any
//! host that is redirected to would count for the first one.
//!
//! # Design
//!
//! **Tokens count only if they are surely there.** The fields do not say whether a limit is a token
//! bucket or a fixed window, and answers come late and out of order. So the layer keeps a lower
//! bound for each limit:
//!
//! 1. An answer shows `r` tokens. All other requests that the server may have counted after that
//!    are subtracted: those that had no answer when this request was sent, and those sent since. If
//!    the rest is more than the bound, the bound rises to it. So an older answer cannot raise the
//!    bound wrongly.
//! 2. If an answer shows less than the bound, another client uses the limit as well, and the bound
//!    falls to that. The answer to a request that was sent before the last rise does not lower the
//!    bound, since it may be about the window before.
//! 3. A server that has refused a request just after a reset rounds its times down, and is given
//!    another second from then on.
//! 4. At the reset, the bound rises by what a bucket of `q` tokens in `w` seconds gains, at least
//!    by one. A fixed window then has more. Until an answer confirms it, requests are spaced by
//!    `w/q`.
//! 5. While more than an eighth of the quota is left, requests are sent at once. Below that, the
//!    requests are spread over the time to the reset. Each answer updates that spacing.
//! 6. Of several limits, each has to allow the request.
//!
//! A request that can wait no longer is sent before it is due, at once if it is the first in the
//! line and none was sent so for a `max_wait`. If the server admits it, the pause before it ends,
//! and limits that it was waiting for are forgotten unless the answer names them. So a wrong
//! number, from a proxy for instance, holds for one wait and not for a year.
//!
//! **A request of the client's own quota counts from the time it is sent until a period after its
//! answer.** The server counts it some time in between. So however requests are delayed on their
//! way, no period of the server's has more of them than the quota, also if it keeps a log of the
//! last period. It costs the share of the rate that the time of an answer is of the period.
//!
//! **Before a pause ends, nothing is sent but what has waited for too long.** Requests that wait
//! are all in one line, also those that the client's own quota holds back, so a refusal that one of
//! them meets stops the others.
//!
//! **The first request to a host goes alone.** Others wait for its answer, for a second at most, as
//! it shows what limits there are. After a pause, it is the same.
//!
//! **Requests wait in order**, each in its own future. A request that is dropped frees its place. A
//! future that is not polled at its turn is overtaken: after 10 ms, or after about a second if the
//! future behind it is not polled either. It gets the next turn once it is polled again.
//!
//! **What does not reach the full rate:** a limit without burst (`capacity(0)`) of several tokens a
//! second. The fields show `r=0` and whole seconds, so one token a second is sure: an exhausted
//! fixed window looks the same, and would refuse more. A server with such a limit lets requests
//! wait by itself, so let [`key_with`](PacingLayer::key_with) return `None` for its host.

mod future;
mod host;
mod hosts;
mod layer;
mod policy;
mod quota;
mod service;
mod settings;

pub use self::future::ResponseFuture;
pub use self::layer::PacingLayer;
pub use self::service::Pace;
