//! What a rule is made of: the methods of [`Rule`].

use std::sync::Arc;

use http::Method;

use super::chosen_limit::ChosenLimit;
use super::rule::{RequestCost, Rule};
use super::{MissingKey, Portion, ResponseHead};
use crate::key::{Head, IntoExtracted, KeyExtractor, from_fn};
use crate::limiter::Limit;

/// What a request pays: the limit, the key and the cost.
impl Rule {
    /// A rule that holds every request to this limit: one token each, from the bucket that all
    /// requests share, unless its methods say otherwise.
    pub fn new(limit: impl Into<Limit>) -> Self {
        Self::with_limit(Arc::new(limit.into()))
    }

    /// Takes the key of each request by this extractor.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::{ClientIp, header};
    /// use tollgate::{HOUR, Limit, Quota, Rule};
    ///
    /// const EXPORTS: Limit = Limit::new("exports", Quota::fixed_window(100, HOUR));
    ///
    /// let rule = Rule::new(&EXPORTS).key((header("x-tenant"), ClientIp::peer()));
    /// # drop(rule);
    /// ```
    #[doc(alias = "key_extractor")]
    #[doc(alias = "keyGenerator")]
    pub fn key(mut self, extractor: impl KeyExtractor) -> Self {
        self.key = Arc::new(extractor);
        self
    }

