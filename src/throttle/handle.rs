//! What a limit, a key and a longest wait make together; adapters are made from it.

use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use futures_sink::Sink;

#[cfg(feature = "middleware")]
use super::body::ThrottledBody;
use super::error::ThrottleError;
use super::gate::Gate;
use super::item_charge::ItemCharge;
use super::sink::ThrottledSink;
use super::stream::ThrottledStream;
use crate::backend::{IntoKey, Key};
use crate::limiter::{Limit, OnFailure, RateLimiter};

impl RateLimiter {
    /// Holds streams, sinks and bodies to a limit: their items wait until the limit has tokens for
    /// them.
    ///
    /// The bucket that all callers share pays, unless [`key`](Throttle::key) names another. All
    /// adapters on one bucket share its pace, also with calls and layers.
    ///
    /// The limit is copied, so the adapters borrow nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures_util::{StreamExt, stream};
    /// use tollgate::{Limit, Quota, RateLimiter, SECOND};
    ///
    /// const MESSAGES: Limit = Limit::new("messages", Quota::token_bucket(50, SECOND).capacity(2));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let limiter = RateLimiter::in_memory();
    /// let messages = stream::iter(["a", "b", "c"]); // in production, those of a connection
    /// let mut messages = limiter.throttle(&MESSAGES).key("alice").stream(messages);
    /// let mut seen = Vec::new();
    /// while let Some(message) = messages.next().await {
    ///     seen.push(message.expect("the limit lets any number wait")); // `c` has waited for 20 ms
    /// }
    /// assert_eq!(seen, ["a", "b", "c"]);
    /// # }
    /// ```
    pub fn throttle(&self, limit: &Limit) -> Throttle {
        let charge = ItemCharge {
            limiter: self.clone(),
            limit: Arc::new(limit.clone()),
            key: Key::GLOBAL,
            max_wait: Duration::MAX,
        };
        Throttle { charge }
    }
}

/// A limit that items wait for; made by [`RateLimiter::throttle`].
///
/// It makes adapters, which are held to one bucket together: those of one `Throttle`, and those of
/// its clones.
///
/// See the [module docs](super) for examples.
#[derive(Clone, Debug)]
#[must_use = "a throttle does nothing until it is put around a stream, a sink or a body"]
pub struct Throttle {
    charge: ItemCharge,
}

impl Throttle {
    /// Sets the key of the bucket that pays; the bucket that all callers share if not set.
    pub fn key(mut self, key: impl IntoKey) -> Self {
        self.charge.key = key.into_key();
        self
    }

    /// Sets how long one item may wait; as long as it takes if not set.
    ///
    /// An item that would have to wait longer is refused at once, and the adapter ends with a
    /// [`RateLimited`](crate::RateLimited). The piece of a body is such an item.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.charge.max_wait = max_wait;
        self
    }

    /// Sets what happens to items while the store fails; as the
    /// [limiter](RateLimiter::on_failure) does if not set.
    ///
    /// With [`OnFailure::Admit`], items pass at once and uncounted in an outage. Otherwise the
    /// adapter ends with a [`RateLimited`](crate::RateLimited), as it does for items that the store
    /// could never decide.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.charge.limiter = self.charge.limiter.on_failure(on_failure);
        self
    }

    /// Makes each item of a stream wait for its tokens: one for each item, unless
    /// [`cost_with`](ThrottledStream::cost_with) says otherwise.
    ///
    /// For a stream of results, [`try_stream`](Self::try_stream) joins the errors.
    #[doc(alias = "ratelimit_stream")]
    pub fn stream<S: Stream>(&self, stream: S) -> ThrottledStream<S> {
        ThrottledStream::new(stream, self.gate())
    }

    /// Makes each item of a stream of results wait for its tokens. Errors of the stream pass at
    /// once, and cost nothing.
    pub fn try_stream<S, T, E>(&self, stream: S) -> ThrottledStream<S, ThrottleError<E>>
    where
        S: Stream<Item = Result<T, E>>,
    {
        ThrottledStream::new_try(stream, self.gate())
    }

    /// Makes each item wait for its tokens before it goes into a sink.
    #[doc(alias = "ratelimit_sink")]
    pub fn sink<S: Sink<T>, T>(&self, sink: S) -> ThrottledSink<S, T> {
        ThrottledSink::new(sink, self.gate())
    }

    /// Makes each byte of a body wait for its token: of a response that is sent, or of a request
    /// that is read.
    #[cfg(feature = "middleware")]
    pub fn body<B>(&self, body: B) -> ThrottledBody<B> {
        ThrottledBody::new(body, self.gate())
    }

    fn gate<T>(&self) -> Gate<T> {
        Gate::new(self.charge.clone())
    }
}
