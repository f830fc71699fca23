//! When a rule counts: what can be said of it beside limit, key and cost.

use std::sync::Arc;

use ::http::Method;

use super::{Portion, RateLimitLayer, ResponseHead};
use crate::key::Head;

impl RateLimitLayer {
    /// Holds only those requests to this limit that have one of these methods; the others go on.
    ///
    /// Where several conditions are said, a request has to meet all of them. Of one that does not
    /// meet them, no key is asked for, so none can be missing.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::Method;
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
    ///
    /// const WRITES: Limit = Limit::new("writes", Quota::token_bucket(10, MINUTE));
    ///
    /// let layer = RateLimiter::in_memory().layer(WRITES).only_methods([Method::POST, Method::PUT]);
    /// # drop(layer);
    /// ```
    #[must_use]
    pub fn only_methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        let methods: Vec<_> = methods.into_iter().collect();
        self.only_if(move |head| methods.contains(head.method()))
    }

    /// Holds only those requests to this limit of which the function says so; the others go on.
    ///
    /// See [`only_methods`](Self::only_methods).
    #[must_use]
    pub fn only_if<F>(self, says: F) -> Self
    where
        F: Fn(&Head<'_>) -> bool + Send + Sync + 'static,
    {
        self.with(|rules| rules.last().specially().only.push(Arc::new(says)))
    }

    /// Holds only this part of the requests to the limit, picked at random; the others go on.
    ///
    /// The numbers come from the limiter: [`seed`](crate::RateLimiter::seed) makes them the same in
    /// each run. One is drawn for each request that meets all other conditions.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::middleware::Portion;
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
    ///
    /// const TRACED: Limit = Limit::new("traced", Quota::token_bucket(10, MINUTE));
    ///
    /// let layer = RateLimiter::in_memory().layer(TRACED).sample(Portion::one_in(100));
    /// # drop(layer);
    /// ```
    #[must_use]
    pub fn sample(self, portion: Portion) -> Self {
        self.with(|rules| rules.last().specially().sample = portion)
    }

    /// Decides by this limit and reports, but refuses nothing: to see what a limit would do before it
    /// does.
    ///
    /// What would be refused is in the log, and what was decided is seen by handlers, where the layer
    /// [exposes](Self::expose) it. Clients are not told of the limit. Tokens are taken and given
    /// back as if it were enforced.
    ///
    /// Give it a name of its own: limits that share a name share their buckets.
    ///
    /// A shadow rule is asked by itself, after those that are enforced and only if they let the
    /// request in. These take from all of them or from none as if it were not there; and it takes as if
    /// it were the only one. In a layer with a [queue](Self::queue) it does not wait. A missing key, a
    /// cost that is too large and a store that fails are in the log, and the request goes on. With
    /// a store that answers later it takes one more round trip for each shadow rule.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::ClientIp;
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
    ///
    /// const NOW: Limit = Limit::new("per-client", Quota::token_bucket(100, MINUTE));
    /// const PLANNED: Limit = Limit::new("stricter", Quota::token_bucket(20, MINUTE));
    ///
    /// let layer = RateLimiter::in_memory().layer(NOW).key(ClientIp::peer());
    /// let layer = layer.and(PLANNED).key(ClientIp::peer()).shadow();
    /// # drop(layer);
    /// ```
    #[must_use]
    pub fn shadow(self) -> Self {
        self.enforce(Portion::NONE)
    }

    /// Enforces this limit on a part of the keys only, and is a [shadow](Self::shadow) to the others:
    /// to bring a limit in step by step.
    ///
    /// A key is one of them or not by its [sample hash](crate::backend::BucketId::sample_hash), on every node and for
    /// ever; whoever is part of some percent is part of more percent. Requests whose key is missing or
    /// cannot be used are answered as [`missing_key`](Self::missing_key) says only when the limit is
    /// enforced on all.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::header;
    /// use tollgate::middleware::Portion;
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
    ///
    /// const PER_USER: Limit = Limit::new("per-user", Quota::token_bucket(100, MINUTE));
    ///
    /// let layer = RateLimiter::in_memory().layer(PER_USER).key(header("x-user"));
    /// let layer = layer.enforce(Portion::percent(10));
    /// # drop(layer);
    /// ```
    #[must_use]
    pub fn enforce(self, portion: Portion) -> Self {
        self.with(|rules| rules.last().specially().enforced = portion)
    }

    /// Gives the tokens of this limit back if the response says so: for limits on failures only, or on
    /// what was really done.
    ///
    /// The tokens are taken up front, so that there is no time in which requests at once get more
    /// than the limit: of 1,000 wrong passwords at once, 5 reach the check where 5 are allowed.
    /// In exchange, requests that run at the same time may be refused although their tokens would come
    /// back.
    /// Where a request runs for so long that its bucket fills up again meanwhile, or into the next
    /// window, what has come in is not given a second time.
    ///
    /// They come back once the inner service has answered, even if the client has gone meanwhile,
    /// and not if it has gone before that, nor if the service fails or panics: what became of the work
    /// is not known then. The fields that tell clients about the limit show how it stood when the
    /// request was let in. It goes before [`settle`](Self::settle), which leaves
    /// this limit alone then.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::convert::Infallible;
    ///
    /// use http::{Request, Response, StatusCode};
    /// use tollgate::{HOUR, Limit, Quota, RateLimiter};
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// const FAILURES: Limit = Limit::new("failures", Quota::token_bucket(5, HOUR));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = RateLimiter::in_memory();
    /// let layer = limiter.layer(FAILURES).refund_if(|response| response.is_success());
    /// let answer = service_fn(async |request: Request<StatusCode>| {
    ///     Ok::<_, Infallible>(Response::builder().status(request.into_body()).body(()).unwrap())
    /// });
    /// for (status, left) in [(200, 5), (404, 4), (204, 4)] {
    ///     let request = Request::new(StatusCode::from_u16(status)?);
    ///     layer.layer(answer).oneshot(request).await?;
    ///     assert_eq!(limiter.value(&FAILURES).await?.remaining(), left);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn refund_if<F>(self, says: F) -> Self
    where
        F: Fn(&ResponseHead<'_>) -> bool + Send + Sync + 'static,
    {
        self.with(|rules| rules.last().specially().refund_if = Some(Arc::new(says)))
    }

    /// Makes this limit's bucket as if it had never been used if the response says so, as after a
    /// log-in that has succeeded.
    ///
    /// With the bucket, what other requests have taken that are still running is forgotten as well: where
    /// one of them is refunded after it, its tokens come back a second time. So let a client not
    /// choose when that happens, or use [`refund_if`](Self::refund_if). It goes before that, where both
    /// say yes. When it happens and when not is as there.
    #[must_use]
    pub fn reset_if<F>(self, says: F) -> Self
    where
        F: Fn(&ResponseHead<'_>) -> bool + Send + Sync + 'static,
    {
        self.with(|rules| rules.last().specially().reset_if = Some(Arc::new(says)))
    }

    /// Shows handlers what the layer has decided: puts an [`Admission`](super::Admission) into the
    /// extensions of each request, which is an extractor in axum.
    ///
    /// Layers that do not say it, and so routes whose handlers do not look, pay nothing for it. Of
    /// nested layers that do, a handler sees all.
    ///
    /// # Examples
    ///
    /// ```
    /// use axum::{Router, routing::get};
    /// use tollgate::axum::RateLimitExt;
    /// use tollgate::middleware::Admission;
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
    ///
    /// const CALLS: Limit = Limit::new("calls", Quota::token_bucket(10, MINUTE));
    ///
    /// async fn left(admission: Admission) -> String {
    ///     format!("{:?} calls left", admission.remaining())
    /// }
    ///
    /// let layer = RateLimiter::in_memory().layer(CALLS).expose();
    /// let app: Router = Router::new().route("/", get(left).rate_limit(layer));
    /// # drop(app);
    /// ```
    #[must_use]
    pub fn expose(self) -> Self {
        self.with(|rules| rules.exposes = true)
    }
}
