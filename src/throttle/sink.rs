//! A sink whose items wait for their tokens.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_sink::Sink;
use pin_project_lite::pin_project;

use super::error::ThrottleError;
use super::gate::Gate;
use super::item_cost::ItemCost;

pin_project! {
    /// A sink whose items wait for their tokens; made by [`Throttle::sink`](super::Throttle::sink).
    ///
    /// What an item costs is known only when it comes. So the sink takes one item in, and holds it
    /// until its tokens are there and the inner sink is ready for it. Meanwhile the sink is not
    /// ready for the next item, and what has passed before is flushed. `poll_ready`, `poll_flush`
    /// and `poll_close` all drive the item on: the future of `send` completes when the item has
    /// gone out.
    ///
    /// # Errors
    ///
    /// [`ThrottleError::Inner`] for the errors of the inner sink. If the limit does not let an item
    /// pass, the answer is [`ThrottleError::RateLimited`], and stays so: the sink takes no further
    /// item. `poll_close` returns the error if no call has returned it yet; otherwise it closes the
    /// inner sink, without the item. See the
    /// [module docs](super#when-an-item-cannot-pass). [`into_parts`](Self::into_parts) returns the
    /// item.
    ///
    /// # Panics
    ///
    /// Polling it panics if an item has to wait outside of a tokio runtime, or in one without a
    /// timer. `start_send` panics if it is called without `poll_ready` before it.
    ///
    /// # Cancel safety
    ///
    /// If the future of `send` is dropped, the item may be held by the sink; it goes out with the
    /// next item, or with the next flush. Dropping the sink drops the item, and cancels what it has
    /// reserved.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures_util::{SinkExt, sink};
    /// use tollgate::{Limit, Quota, RateLimiter, SECOND};
    ///
    /// const BYTES: Limit = Limit::new("bytes", Quota::token_bucket(1_000, SECOND).capacity(20));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = RateLimiter::in_memory();
    /// let sent: Vec<&str> = Vec::new(); // in production, a socket
    /// let sink = limiter.throttle(&BYTES).key("alice").sink(sent);
    /// let mut sink = sink.cost_with(|text: &&str| text.len() as u64);
    /// sink.send("at once").await?;
    /// sink.send("a little later, when the bytes are there").await?;
    /// assert_eq!(sink.get_ref().len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "sinks do nothing unless polled"]
    pub struct ThrottledSink<S, T> {
        #[pin]
        inner: S,
        gate: Gate<T>,
        cost: ItemCost<T>,
        has_told: bool,
    }
}

impl<S, T> ThrottledSink<S, T> {
    pub(super) const fn new(inner: S, gate: Gate<T>) -> Self {
        Self { inner, gate, cost: ItemCost::One, has_told: false }
    }

    /// Sets a function that computes the cost of an item, such as its bytes; one token if not set.
    pub fn cost_with<F>(mut self, cost: F) -> Self
    where
        F: FnMut(&T) -> u64 + Send + 'static,
    {
        self.cost = ItemCost::by(cost);
        self
    }

    /// The sink inside.
    #[must_use]
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The sink inside. What is sent into it here is not counted, and overtakes an item that waits.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the sink inside, and the item that waits or that the limit did not let pass.
    ///
    /// The reservation of an item that waits is cancelled.
    #[must_use]
    pub fn into_parts(self) -> (S, Option<T>) {
        (self.inner, self.gate.into_item())
    }
}

impl<S: Sink<T>, T> ThrottledSink<S, T> {
    /// Sends the item that waits, if there is one.
    fn poll_empty(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), ThrottleError<S::Error>>> {
        let mut this = self.project();
        if this.gate.item().is_none() {
            return Poll::Ready(Ok(()));
        }
        let Poll::Ready(turn) = this.gate.poll_turn(cx) else {
            // The items before this one must not wait with it in the buffer of the inner sink: the
            // caller, such as `forward`, flushes only when it has no item left.
            return match this.inner.poll_flush(cx) {
                Poll::Ready(Err(error)) => Poll::Ready(Err(ThrottleError::Inner(error))),
                Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
            };
        };
        if let Err(error) = turn {
            *this.has_told = true;
            return Poll::Ready(Err(ThrottleError::RateLimited(error)));
        }
        ready!(this.inner.as_mut().poll_ready(cx)).map_err(ThrottleError::Inner)?;
        let sent = this.gate.take().map_or(Ok(()), |item| this.inner.start_send(item));
        Poll::Ready(sent.map_err(ThrottleError::Inner))
    }
}

impl<S: Sink<T>, T> Sink<T> for ThrottledSink<S, T> {
    type Error = ThrottleError<S::Error>;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.poll_empty(cx)
    }

    #[track_caller]
    fn start_send(self: Pin<&mut Self>, item: T) -> Result<(), Self::Error> {
        let this = self.project();
        assert!(this.gate.item().is_none(), "`start_send` needs a `poll_ready` that was ready");
        let cost = this.cost.of(&item);
        this.gate.hold(item, cost);
        Ok(())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        ready!(self.as_mut().poll_empty(cx))?;
        self.project().inner.poll_flush(cx).map_err(ThrottleError::Inner)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // The caller knows already that the item has not gone out.
        if !self.has_told {
            ready!(self.as_mut().poll_empty(cx))?;
        }
        self.project().inner.poll_close(cx).map_err(ThrottleError::Inner)
    }
}

impl<S: fmt::Debug, T> fmt::Debug for ThrottledSink<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottledSink")
            .field("inner", &self.inner)
            .field("gate", &self.gate)
            .finish_non_exhaustive()
    }
}
