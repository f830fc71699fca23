//! The layer: a rule, ready to be put around services.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

use super::RateLimit;
use super::on_refusal::OnRefusal;
use super::queue::Queue;
use super::rule::{MissingKey, Price};
use super::rules::{OnFailure, Rules};
use crate::fields::{Dialects, PartitionKey, RetryAfter};
use crate::key::{Head, KeyExtractor};
use crate::limiter::{Limit, RateLimiter};

/// Holds the requests to a service to a limit; made by [`RateLimiter::layer`].
///
/// See the [module docs](super) for examples.
#[derive(Clone)]
pub struct RateLimitLayer {
    rules: Arc<Rules>,
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
        RateLimitLayer { rules: Arc::new(Rules::new(self.clone(), limit.into())) }
    }
}

impl RateLimitLayer {
    /// Holds the requests to one more limit: each takes its tokens from all of them or from none, in
    /// one step and one round trip to the store.
    ///
    /// What is said behind it of key, cost, chosen limits and missing keys concerns this limit, until
    /// the next one is named; and so do the requests that it is of, whether it is enforced, and when its
    /// tokens come back. All else concerns the layer, wherever it is said.
    ///
    /// A request that is exempt from some of the limits is held to the others. One whose key for any of
    /// them is missing, and may not be, is answered at once and takes from none: where clients can
    /// leave a key out, [`missing_key`](Self::missing_key) lets them pay without it. The refusal names
    /// each limit that has refused, and `Retry-After` is the longest of their waits.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::{ClientIp, header};
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter, SECOND};
    ///
    /// const PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(10, SECOND));
    /// const PER_TENANT: Limit = Limit::new("per-tenant", Quota::token_bucket(1_000, MINUTE));
    /// const EVERYONE: Limit = Limit::new("everyone", Quota::token_bucket(50_000, MINUTE));
    ///
    /// let layer = RateLimiter::in_memory()
    ///     .layer(PER_CLIENT)
    ///     .key(ClientIp::peer())
    ///     .and(PER_TENANT)
    ///     .key(header("x-tenant"))
    ///     .and(EVERYONE);
    /// # drop(layer);
    /// ```
    #[must_use]
    pub fn and(self, limit: impl Into<Limit>) -> Self {
        let limit = limit.into();
        self.with(|rules| rules.and(limit))
    }

    /// Holds each request to the limit that this function chooses, such as that of its tenant's plan.
    ///
    /// Limits that share a name share their buckets: a tenant who changes the plan keeps what was
    /// used. The one that the layer was made with is told where no request is at hand, as in the log.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::{Head, header};
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
    ///
    /// static FREE: Limit = Limit::new("per-tenant", Quota::token_bucket(60, MINUTE));
    /// static PRO: Limit = Limit::new("per-tenant", Quota::token_bucket(6_000, MINUTE));
    ///
    /// fn plan(head: &Head<'_>) -> Limit {
    ///     // in earnest, from what the authentication has put into the request's extensions
    ///     let is_pro = head.headers().get("x-plan").is_some_and(|plan| plan == "pro");
    ///     if is_pro { PRO.clone() } else { FREE.clone() }
    /// }
    ///
    /// let layer = RateLimiter::in_memory().layer(&FREE).limit_with(plan).key(header("x-tenant"));
    /// # drop(layer);
    /// ```
    ///
    /// By method or path, where those are to have buckets of their own:
    ///
    /// ```
    /// use tollgate::key::{ClientIp, Head};
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
    ///
    /// static READS: Limit = Limit::new("reads", Quota::token_bucket(600, MINUTE));
    /// static WRITES: Limit = Limit::new("writes", Quota::token_bucket(60, MINUTE));
    /// static EXPORTS: Limit = Limit::new("exports", Quota::token_bucket(6, MINUTE));
    ///
    /// let by_kind = |head: &Head<'_>| match head.uri().path().starts_with("/export") {
    ///     true => EXPORTS.clone(),
    ///     false if head.method().is_safe() => READS.clone(),
    ///     false => WRITES.clone(),
    /// };
    /// let layer = RateLimiter::in_memory().layer(&READS).limit_with(by_kind).key(ClientIp::peer());
    /// # drop(layer);
    /// ```
    #[must_use]
    pub fn limit_with<F>(self, choose: F) -> Self
    where
        F: Fn(&Head<'_>) -> Limit + Send + Sync + 'static,
    {
        self.with(|rules| rules.last().choose = Some(Arc::new(choose)))
    }

    /// Takes the key of each request by this extractor.
    #[must_use]
    pub fn key(self, extractor: impl KeyExtractor) -> Self {
        self.with(|rules| rules.last().key = Arc::new(extractor))
    }

    /// Takes this many tokens for each request.
    #[must_use]
    pub fn cost(self, tokens: u64) -> Self {
        self.with(|rules| rules.last().price = Price::Tokens(tokens))
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
        self.with(|rules| rules.last().price = Price::By(Arc::new(cost)))
    }

    /// Tells clients about the limits in the header fields of these dialects: one
    /// [`Dialect`](crate::fields::Dialect), whose page is a guide to them, or an array of several.
    ///
    /// # Panics
    ///
    /// If drafts 11 and 7 are among them, whose fields have the same names and different contents.
    #[doc(alias = "fields")]
    #[doc(alias = "headers")]
    #[doc(alias = "use_headers")]
    #[must_use]
    #[track_caller]
    pub fn dialects(self, dialects: impl Into<Dialects>) -> Self {
        let dialects = dialects.into();
        assert!(
            !dialects.clash(),
            "the fields of draft 11 and draft 7 have the same names (choose one of the two)"
        );
        self.with(|rules| rules.telling.dialects = dialects)
    }

    /// Says how `Retry-After` tells when to come back.
    #[must_use]
    pub fn retry_after(self, retry_after: RetryAfter) -> Self {
        self.with(|rules| rules.telling.retry_after = retry_after)
    }

    /// Tells clients of draft 11 which partition of each quota their requests belong to; nothing is
    /// told of that otherwise.
    #[must_use]
    pub fn partition_key(self, partition_key: PartitionKey) -> Self {
        self.with(|rules| rules.telling.partition_key = Some(partition_key))
    }

    /// Says what a request is answered that does not run.
    #[must_use]
    pub fn on_refusal(self, on_refusal: OnRefusal) -> Self {
        self.with(|rules| rules.telling.on_refusal = on_refusal)
    }

    /// Says what becomes of a request whose key is missing.
    #[must_use]
    pub fn missing_key(self, missing_key: MissingKey) -> Self {
        self.with(|rules| rules.last().missing_key = missing_key)
    }

    /// Says what becomes of requests while the store cannot answer.
    #[must_use]
    pub fn on_failure(self, on_failure: OnFailure) -> Self {
        self.with(|rules| rules.on_failure = on_failure)
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
        self.with(|rules| rules.queue = Some(queue))
    }

    /// Makes waits longer at random, by at most this much and never shorter: those in the queue, and
    /// those that refused clients are told.
    ///
    /// See [`LimitCall::jitter`](crate::limiter::LimitCall::jitter) for what that changes.
    #[must_use]
    pub fn jitter(self, spread: Duration) -> Self {
        self.with(|rules| rules.jitter = spread)
    }

    /// Settles each request by the [`ActualCost`](super::ActualCost) in its response's extensions: what
    /// is left of the tokens is given back, what is short is taken, into debt if need be. Where a
    /// response is a stream, a [`Meter`](super::Meter) tells what it cost when it ends.
    ///
    /// Of several limits, those are settled for which a cost was said, or all of them if none was: say
    /// [`cost`](Self::cost) on a limit of tokens, so that one of requests is left alone.
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
        self.with(|rules| rules.settles = true)
    }

    pub(super) fn with(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        let rules = Arc::make_mut(&mut self.rules);
        change(rules);
        rules.changed();
        self
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit::new(inner, Arc::clone(&self.rules))
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RateLimitLayer").field(&self.rules).finish()
    }
}
