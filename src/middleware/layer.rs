//! The layer: a rule, ready to be put around services.

use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

use super::RateLimit;
use super::log::Log;
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

    fn with(mut self, change: impl FnOnce(&mut Rule)) -> Self {
        let rule = Arc::make_mut(&mut self.rule);
        change(rule);
        // Another rule than that of the layers this one was made from has mistakes of its own.
        rule.log = Log::default();
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
