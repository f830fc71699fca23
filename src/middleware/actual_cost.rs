//! What a request really cost, told by its handler.

use std::sync::{Arc, Mutex, PoisonError};

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
pub struct ActualCost(Actual);

#[derive(Clone, Debug)]
enum Actual {
    Known(u64),
    Metered(Arc<Mutex<Metered>>),
}

/// Whichever comes first waits here for the other: the tokens, or the permits of all layers.
#[derive(Debug, Default)]
struct Metered {
    permits: Vec<Permit<'static>>,
    tokens: Option<u64>,
}

impl ActualCost {
    /// The request cost this many tokens.
    #[must_use]
    pub const fn new(tokens: u64) -> Self {
        Self(Actual::Known(tokens))
    }

    /// What the request cost is known later, as where its response is a stream: put the cost into
    /// the response, and keep the meter where the stream ends.
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
        let metered = Arc::default();
        (Self(Actual::Metered(Arc::clone(&metered))), Meter(metered))
    }

    /// Settles what was taken, now or once the meter is read.
    pub(super) fn settle(&self, permit: Permit<'static>) {
        match &self.0 {
            // The store completes it by itself.
            Actual::Known(tokens) => drop(permit.settle_by(Settlement::All(*tokens))),
            Actual::Metered(metered) => complete(metered, |metered| metered.permits.push(permit)),
        }
    }
}

/// Tells what a request really cost, after its response; made by [`ActualCost::metered`].
///
/// Dropping it leaves the tokens taken.
#[derive(Debug)]
#[must_use = "nothing is settled if it is dropped"]
pub struct Meter(Arc<Mutex<Metered>>);

impl Meter {
    /// The request cost this many tokens: what is left of those that it took is given back, what is
    /// short is taken, into debt if need be.
    ///
    /// It does not wait: a store that answers later completes it in a task of its own, on the tokio
    /// runtime in which this is called.
    pub fn settle(self, actual: u64) {
        complete(&self.0, |metered| metered.tokens = Some(actual));
    }
}

/// Settles what there is once the tokens are known.
fn complete(metered: &Mutex<Metered>, add: impl FnOnce(&mut Metered)) {
    let (permits, tokens) = {
        let mut metered = metered.lock().unwrap_or_else(PoisonError::into_inner);
        add(&mut metered);
        let Some(tokens) = metered.tokens else { return };
        (std::mem::take(&mut metered.permits), tokens)
    };
    for permit in permits {
        drop(permit.settle_by(Settlement::All(tokens)));
    }
}
