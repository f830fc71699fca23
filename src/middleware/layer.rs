//! The layer: one rule or several, ready to be put around services.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

use super::on_failure::OnFailure;
use super::on_refusal::OnRefusal;
use super::plan::Plan;
use super::queue::Queue;
use super::rule::Rule;
use super::rules::{LayerSettings, Rules};
use super::service::RateLimit;
use crate::fields::{Dialects, PartitionKey, RetryAfter};
use crate::key::{Head, IntoExtracted, KeyExtractor};
use crate::limiter::RateLimiter;

/// Holds the requests to a service to one rule or to several; made by [`RateLimiter::layer`].
///
/// What concerns one limit is set on its [`Rule`]; what concerns the layer, on the layer. While the
/// layer has one rule, [`key`](Self::key) and [`cost`](Self::cost) are short for those of the rule.
///
/// See the [module docs](super) for examples.
#[doc(alias = "GovernorLayer")]
#[doc(alias = "GovernorConfigBuilder")]
#[doc(alias = "throttle")]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct RateLimitLayer<N = One> {
    limiter: RateLimiter,
    rules: Rules,
    plan: Arc<Plan>,
    count: PhantomData<fn() -> N>,
}

// By hand: a derived one would ask the marker to be `Clone`.
impl<N> Clone for RateLimitLayer<N> {
    fn clone(&self) -> Self {
        let Self { limiter, rules, plan, .. } = self;
        let (limiter, rules, plan) = (limiter.clone(), rules.clone(), Arc::clone(plan));
        Self { limiter, rules, plan, count: PhantomData }
    }
}

/// Of a [`RateLimitLayer`]: it has one rule.
#[derive(Clone, Copy, Debug)]
pub struct One(());

/// Of a [`RateLimitLayer`]: it has several rules.
#[derive(Clone, Copy, Debug)]
pub struct Several(());

/// Of a [`RateLimitLayer`]: it has one rule, so that `key` and `cost` are that rule's.
#[diagnostic::on_unimplemented(
    message = "this layer has several rules, and does not know whose key or cost is meant",
    note = "set it on the rule: `limiter.layer(Rule::new(&A).key(..)).and(Rule::new(&B).cost(..))`"
)]
pub trait IsOne {}

impl IsOne for One {}

impl RateLimiter {
    /// Makes a layer of a rule, or of a bare limit: one token of each request, from the one bucket
    /// of [`global`](crate::key::global), unless the methods of the rule say otherwise.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::ClientIp;
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
    ///
    /// const PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(10, MINUTE));
    ///
    /// let layer = RateLimiter::in_memory().layer(&PER_CLIENT).key(ClientIp::peer());
    /// # drop(layer);
    /// ```
    pub fn layer(&self, rule: impl Into<Rule>) -> RateLimitLayer {
        RateLimitLayer::with_rules(self.clone(), Rules::new(rule.into()))
    }
}

/// For a layer of one rule: short forms of the methods of [`Rule`].
impl<N> RateLimitLayer<N> {
    /// Takes the key of each request by this extractor, as [`Rule::key`].
    pub fn key(self, extractor: impl KeyExtractor) -> Self
    where
        N: IsOne,
    {
        self.with_rule(|rule| rule.key(extractor))
    }

