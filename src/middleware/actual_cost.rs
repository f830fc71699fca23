//! The actual cost of a request, set by its handler in the response.

use super::meter::{Meter, PendingCost};
use crate::limiter::{Permit, Settlement};

/// The actual cost of a request, in the extensions of its response.
///
/// A layer that [settles](super::RateLimitLayer::settle) reads it from there.
///
/// # Examples
///
/// ```
/// use std::convert::Infallible;
///
/// use http::{Request, Response};
/// use tollgate::middleware::ActualCost;
/// use tollgate::{DAY, Limit, Quota, RateLimiter};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// const LLM: Limit = Limit::new("llm-tokens", Quota::fixed_window(40_000, DAY));
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
    /// A cost of this many tokens.
    #[must_use]
    pub const fn new(tokens: u64) -> Self {
        Self(CostSource::Known(tokens))
    }

    /// A cost that is known later, with the meter that sets it.
    ///
    /// Use it for a response that is a stream: put the cost into the response, and keep the meter
    /// where the stream ends.
    ///
    /// This meter is not that of the request, and takes precedence over it. If it is dropped before
    /// it has counted anything, the tokens stay taken. With the [`Meter`] of the request, a
    /// response needs no `ActualCost`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::middleware::{ActualCost, Meter};
    ///
    /// /// Counts what is sent, also if the client disconnects before the end.
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

    /// A cost that the meter of the request counts.
    pub(super) const fn from_pending(cost: PendingCost) -> Self {
        Self(CostSource::Pending(cost))
    }

    /// The tokens, if they are known.
    pub(super) fn known(&self) -> Option<u64> {
        match &self.0 {
            CostSource::Known(tokens) => Some(*tokens),
            CostSource::Pending(cost) => cost.known(),
        }
    }

    /// Settles the permit, now or once the cost is known.
    pub(super) fn settle(&self, permit: Permit<'static>) {
        match &self.0 {
            // The settlement completes by itself, also if its future is dropped.
            CostSource::Known(tokens) => drop(permit.settle_by(Settlement::All(*tokens))),
            CostSource::Pending(cost) => cost.settle(permit),
        }
    }
}
