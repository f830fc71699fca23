//! A stream whose items wait for their tokens.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use pin_project_lite::pin_project;

use super::error::ThrottleError;
use super::gate::Gate;
use super::item_cost::ItemCost;
use crate::limiter::RateLimited;

pin_project! {
    /// A stream whose items wait for their tokens; made by [`Throttle::stream`](super::Throttle::stream)
    /// and [`Throttle::try_stream`](super::Throttle::try_stream).
    ///
    /// The items come in their order. While one waits, the inner stream is not polled, so at most
    /// one item is held. An item that costs nothing passes at once, and so does an error of a stream
    /// of results.
    ///
    /// # Errors
    ///
    /// If the limit does not let an item pass, the stream yields the [`RateLimited`] and ends. See
    /// the [module docs](super#when-an-item-cannot-pass). [`into_parts`](Self::into_parts) returns
    /// the item.
    ///
    /// That of [`try_stream`](super::Throttle::try_stream) yields `Ok` items, and joins the errors:
    /// `E` is then [`ThrottleError`], with [`Inner`](ThrottleError::Inner) for each error of the inner
    /// stream.
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
    pub struct ThrottledStream<S, E = RateLimited>
    where
        S: Stream,
    {
        #[pin]
        inner: S,
        gate: Gate<S::Item>,
        cost: ItemCost<S::Item>,
        error: PhantomData<fn() -> E>,
    }
}

impl<S: Stream> ThrottledStream<S> {
    pub(super) fn new(inner: S, gate: Gate<S::Item>) -> Self {
        Self { inner, gate, cost: ItemCost::One, error: PhantomData }
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
}

impl<S, T, E> ThrottledStream<S, ThrottleError<E>>
where
    S: Stream<Item = Result<T, E>>,
{
    pub(super) fn new_try(inner: S, gate: Gate<S::Item>) -> Self {
        let cost = ItemCost::by(|item: &S::Item| u64::from(item.is_ok()));
        Self { inner, gate, cost, error: PhantomData }
    }

    /// Sets a function that computes the cost of an `Ok` item; one token if not set.
    ///
    /// See [the other one](#method.cost_with) for an example.
    pub fn cost_with<F>(mut self, mut cost: F) -> Self
    where
        F: FnMut(&T) -> u64 + Send + 'static,
    {
        self.cost = ItemCost::by(move |item: &S::Item| item.as_ref().map_or(0, &mut cost));
        self
    }
}

impl<S: Stream, E> ThrottledStream<S, E> {
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
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        (self.inner, self.gate.into_item())
    }

    fn poll_item(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<S::Item, RateLimited>>> {
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

    fn remaining(&self) -> (usize, Option<usize>) {
        if self.gate.failure().is_some() {
            return (0, Some(0));
        }
        let (lower, upper) = self.inner.size_hint();
        let held = usize::from(self.gate.item().is_some());
        // The first item that cannot pass is the last of the stream.
        let lower = lower.saturating_add(held).min(1);
        (lower, upper.and_then(|upper| upper.checked_add(held)))
    }
}

impl<S: Stream> Stream for ThrottledStream<S> {
    type Item = Result<S::Item, RateLimited>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_item(cx)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.remaining()
    }
}

impl<S, T, E> Stream for ThrottledStream<S, ThrottleError<E>>
where
    S: Stream<Item = Result<T, E>>,
{
    type Item = Result<T, ThrottleError<E>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let passed = ready!(self.poll_item(cx));
        Poll::Ready(passed.map(|passed| match passed {
            Ok(item) => item.map_err(ThrottleError::Inner),
            Err(error) => Err(ThrottleError::RateLimited(error)),
        }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.remaining()
    }
}

impl<S: Stream + fmt::Debug, E> fmt::Debug for ThrottledStream<S, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottledStream")
            .field("inner", &self.inner)
            .field("gate", &self.gate)
            .finish_non_exhaustive()
    }
}
