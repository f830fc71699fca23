//! A stream whose items wait for their tokens.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use pin_project_lite::pin_project;

use super::gate::Gate;
use super::item_cost::ItemCost;
use crate::limiter::RateLimited;

pin_project! {
    /// A stream whose items wait for their tokens; made by [`Throttle::stream`](super::Throttle::stream).
    ///
    /// The items come in their order. While one waits, the inner stream is not polled, so at most
    /// one item is held. An item that costs nothing passes at once.
    ///
    /// # Errors
    ///
    /// If the limit does not let an item pass, the stream yields the [`RateLimited`] and ends. See
    /// the [module docs](super#when-an-item-cannot-pass). [`into_parts`](Self::into_parts) returns
    /// the item.
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
    pub struct ThrottledStream<S>
    where
        S: Stream,
    {
        #[pin]
        inner: S,
        gate: Gate<S::Item>,
        cost: ItemCost<S::Item>,
    }
}

impl<S: Stream> ThrottledStream<S> {
    pub(super) fn new(inner: S, gate: Gate<S::Item>) -> Self {
        Self { inner, gate, cost: ItemCost::One }
    }

    /// Sets a function that computes the cost of an item, such as its bytes; one token if not set.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures_util::{StreamExt, stream};
    /// use tollgate::{Limit, Quota, RateLimiter, SECOND};
    ///
    /// const BYTES: Limit = Limit::new("bytes", Quota::token_bucket(100_000, SECOND));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::RateLimited> {
    /// let limiter = RateLimiter::in_memory();
    /// let lines = stream::iter(["GET", "OPTIONS"]);
    /// let lines = limiter.throttle(&BYTES).stream(lines).cost_with(|line| line.len() as u64);
    /// assert_eq!(lines.count().await, 2);
    /// assert_eq!(limiter.peek(&BYTES).await?.capacity(), 100_000);
    /// # Ok(())
    /// # }
    /// ```
    pub fn cost_with<F>(mut self, cost: F) -> Self
    where
        F: FnMut(&S::Item) -> u64 + Send + 'static,
    {
        self.cost = ItemCost::by(cost);
        self
    }

    /// The stream inside.
    #[must_use]
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The stream inside. What is read from it here is not counted.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the stream inside, and the item that waits or that the limit did not let pass.
    ///
    /// The reservation of an item that waits is cancelled.
    #[must_use]
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        (self.inner, self.gate.into_item())
    }
}

impl<S: Stream> Stream for ThrottledStream<S> {
    type Item = Result<S::Item, RateLimited>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.project();
        if this.gate.failure().is_some() {
            return Poll::Ready(None);
        }
        if this.gate.item().is_none() {
            let Some(item) = ready!(this.inner.poll_next(cx)) else { return Poll::Ready(None) };
            let cost = this.cost.of(&item);
            this.gate.hold(item, cost);
        }
        let turn = ready!(this.gate.poll_turn(cx));
        Poll::Ready(match turn {
            Ok(()) => this.gate.take().map(Ok),
            Err(error) => Some(Err(error)),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        size_hint(&self.gate, self.inner.size_hint())
    }
}

/// What is left of a stream with this hint, behind its gate.
pub(super) fn size_hint<T>(
    gate: &Gate<T>,
    (lower, upper): (usize, Option<usize>),
) -> (usize, Option<usize>) {
    if gate.failure().is_some() {
        return (0, Some(0));
    }
    let held = usize::from(gate.item().is_some());
    // The first item that cannot pass is the last of the stream.
    let lower = lower.saturating_add(held).min(1);
    (lower, upper.and_then(|upper| upper.checked_add(held)))
}

impl<S: Stream + fmt::Debug> fmt::Debug for ThrottledStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottledStream")
            .field("inner", &self.inner)
            .field("gate", &self.gate)
            .finish_non_exhaustive()
    }
}