    /// Takes the key of each request by this function of its head, as [`Rule::key_with`].
    pub fn key_with<F, K>(self, key: F) -> Self
    where
        F: Fn(&Head<'_>) -> K + Send + Sync + 'static,
        K: IntoExtracted + 'static,
        N: IsOne,
    {
        self.with_rule(|rule| rule.key_with(key))
    }

    /// Takes this many tokens for each request, as [`Rule::cost`].
    pub fn cost(self, tokens: u64) -> Self
    where
        N: IsOne,
    {
        self.with_rule(|rule| rule.cost(tokens))
    }

    /// Takes as many tokens for a request as this function of its head says, as
    /// [`Rule::cost_with`].
    pub fn cost_with<F>(self, cost: F) -> Self
    where
        F: Fn(&Head<'_>) -> u64 + Send + Sync + 'static,
        N: IsOne,
    {
        self.with_rule(|rule| rule.cost_with(cost))
    }
}

/// More rules.
impl<N> RateLimitLayer<N> {
    /// Holds the requests to one more rule: each takes its tokens from all limits or from none, in
    /// one step and one round trip to the store.
    ///
    /// A request that is exempt from some of the rules is held to the others. One whose key for any
    /// of them is missing, and may not be, is answered at once and takes from none: where clients
    /// can leave a key out, [`missing_key`](Rule::missing_key) lets them pay without it. The
    /// refusal names each limit that refused, and `Retry-After` is the longest of their waits.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::{ClientIp, header};
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter, Rule, SECOND};
    ///
    /// const PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(10, SECOND));
    /// const PER_TENANT: Limit = Limit::new("per-tenant", Quota::token_bucket(1_000, MINUTE));
    /// const EVERYONE: Limit = Limit::new("everyone", Quota::token_bucket(50_000, MINUTE));
    ///
    /// let layer = RateLimiter::in_memory()
    ///     .layer(Rule::new(&PER_CLIENT).key(ClientIp::peer()))
    ///     .and(Rule::new(&PER_TENANT).key(header("x-tenant")))
    ///     .and(&EVERYONE);
    /// # drop(layer);
    /// ```
    ///
    /// After it, a key has to say which rule it belongs to. This does not compile:
    ///
    /// ```compile_fail,E0277
    /// # use tollgate::key::{ClientIp, header};
    /// # use tollgate::{Limit, MINUTE, Quota, RateLimiter};
    /// # const A: Limit = Limit::new("a", Quota::token_bucket(10, MINUTE));
    /// # const B: Limit = Limit::new("b", Quota::token_bucket(10, MINUTE));
    /// let layer = RateLimiter::in_memory().layer(&A).and(&B).key(ClientIp::peer());
    /// ```
    pub fn and(mut self, rule: impl Into<Rule>) -> RateLimitLayer<Several> {
        self.rules.rest.push(rule.into());
        RateLimitLayer::with_rules(self.limiter, self.rules)
    }
}

/// Waiting in place of refusals.
impl<N> RateLimitLayer<N> {
    /// Lets requests that are short of tokens wait for their turn, in the order in which they came.
    ///
    /// A request waits in its own future, without a task, a thread or polling; then the inner
    /// service is made ready and called. The response says in `Server-Timing` for how long it
    /// waited. What would have to wait longer than the queue allows is refused at once, and so is
    /// what finds the queue full; `Retry-After` says when it would not have to wait at all. If the
    /// client goes away, its slot goes to the next waiter.
    ///
    /// The quota's [`max_reserved`](crate::Quota::max_reserved) bounds the debt, and so the queue.
    /// Call [`drain`](RateLimiter::drain) when the server shuts down.
    ///
    /// # Panics
    ///
    /// The response's future, if it has to wait outside of a tokio runtime, or in one whose time is
    /// not enabled.
    #[doc(alias = "delay")]
    #[doc(alias = "wait")]
    pub fn queue(self, queue: impl Into<Queue>) -> Self {
        let queue = queue.into();
        self.with(|settings| settings.queue = Some(queue))
    }

    /// Makes waits longer at random, by at most this much and never shorter: those in the queue,
    /// and those that refused clients are told.
    ///
    /// See [`ReserveCall::jitter`](crate::limiter::ReserveCall::jitter) for what that changes.
    pub fn jitter(self, spread: Duration) -> Self {
        self.with(|settings| settings.jitter = spread)
    }
}

/// What clients are told, and what happens while the store fails.
impl<N> RateLimitLayer<N> {
    /// Tells clients about the limits in these header fields: one
    /// [`Dialect`](crate::fields::Dialect), which is a guide to them, or several in an array.
    ///
    /// # Panics
    ///
    /// If drafts 11 and 7 are among them, whose fields have the same names and different contents.
    #[doc(alias = "headers")]
    #[doc(alias = "use_headers")]
    #[doc(alias = "standardHeaders")]
    #[track_caller]
    pub fn dialects(self, dialects: impl Into<Dialects>) -> Self {
        let dialects = dialects.into();
        assert!(
            !dialects.has_conflict(),
            "the fields of draft 11 and draft 7 have the same names (choose one of the two)"
        );
        self.with(|settings| settings.dialects = dialects)
    }

    /// Sets the form in which `Retry-After` says when to come back.
    pub fn retry_after(self, retry_after: RetryAfter) -> Self {
        self.with(|settings| settings.retry_after = retry_after)
    }

    /// Tells clients of draft 11 which partition of each quota their requests belong to; they are
    /// told nothing of that otherwise.
    pub fn partition_key(self, partition_key: PartitionKey) -> Self {
        self.with(|settings| settings.partition_key = Some(partition_key))
    }

    /// Sets how a request is answered that does not run.
    #[doc(alias = "error_handler")]
    pub fn on_refusal(self, on_refusal: OnRefusal) -> Self {
        self.with(|settings| settings.on_refusal = on_refusal)
    }

