//! Streams, sinks and bodies whose items wait until a limit has tokens for them.
//!
//! A layer counts the request that opens a connection or a download. What then flows through it is
//! held to a limit by the adapters of this module: WebSocket messages, the lines of an event
//! stream, the bytes of an upload or a download. They refuse nothing that may wait. Each item
//! reserves its tokens when it comes, and passes at its turn.
//!
//! | adapter | waits | costs | made by |
//! |---|---|---|---|
//! | [`ThrottledStream`] | each item of a `Stream` | 1, or by a function | [`Throttle::stream`] |
//! | [`ThrottledStream`] | each `Ok` of a stream of results | 1, or by a function | [`Throttle::try_stream`] |
//! | [`ThrottledSink`] | each item into a `Sink` | 1, or by a function | [`Throttle::sink`] |
//! | `ThrottledBody`, with the feature `middleware` | each piece of a body | its bytes | `Throttle::body` |
//!
//! # A download at a fixed pace
//!
//! The limit counts bytes. Its capacity is what a client gets at once; the rest comes at the rate.
//! All downloads of one key share it:
//!
#![cfg_attr(feature = "axum", doc = "```")]
#![cfg_attr(not(feature = "axum"), doc = "```ignore")]
//! use axum::body::Body;
//! use axum::extract::State;
//! use axum::response::Response;
//! use tollgate::{Limit, Quota, RateLimiter, SECOND};
//!
//! const QUOTA: Quota = Quota::token_bucket(1_000_000, SECOND).capacity(64 * 1024);
//! const BYTES: Limit = Limit::new("bytes", QUOTA);
//!
//! async fn download(State(limiter): State<RateLimiter>) -> Response {
//!     let file = Body::from(vec![0; 100_000]); // in production, a file
//!     let user = "alice"; // in production, the user that your authentication established
//!     Response::new(Body::new(limiter.throttle(&BYTES).key(user).body(file)))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), axum::Error> {
//! let response = download(State(RateLimiter::in_memory())).await;
//! let bytes = axum::body::to_bytes(response.into_body(), 100_000).await?; // takes 34 ms
//! assert_eq!(bytes.len(), 100_000);
//! # Ok(())
//! # }
//! ```
//!
//! # Messages that are slowed down
//!
//! While a message waits, the socket is not read. So TCP holds the client back, and no message is
//! lost or refused:
//!
#![cfg_attr(feature = "axum", doc = "```")]
#![cfg_attr(not(feature = "axum"), doc = "```ignore")]
//! use axum::extract::ws::WebSocket;
//! use futures_util::StreamExt;
//! use tollgate::{Limit, Quota, RateLimiter, SECOND};
//!
//! const MESSAGES: Limit = Limit::new("messages", Quota::token_bucket(5, SECOND).capacity(20));
//!
//! async fn echo(socket: WebSocket, limiter: RateLimiter, user: &'static str) {
//!     let mut socket = limiter.throttle(&MESSAGES).key(user).try_stream(socket);
//!     while let Some(Ok(message)) = socket.next().await {
//!         if socket.get_mut().send(message).await.is_err() {
//!             return;
//!         }
//!     }
//! }
//! # drop(echo);
//! ```
//!
//! # How items wait
//!
//! **One item is held, and nothing else.** While it waits, the inner stream or body is not polled.
//! So TCP or the channel in between fills up, and a sender that is too fast has to wait. A sink is
//! flushed meanwhile: what has passed does not wait in its buffer.
//!
//! **The adapters of one key stand in one line**, with calls, layers and other adapters. Each of
//! them has at most one item in it, so a stream that is faster than others does not get more.
//! [Reservations](crate::Reservation) say in which order items pass, in memory and in Redis.
//!
//! **What the limit saves up passes at once.** A source that was slow may catch up by the capacity.
//! With a capacity of zero nothing is saved up: each item comes at least a whole gap after the last
//! one was let through. A timer is late by about a millisecond, so the pace is then below the rate.
//! A capacity that is gained in some milliseconds makes up for that.
//!
//! **An item that costs nothing passes at once**, and asks no store.
//!
//! **Dropping an adapter gives back** what its item has reserved, as dropping a
//! [reservation](crate::Reservation) does. An item that has passed is paid.
//!
//! # When an item cannot pass
//!
//! The adapter ends with the [`RateLimited`](crate::RateLimited), and keeps the item. These are the
//! cases:
//!
//! * The store did not answer, or cannot decide. With
//!   [`OnFailure::Admit`](crate::OnFailure::Admit), items pass uncounted in an outage.
//! * The item costs more than the limit could ever grant. For bodies, that cannot be: they are
//!   split.
//! * Its wait would exceed [`Throttle::max_wait`].
//! * The debt of the bucket would exceed [`max_reserved`](crate::Quota::max_reserved). With
//!   `max_reserved(0)` no item can wait, so the first one that is short of tokens ends the adapter.
//!
//! `into_parts` returns what is inside and the item. To go on, wait, send the item, and put a new
//! adapter around the rest.

#[cfg(feature = "middleware")]
mod body;
mod error;
mod gate;
mod handle;
mod item_charge;
mod item_cost;
mod sink;
mod stream;

#[cfg(feature = "middleware")]
pub use self::body::ThrottledBody;
pub use self::error::ThrottleError;
pub use self::handle::Throttle;
pub use self::sink::ThrottledSink;
pub use self::stream::ThrottledStream;
