//! A stream of results whose items wait for their tokens.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::{Stream, TryStream};
use pin_project_lite::pin_project;

use super::error::ThrottleError;
use super::gate::Gate;
use super::item_cost::ItemCost;
use super::stream::size_hint;

pin_project! {
    /// A stream of results whose items wait for their tokens; made by [`Throttle::try_stream`](super::Throttle::try_stream).
    ///
    /// The items come in their order. While one waits, the inner stream is not polled, so at most
    /// one item is held. An item that costs nothing, and an error of the inner stream, pass at once.
    ///
    /// # Errors
    ///
    /// [`ThrottleError::Inner`] for each error of the inner stream. If the limit does not let an
    /// item pass, the stream yields [`ThrottleError::RateLimited`] and ends. See the
    /// [module docs](super#when-an-item-cannot-pass). [`into_parts`](Self::into_parts) returns the
    /// item.
    ///
    /// # Panics
    ///
    /// Polling it panics if an item has to wait outside of a tokio runtime, or in one without a
    /// timer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future of `next` loses no item: the item goes on waiting in the stream. Dropping
    /// the stream drops the item, and cancels what it has reserved.
    #[must_use = "streams do nothing unless polled"]
    pub struct ThrottledTryStream<S>
    where
        S: TryStream,
    {
        #[pin]
        inner: S,
        gate: Gate<S::Ok>,
        cost: ItemCost<S::Ok>,
    }
}

impl<S: TryStream> ThrottledTryStream<S> {
    pub(super) fn new(inner: S, gate: Gate<S::Ok>) -> Self {
        Self { inner, gate, cost: ItemCost::One }
    }

    /// Sets a function that computes the cost of an item, such as its bytes; one token if not set.
    ///
    /// See [`ThrottledStream::cost_with`](super::ThrottledStream::cost_with) for an example.
    pub fn cost_with<F>(mut self, cost: F) -> Self
    where
        F: FnMut(&S::Ok) -> u64 + Send + 'static,
    {
        self.cost = ItemCost::by(cost);
        self
    }

    /// The stream inside.
    #[must_use]
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The stream inside, for example to send on a socket that is both. What is read from it here is
    /// not counted.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the stream inside, and the item that waits or that the limit did not let pass.
    ///
    /// The reservation of an item that waits is cancelled.
    #[must_use]
    pub fn into_parts(self) -> (S, Option<S::Ok>) {
        (self.inner, self.gate.into_item())
    }
}

impl<S: TryStream> Stream for ThrottledTryStream<S> {
    type Item = Result<S::Ok, ThrottleError<S::Error>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.project();
        if this.gate.failure().is_some() {
            return Poll::Ready(None);
        }
        if this.gate.item().is_none() {
            let item = match ready!(this.inner.try_poll_next(cx)) {
                Some(Ok(item)) => item,
                Some(Err(error)) => return Poll::Ready(Some(Err(ThrottleError::Inner(error)))),
                None => return Poll::Ready(None),
            };
            let cost = this.cost.of(&item);
            this.gate.hold(item, cost);
        }
        let turn = ready!(this.gate.poll_turn(cx));
        Poll::Ready(match turn {
            Ok(()) => this.gate.take().map(Ok),
            Err(error) => Some(Err(ThrottleError::RateLimited(error))),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        size_hint(&self.gate, self.inner.size_hint())
    }
}

impl<S: TryStream + fmt::Debug> fmt::Debug for ThrottledTryStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottledTryStream")
            .field("inner", &self.inner)
            .field("gate", &self.gate)
            .finish_non_exhaustive()
    }
}