    /// Sets what happens to requests while the store does not answer.
    #[doc(alias = "fail_open")]
    pub fn on_failure(self, on_failure: OnFailure) -> Self {
        self.with(|settings| settings.on_failure = on_failure)
    }
}

/// Settling, requests whose clients go away, and handlers that look.
impl<N> RateLimitLayer<N> {
    /// Settles each request by the [`ActualCost`](super::ActualCost) in its response's extensions,
    /// or by what its handler has counted with the [`Meter`](super::Meter) of the request: what is
    /// left of the tokens is given back, what is short is taken, into debt if need be.
    ///
    /// With several rules, only those with an explicit [`cost`](Rule::cost) are settled; if none
    /// has one, all are. So set a cost on a limit of tokens, and a limit of requests is left alone.
    ///
    /// What is given back is there for the next request, which may then come before those that wait
    /// already and were promised their instants. The fields that tell clients about the limit show
    /// how it stood when the request was let in.
    ///
    /// If the client goes away before the response is there, or the service fails or panics, the
    /// request is settled at what its handler has counted so far. A handler that has not taken the
    /// meter leaves the tokens taken, and so does its response without a cost. Once there is a
    /// response, the client does not matter: a store that answers later completes the settlement.
    ///
    /// Each request gets a meter, taken or not, which costs a few small allocations.
    pub fn settle(self) -> Self {
        self.with(|settings| settings.settles = true)
    }

    /// Gives all tokens of a request back whose future is dropped before there is a response: its
    /// client has gone away, or a timeout outside of this layer has passed.
    ///
    /// Such a request costs nothing, in all rules and whatever its [`Meter`](super::Meter) has
    /// counted. Its tokens stay taken otherwise, or are [settled](Self::settle) at what was counted.
    /// What the bucket has gained meanwhile is not given a second time, as in
    /// [`Rule::refund_if`]. A request whose service fails or panics was not dropped, and neither was
    /// one whose client leaves in the middle of the response.
    ///
    /// **A client can have work done for nothing**: it disconnects shortly before the response, as
    /// often as it likes, and the limit then only bounds how much runs at the same time. Use it
    /// where work that is dropped costs next to nothing, or where clients are trusted.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use std::future::pending;
    ///
    /// use http::{Request, Response};
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
    /// use tower::{Layer, Service, service_fn};
    ///
    /// const CALLS: Limit = Limit::new("calls", Quota::token_bucket(10, MINUTE));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::RateLimited> {
    /// let limiter = RateLimiter::in_memory();
    /// let slow = service_fn(|_: Request<()>| pending::<Result<Response<()>, Infallible>>());
    /// let mut service = limiter.layer(&CALLS).refund_dropped().layer(slow);
    /// let response = service.call(Request::new(()));
    /// assert_eq!(limiter.peek(&CALLS).await?.remaining(), 9);
    /// drop(response);
    /// assert_eq!(limiter.peek(&CALLS).await?.remaining(), 10);
    /// # Ok(())
    /// # }
    /// ```
    pub fn refund_dropped(self) -> Self {
        self.with(|settings| settings.refunds_dropped = true)
    }

    /// Shows handlers what the layer has decided: puts an [`Admission`](super::Admission) into the
    /// extensions of each request, which is an extractor in axum.
    ///
    /// Layers that do not expose pay nothing for it, and neither do the routes below them. Of
    /// nested layers that do, a handler sees all.
    ///
    /// # Examples
    ///
    /// ```
    /// use axum::{Router, routing::get};
    /// use tollgate::middleware::Admission;
    /// use tollgate::{Limit, MINUTE, Quota, RateLimitExt, RateLimiter};
    ///
    /// const CALLS: Limit = Limit::new("calls", Quota::token_bucket(10, MINUTE));
    ///
    /// async fn left(admission: Admission) -> String {
    ///     format!("{:?} calls left", admission.remaining())
    /// }
    ///
    /// let layer = RateLimiter::in_memory().layer(&CALLS).expose();
    /// let app: Router = Router::new().route("/", get(left).rate_limit(layer));
    /// # drop(app);
    /// ```
    pub fn expose(self) -> Self {
        self.with(|settings| settings.exposes = true)
    }
}

impl<N> RateLimitLayer<N> {
    fn with_rules(limiter: RateLimiter, rules: Rules) -> Self {
        let plan = Arc::new(Plan::new(limiter.clone(), &rules));
        Self { limiter, rules, plan, count: PhantomData }
    }

    fn with(mut self, change: impl FnOnce(&mut LayerSettings)) -> Self {
        change(&mut self.rules.settings);
        Self::with_rules(self.limiter, self.rules)
    }

    fn with_rule(self, change: impl FnOnce(Rule) -> Rule) -> Self {
        let Rules { first, rest, settings } = self.rules;
        Self::with_rules(self.limiter, Rules { first: change(first), rest, settings })
    }
}

/// A layer of one rule goes wherever one of several does.
impl From<RateLimitLayer> for RateLimitLayer<Several> {
    fn from(layer: RateLimitLayer) -> Self {
        let RateLimitLayer { limiter, rules, plan, .. } = layer;
        Self { limiter, rules, plan, count: PhantomData }
    }
}

impl<S, N> Layer<S> for RateLimitLayer<N> {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit::new(inner, Arc::clone(&self.plan))
    }
}

impl<N> fmt::Debug for RateLimitLayer<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RateLimitLayer").field(&self.rules).finish()
    }
}
