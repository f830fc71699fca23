//! The layer: a rule, ready to be put around services.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

use super::RateLimit;
use super::log::Log;
use super::queue::{Queue, Seats};
use super::rule::{MissingKey, OnFailure, Rule};
use crate::http::Fields;
use crate::key::{Head, KeyExtractor};
use crate::limiter::{Limit, RateLimiter};

/// Holds the requests to a service to a limit; made by [`RateLimiter::layer`].
///
/// See the [module docs](super) for examples.
#[derive(Clone)]
pub struct RateLimitLayer {
    rule: Arc<Rule>,
}

impl RateLimiter {
    /// Makes a layer that holds every request to this limit: one token each, all from the one
    /// bucket of [`global`](crate::key::global), unless its methods say otherwise.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::ClientIp;
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
    ///
    /// const PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(10, MINUTE));
    ///
    /// let layer = RateLimiter::in_memory().layer(PER_CLIENT).key(ClientIp::peer());
    /// # drop(layer);
    /// ```
    #[must_use]
    pub fn layer(&self, limit: impl Into<Limit>) -> RateLimitLayer {
        RateLimitLayer { rule: Arc::new(Rule::new(self.clone(), limit.into())) }
    }
}

impl RateLimitLayer {
    /// Takes the key of each request by this extractor.
    #[must_use]
    pub fn key(self, extractor: impl KeyExtractor) -> Self {
        self.with(|rule| rule.key = Arc::new(extractor))
    }

    /// Takes this many tokens for each request.
    #[must_use]
    pub fn cost(self, tokens: u64) -> Self {
        self.cost_with(move |_| tokens)
    }

    /// Takes as many tokens for a request as this function says.
    ///
    /// More than the limit can ever grant is answered with 429 and without `Retry-After`, as no
    /// wait would help.
    #[must_use]
    pub fn cost_with<F>(self, cost: F) -> Self
    where
        F: Fn(&Head<'_>) -> u64 + Send + Sync + 'static,
    {
        self.with(|rule| rule.cost = Arc::new(cost))
    }

    /// Tells clients about the limit in these header fields.
    #[must_use]
    pub fn fields(self, fields: Fields) -> Self {
        self.with(|rule| rule.fields = fields)
    }

    /// Says what becomes of a request whose key is missing.
    #[must_use]
    pub fn missing_key(self, missing_key: MissingKey) -> Self {
        self.with(|rule| rule.missing_key = missing_key)
    }

    /// Says what becomes of requests while the store cannot answer.
    #[must_use]
    pub fn on_failure(self, on_failure: OnFailure) -> Self {
        self.with(|rule| rule.on_failure = on_failure)
    }

    /// Lets requests wait for their turn that are short of tokens, in the order in which they came.
    ///
    /// A request waits in its own future, without a task, a thread or polling; then the inner
    /// service is made ready and called. The response says in `Server-Timing` for how long it
    /// waited. What would have to wait longer than the queue allows is refused at once, and so is
    /// what finds the queue full; `Retry-After` says when it would not have to wait at all. If the
    /// client goes away, its place goes to the next that waits.
    ///
    /// The quota's [`max_reserved`](crate::Quota::max_reserved) bounds the debt, and so the queue.
    /// Call [`drain`](RateLimiter::drain) when the server shuts down.
    ///
    /// # Panics
    ///
    /// The response's future, if it has to wait outside of a tokio runtime, or in one whose time is
    /// not enabled.
    #[must_use]
    pub fn queue(self, queue: impl Into<Queue>) -> Self {
        let queue = queue.into();
        self.with(|rule| rule.queue = Some(queue))
    }

    /// Makes waits longer at random, by at most this much and never shorter: those in the queue, and
    /// those that refused clients are told.
    ///
    /// See [`LimitCall::jitter`](crate::limiter::LimitCall::jitter) for what that changes.
    #[must_use]
    pub fn jitter(self, spread: Duration) -> Self {
        self.with(|rule| rule.jitter = spread)
    }

    /// Settles each request by the [`ActualCost`](super::ActualCost) in its response's extensions: what
    /// is left of the tokens is given back, what is short is taken, into debt if need be. Where a
    /// response is a stream, a [`Meter`](super::Meter) tells what it cost when it ends.
    ///
    /// What is given back is there for those who ask next, who may then come before those who wait
    /// already and were promised their instants. The fields that tell clients about the limit show
    /// how it stood when the request was let in.
    ///
    /// A response without it leaves the tokens taken, and so does a client that goes away before the
    /// response is there. From then on the client does not matter: a store that answers later is
    /// heard to the end.
    #[must_use]
    pub fn settle(self) -> Self {
        self.with(|rule| rule.settles = true)
    }

    fn with(mut self, change: impl FnOnce(&mut Rule)) -> Self {
        let rule = Arc::make_mut(&mut self.rule);
        change(rule);
        // Another rule than that of the layers this one was made from has mistakes and waiters of
        // its own.
        rule.log = Log::default();
        rule.seats = Seats::default();
        self
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit::new(inner, Arc::clone(&self.rule))
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RateLimitLayer").field(&self.rule).finish()
    }
}