    /// Takes the key of each request by this function of its head: a key, or an `Option` or a
    /// `Result` of one.
    ///
    /// The key cannot borrow from the head: make it owned, by `to_owned()` or by `Key::from(..)`,
    /// which does not allocate for up to 38 bytes. A closure that is stored in a variable first
    /// needs the type of its parameter, `|head: &Head<'_>|`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::Head;
    /// use tollgate::{Limit, MINUTE, Quota, Rule};
    ///
    /// const CALLS: Limit = Limit::new("calls", Quota::token_bucket(100, MINUTE));
    ///
    /// let key = |head: &Head<'_>| if head.method().is_safe() { "reads" } else { "writes" };
    /// let rule = Rule::new(&CALLS).key_with(key);
    /// # drop(rule);
    /// ```
    pub fn key_with<F, K>(self, key: F) -> Self
    where
        F: Fn(&Head<'_>) -> K + Send + Sync + 'static,
        K: IntoExtracted + 'static,
    {
        self.key(from_fn(key))
    }

    /// Takes this many tokens for each request.
    pub fn cost(mut self, tokens: u64) -> Self {
        self.cost = RequestCost::Tokens(tokens);
        self
    }

    /// Takes as many tokens for a request as this function of its head says.
    ///
    /// More than the limit can ever grant is answered with 429 and without `Retry-After`, as no
    /// wait would help. A closure that is stored in a variable first needs the type of its
    /// parameter, `|head: &Head<'_>|`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{HOUR, Limit, Quota, Rule};
    ///
    /// const EXPORTS: Limit = Limit::new("exports", Quota::fixed_window(100, HOUR));
    ///
    /// let by_format = Rule::new(&EXPORTS)
    ///     .cost_with(|head| if head.uri().path().ends_with(".zip") { 10 } else { 1 });
    /// # drop(by_format);
    /// ```
    pub fn cost_with<F>(mut self, cost: F) -> Self
    where
        F: Fn(&Head<'_>) -> u64 + Send + Sync + 'static,
    {
        self.cost = RequestCost::ByRequest(Arc::new(cost));
        self
    }

    /// Holds each request to the limit that this function of its head chooses, such as that of its
    /// tenant's plan: a [`Limit`], a `&'static Limit`, an `Arc<Limit>`, or an `Option` of one.
    /// `None` is not limited.
    ///
    /// Limits that share a name share their buckets: a tenant that changes the plan keeps what was
    /// used. The limit that the rule was made with is named where no request is at hand, as in the
    /// log. A closure that is stored in a variable first needs the type of its parameter,
    /// `|head: &Head<'_>|`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::{Head, header};
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter, Rule};
    ///
    /// static FREE: Limit = Limit::new("per-tenant", Quota::token_bucket(60, MINUTE));
    /// static PRO: Limit = Limit::new("per-tenant", Quota::token_bucket(6_000, MINUTE));
    ///
    /// fn plan(head: &Head<'_>) -> Option<&'static Limit> {
    ///     // In production, from what the authentication has put into the request's extensions.
    ///     match head.headers().get("x-plan")?.as_bytes() {
    ///         b"internal" => None, // not limited
    ///         b"pro" => Some(&PRO),
    ///         _ => Some(&FREE),
    ///     }
    /// }
    ///
    /// let rule = Rule::new(&FREE).limit_with(plan).key(header("x-tenant"));
    /// let layer = RateLimiter::in_memory().layer(rule);
    /// # drop(layer);
    /// ```
    ///
    /// By method or path, where those are to have buckets of their own:
    ///
    /// ```
    /// use tollgate::key::ClientIp;
    /// use tollgate::{Limit, MINUTE, Quota, Rule};
    ///
    /// static READS: Limit = Limit::new("reads", Quota::token_bucket(600, MINUTE));
    /// static WRITES: Limit = Limit::new("writes", Quota::token_bucket(60, MINUTE));
    /// static EXPORTS: Limit = Limit::new("exports", Quota::token_bucket(6, MINUTE));
    ///
    /// let rule = Rule::new(&READS).key(ClientIp::peer()).limit_with(|head| {
    ///     match head.uri().path().starts_with("/export") {
    ///         true => &EXPORTS,
    ///         false if head.method().is_safe() => &READS,
    ///         false => &WRITES,
    ///     }
    /// });
    /// # drop(rule);
    /// ```
    pub fn limit_with<F, L>(mut self, choose: F) -> Self
    where
        F: Fn(&Head<'_>) -> L + Send + Sync + 'static,
        L: Into<ChosenLimit>,
    {
        self.chooser = Some(Arc::new(move |head| choose(head).into().0));
        self
    }

    /// Sets what happens to a request whose key is missing; it is answered with 500 otherwise.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::StatusCode;
    /// use tollgate::key::header;
    /// use tollgate::middleware::MissingKey;
    /// use tollgate::{HOUR, Limit, Quota, Rule};
    ///
    /// const EXPORTS: Limit = Limit::new("exports", Quota::fixed_window(100, HOUR));
    ///
    /// let unauthorized = MissingKey::Reject(StatusCode::UNAUTHORIZED);
    /// let rule = Rule::new(&EXPORTS).key(header("x-tenant")).missing_key(unauthorized);
    /// # drop(rule);
    /// ```
    pub fn missing_key(mut self, missing_key: MissingKey) -> Self {
        self.missing_key = missing_key;
        self
    }
}

/// Which requests it applies to.
impl Rule {
    /// Applies this limit only to requests with one of these methods; the others pass.
    ///
    /// GET includes HEAD, which servers answer by the work of GET; axum runs the handler of GET.
    ///
    /// Where several conditions are set, a request has to meet all of them. A request that does not
    /// meet them is not asked for a key, so none can be missing.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::Method;
    /// use tollgate::{Limit, MINUTE, Quota, Rule};
    ///
    /// const WRITES: Limit = Limit::new("writes", Quota::token_bucket(10, MINUTE));
    ///
    /// let rule = Rule::new(&WRITES).only_methods([Method::POST, Method::PUT]);
    /// # drop(rule);
    /// ```
    #[doc(alias = "methods")]
    pub fn only_methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        let mut methods: Vec<_> = methods.into_iter().collect();
        let head = methods.contains(&Method::GET).then_some(Method::HEAD);
        methods.extend(head);
        self.only_if(move |head| methods.contains(head.method()))
    }

    /// Applies this limit only to requests for which `predicate` returns true; the others pass.
    ///
    /// See [`only_methods`](Self::only_methods). A predicate that names GET has to name HEAD as well.
    #[doc(alias = "skip")]
    #[doc(alias = "filter")]
    pub fn only_if<F>(mut self, predicate: F) -> Self
    where
        F: Fn(&Head<'_>) -> bool + Send + Sync + 'static,
    {
        self.options_mut().only.push(Arc::new(predicate));
        self
    }

    /// Applies this limit to a part of the requests, picked at random; the others pass.
    ///
    /// The numbers come from the limiter: [`seed`](crate::RateLimiter::seed) makes them the same in
    /// each run. One is drawn for each request that meets all other conditions.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::middleware::Portion;
    /// use tollgate::{Limit, MINUTE, Quota, Rule};
    ///
    /// const TRACED: Limit = Limit::new("traced", Quota::token_bucket(10, MINUTE));
    ///
    /// let rule = Rule::new(&TRACED).sample(Portion::one_in(100));
    /// # drop(rule);
    /// ```
    pub fn sample(mut self, portion: Portion) -> Self {
        self.options_mut().sample = portion;
        self
    }
}

/// Shadow and roll-out.
impl Rule {
    /// Decides by this limit and reports, but refuses nothing: to see what a limit would do before
    /// it does.
    ///
    /// What would be refused is in the log, and what was decided is seen by handlers if the layer
    /// [exposes](crate::RateLimitLayer::expose) it. Clients are not told of the limit. Tokens are
    /// taken and given back as if it were enforced.
    ///
    /// Give it a name of its own: limits that share a name share their buckets.
    ///
    /// A shadow rule is charged by itself, after the rules that are enforced and only if these let
    /// the request in. These take from all of them or from none as if it were not there, and it
    /// takes as if it were the only one. In a layer with a [queue](crate::RateLimitLayer::queue) it
    /// does not wait. A missing key, a cost that is too large and a store that fails are in the
    /// log, and the request goes on. With a store that answers later it takes one more round trip
    /// for each shadow rule.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::ClientIp;
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter, Rule};
    ///
    /// const NOW: Limit = Limit::new("per-client", Quota::token_bucket(100, MINUTE));
    /// const PLANNED: Limit = Limit::new("stricter", Quota::token_bucket(20, MINUTE));
    ///
    /// let layer = RateLimiter::in_memory()
    ///     .layer(Rule::new(&NOW).key(ClientIp::peer()))
    ///     .and(Rule::new(&PLANNED).key(ClientIp::peer()).shadow());
    /// # drop(layer);
    /// ```
    #[doc(alias = "dry_run")]
    pub fn shadow(self) -> Self {
        self.enforce(Portion::NONE)
    }

    /// Enforces this limit on a part of the keys only, and is a [shadow](Self::shadow) to the
    /// others: to bring a limit in step by step.
    ///
    /// Whether a key is one of them follows from a hash of it ([`BucketId::sample_hash`]), so it is
    /// the same on every node and at any time, and raising the percentage only adds keys. Requests
    /// without a usable key are all answered from the smallest portion on: with 400, or as
    /// [`missing_key`](Self::missing_key) says. They pass a shadow, and the log tells how they would be
    /// answered.
    ///
    /// [`BucketId::sample_hash`]: crate::backend::BucketId::sample_hash
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::header;
    /// use tollgate::middleware::Portion;
    /// use tollgate::{Limit, MINUTE, Quota, Rule};
    ///
    /// const PER_USER: Limit = Limit::new("per-user", Quota::token_bucket(100, MINUTE));
    ///
    /// let rule = Rule::new(&PER_USER).key(header("x-user")).enforce(Portion::percent(10));
    /// # drop(rule);
    /// ```
    #[doc(alias = "rollout")]
    pub fn enforce(mut self, portion: Portion) -> Self {
        self.options_mut().enforced = portion;
        self
    }
}

/// What the response does to the tokens.
impl Rule {
    /// Gives the tokens of this limit back if the response says so: for limits on failures only, or
    /// on what was really done.
    ///
    /// The tokens are taken up front, so that requests at once get no more than the limit: of 1,000
    /// wrong passwords at once, 5 reach the check where 5 are allowed. In exchange, requests that
    /// run at the same time may be refused although their tokens would come back. Where a request
    /// runs for so long that its bucket fills up again meanwhile, or into the next window, what the
    /// bucket has gained is not given a second time.
    ///
    /// They come back once the inner service has answered, even if the client has gone meanwhile,
    /// and not if it has gone before that
    /// ([`refund_dropped`](crate::RateLimitLayer::refund_dropped) is for those), nor if the
    /// service fails or panics: what became of the work is not known then. The fields that tell
    /// clients about the limit show how it stood when the request was let in. It goes before
    /// [`settle`](crate::RateLimitLayer::settle), which leaves this limit alone then.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::convert::Infallible;
    ///
    /// use http::{Request, Response, StatusCode};
    /// use tollgate::{HOUR, Limit, Quota, RateLimiter, Rule};
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// const FAILURES: Limit = Limit::new("failures", Quota::token_bucket(5, HOUR));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = RateLimiter::in_memory();
    /// let failures = Rule::new(&FAILURES).refund_if(|response| response.is_success());
    /// let layer = limiter.layer(failures);
    /// let answer = service_fn(async |request: Request<StatusCode>| {
    ///     Ok::<_, Infallible>(Response::builder().status(request.into_body()).body(()).unwrap())
    /// });
    /// for (status, left) in [(200, 5), (404, 4), (204, 4)] {
    ///     let request = Request::new(StatusCode::from_u16(status)?);
    ///     layer.layer(answer).oneshot(request).await?;
    ///     assert_eq!(limiter.peek(&FAILURES).await?.remaining(), left);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "skipSuccessfulRequests")]
    pub fn refund_if<F>(mut self, predicate: F) -> Self
    where
        F: Fn(&ResponseHead<'_>) -> bool + Send + Sync + 'static,
    {
        self.options_mut().refund_if = Some(Arc::new(predicate));
        self
    }

    /// Makes this limit's bucket as if it had never been used if the response says so, as after a
    /// log-in that has succeeded.
    ///
    /// With the bucket, what other requests have taken that are still running is forgotten as well:
    /// where one of them is refunded after it, its tokens come back a second time. So do not let a
    /// client choose when that happens, or use [`refund_if`](Self::refund_if). It goes before that,
    /// where both say yes. When it happens and when not is as there.
    pub fn reset_if<F>(mut self, predicate: F) -> Self
    where
        F: Fn(&ResponseHead<'_>) -> bool + Send + Sync + 'static,
    {
        self.options_mut().reset_if = Some(Arc::new(predicate));
        self
    }
}

/// A bare limit is a rule: one token of each request, from the bucket that all of them share.
impl From<Limit> for Rule {
    fn from(limit: Limit) -> Self {
        Self::new(limit)
    }
}

/// As for [`Limit`].
impl From<&Limit> for Rule {
    fn from(limit: &Limit) -> Self {
        Self::new(limit)
    }
}

/// As for [`Limit`].
impl From<&Arc<Limit>> for Rule {
    fn from(limit: &Arc<Limit>) -> Self {
        Self::with_limit(Arc::clone(limit))
    }
}
