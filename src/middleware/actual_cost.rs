//! The actual cost of a request, set by its handler in the response.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
pub struct ActualCost(Arc<Mutex<CostState>>);

/// A cost that may be known later. It and the permits of all layers meet here; whichever comes first
/// waits for the other.
#[derive(Debug, Default)]
pub(super) struct CostState {
    permits: Vec<Permit<'static>>,
    /// How many layers hold the meter.
    pub(super) layers: usize,
    /// `None` until the meter is taken from its request, or counts.
    pub(super) counted: Option<u64>,
    /// The final cost.
    pub(super) tokens: Option<u64>,
}

impl ActualCost {
    /// A cost of this many tokens.
    #[must_use]
    pub fn new(tokens: u64) -> Self {
        Self::of(CostState { tokens: Some(tokens), ..CostState::default() })
    }

    /// A cost that a meter is yet to set.
    pub(super) fn unknown() -> Self {
        Self::of(CostState::default())
    }

    fn of(state: CostState) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    /// The tokens, if they are known.
    pub(super) fn known(&self) -> Option<u64> {
        self.lock().tokens
    }

    /// Settles the permit, now or once the cost is known.
    pub(super) fn settle(&self, permit: Permit<'static>) {
        self.complete(|state| state.permits.push(permit));
    }

    /// Sets the final cost, computed from the count, unless it is set already.
    pub(super) fn finish(&self, tokens: impl FnOnce(Option<u64>) -> Option<u64>) {
        self.complete(|state| {
            // The first one counts: a cost that was settled explicitly is not replaced when the
            // meter is dropped after it.
            state.tokens = state.tokens.or_else(|| tokens(state.counted));
        });
    }

    /// Changes the state, and settles all permits if the final cost is known.
    fn complete(&self, add: impl FnOnce(&mut CostState)) {
        // The permits of the layers and the count of the handler come in any order, from any
        // thread. Under this lock one of them is the second, and settles.
        let (permits, tokens) = {
            let mut state = self.lock();
            add(&mut state);
            let Some(tokens) = state.tokens else { return };
            (std::mem::take(&mut state.permits), tokens)
        };
        for permit in permits {
            // The settlement completes by itself, also if its future is dropped.
            drop(permit.settle_by(Settlement::All(tokens)));
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, CostState> {
        // A poisoned lock is harmless: no holder can panic halfway through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
