//! What a request really cost, told by its handler.

use super::meter::{Meter, PendingCost};
use crate::limiter::{Permit, Settlement};

/// What a request really cost: put it into the extensions of the response, under a layer that
/// [settles](super::RateLimitLayer::settle).
///
/// # Examples
///
/// ```
/// use std::convert::Infallible;
///
/// use http::{Request, Response};
/// use tollgate::middleware::ActualCost;
/// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// const LLM: Limit = Limit::new("llm-tokens", Quota::token_bucket(40_000, MINUTE));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let answer = service_fn(async |_: Request<()>| {
///     let mut response = Response::new("forty-two");
///     response.extensions_mut().insert(ActualCost::new(300));
///     Ok::<_, Infallible>(response)
/// });
/// let limiter = RateLimiter::in_memory();
/// let service = limiter.layer(&LLM).cost(1_000).settle().layer(answer);
/// service.oneshot(Request::new(())).await?;
/// assert_eq!(limiter.peek(&LLM).await?.remaining(), 39_700);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ActualCost(CostSource);

#[derive(Clone, Debug)]
enum CostSource {
    Known(u64),
    Pending(PendingCost),
}

impl ActualCost {
    /// The request cost this many tokens.
    #[must_use]
    pub const fn new(tokens: u64) -> Self {
        Self(CostSource::Known(tokens))
    }

    /// What the request cost is known later, as where its response is a stream: put the cost into
    /// the response, and keep the meter where the stream ends.
    ///
    /// This meter is not that of the request: it goes before it, and if it is dropped without a
    /// word, the tokens stay taken. A [`Meter`] that the handler takes from the request needs no
    /// cost in the response.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::middleware::{ActualCost, Meter};
    ///
    /// /// Counts what is sent, also if the client goes away before the end.
    /// struct Counted {
    ///     sent: u64,
    ///     meter: Option<Meter>,
    /// }
    ///
    /// impl Drop for Counted {
    ///     fn drop(&mut self) {
    ///         if let Some(meter) = self.meter.take() {
    ///             meter.settle(self.sent);
    ///         }
    ///     }
    /// }
    ///
    /// let (cost, meter) = ActualCost::metered();
    /// let mut response = http::Response::new(Counted { sent: 0, meter: Some(meter) });
    /// response.extensions_mut().insert(cost);
    /// ```
    pub fn metered() -> (Self, Meter) {
        let cost = PendingCost::default();
        (Self(CostSource::Pending(cost.clone())), Meter::new(cost))
    }

    /// What is counted by the meter of the request.
    pub(super) const fn from_pending(cost: PendingCost) -> Self {
        Self(CostSource::Pending(cost))
    }

    /// Settles what was taken, now or once the meter is read.
    pub(super) fn settle(&self, permit: Permit<'static>) {
        match &self.0 {
            // The store completes it by itself.
            CostSource::Known(tokens) => drop(permit.settle_by(Settlement::All(*tokens))),
            CostSource::Pending(cost) => cost.settle(permit),
        }
    }
}
