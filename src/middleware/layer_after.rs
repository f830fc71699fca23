//! What a layer does after the decision: settling, and what handlers see.

use super::layer::RateLimitLayer;

/// Settling, clients that disconnect, and what handlers can see.
impl<N> RateLimitLayer<N> {
    /// Settles each request at its actual cost, when its work is done.
    ///
    /// The actual cost is what the handler counted with the [`Meter`](super::Meter) of the request,
    /// or the [`ActualCost`](super::ActualCost) in the extensions of the response. Tokens that the
    /// request took in excess are returned. Tokens that it is short of are taken, into debt if need
    /// be.
    ///
    /// With several rules, only those with an explicit [`cost`](crate::Rule::cost) are settled; if none
    /// has one, all are. So set a cost on the limit that counts tokens, and none on a limit that
    /// counts requests.
    ///
    /// In stores that other processes use as well, returned tokens may serve a new request before
    /// requests that wait, as those hold slots at fixed instants. The header fields show how the
    /// limit stands after the settlement, if the cost is known when the response is sent.
    ///
    /// If the client disconnects before there is a response, or the service fails or panics, the
    /// request is settled at what its handler has counted so far. If the handler has not taken the
    /// meter, the tokens stay taken, unless the response has an `ActualCost`. Once there is a
    /// response, the settlement completes even if the client disconnects.
    ///
    /// Every request gets a meter, at the price of a few small allocations.
    pub fn settle(self) -> Self {
        self.with(|settings| settings.settles = true)
    }

    /// Returns all tokens of a request if its future is dropped before there is a response.
    ///
    /// That happens if the client disconnects, or if a timeout outside of this layer expires.
    ///
    /// The request then costs nothing, in all rules and whatever its [`Meter`](super::Meter) has
    /// counted. Without this method, its tokens stay taken, or are [settled](Self::settle) at what
    /// was counted. Tokens that have refilled in the meantime are not returned a second time, as in
    /// [`Rule::refund_if`](crate::Rule::refund_if). A request does not count as dropped if its
    /// service fails or panics, or if its client disconnects in the middle of the response.
    ///
    /// **Clients can use this to get work done for free**: a client that always disconnects shortly
    /// before the response is only limited in how many requests it runs at the same time. Use it if
    /// dropped work costs next to nothing, or if clients are trusted.
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

    /// Puts an [`Admission`](super::Admission) into the extensions of each request, for its
    /// handler.
    ///
    /// It shows how the limits stand. In axum, it is an extractor.
    ///
    /// Only the layers that call this method pay for it. If several nested layers do, the handler
    /// sees the limits of all of them.
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
