//! Counting what a request costs, while it runs and while its response is sent.

#[cfg(feature = "tracing")]
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use http::Extensions;

use crate::limiter::{Permit, Settlement, lock};

/// Counts what a request costs while it runs, while its response is sent, or in a task.
///
/// Every request inside of a layer that [settles](crate::RateLimitLayer::settle) has one. In axum
/// it is an extractor; other services take it by [`from_extensions`](Self::from_extensions). All
/// clones of a meter share one count.
///
/// The request is settled at the count when its work is over. That is when all clones of the meter
/// are dropped, and there is either a response or the request was dropped because its client
/// disconnected. So a meter that is kept in the body of a response counts until the stream ends, or
/// until the client disconnects in the middle of it. Nested layers share one meter, which settles
/// all of them.
///
/// **A handler that takes the meter has to count.** If it counts nothing, the request costs
/// nothing. Count certain work before it starts, such as the tokens of a prompt before it is sent;
/// otherwise a client that disconnects early gets it for free. In axum, nothing is counted yet
/// while the body is incomplete, or if a later extractor rejects the request: bound those by a
/// second limit, on requests. If no handler takes the meter, the request costs its estimate. An
/// [`ActualCost`] in the response takes precedence over the meter.
///
/// # Dropping
///
/// Dropping the last clone settles the request, without waiting for the store. If the store does
/// not answer at once, the settlement completes in a task, on the tokio runtime in which the meter
/// is dropped. Outside of a runtime there is no such task, and the estimate stays taken.
///
/// # Examples
///
/// A handler that counts as it goes:
///
/// ```
/// use axum::{Router, routing::post};
/// use tollgate::middleware::Meter;
/// use tollgate::{DAY, Limit, Quota, RateLimitExt, RateLimiter};
///
/// const LLM: Limit = Limit::new("llm-tokens", Quota::fixed_window(40_000, DAY));
///
/// async fn chat(meter: Meter, prompt: String) -> String {
///     meter.add(prompt.len() as u64 / 4);
///     let mut answer = String::new();
///     for word in ["forty", "-", "two"] {
///         meter.add(1); // if the client disconnects here, the request costs the count so far
///         answer.push_str(word);
///     }
///     answer
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tower::ServiceExt;
///
/// let limiter = RateLimiter::in_memory();
/// let layer = limiter.layer(&LLM).cost(1_000).settle();
/// let app: Router = Router::new().route("/chat", post(chat).rate_limit(layer));
/// let prompt = axum::body::Body::from("what is six by nine?");
/// app.oneshot(http::Request::post("/chat").body(prompt)?).await?;
/// assert_eq!(limiter.peek(&LLM).await?.remaining(), 40_000 - 5 - 3);
/// # Ok(())
/// # }
/// ```
#[doc(alias("usage", "weight"))]
#[derive(Clone, Debug)]
#[must_use = "a meter that is dropped at once counts nothing"]
pub struct Meter(Arc<SharedMeter>);

/// Shared by the clones of a meter and the layers around its request. The last drop settles, so the
/// settlement happens once, whatever threads drop the clones.
#[derive(Debug)]
struct SharedMeter(ActualCost);

impl Meter {
    /// Makes a meter that is not in the extensions of a request.
    fn new(cost: ActualCost) -> Self {
        Self(Arc::new(SharedMeter(cost)))
    }

    /// Returns the meter of the request with these extensions. An outer layer may have made it
    /// already.
    pub(super) fn for_request(extensions: &mut Extensions) -> Self {
        // The slot in the extensions is weak. A strong one would live as long as the request does,
        // and the count would not end when the handler drops its meter.
        let outer = extensions.get::<Weak<SharedMeter>>().and_then(Weak::upgrade);
        let meter = outer.map(Self).unwrap_or_else(|| {
            let cost = ActualCost::unknown();
            cost.lock().settles = true;
            let meter = Self::new(cost);
            // Weak: a request that is kept for long does not delay the settlement.
            extensions.insert(Arc::downgrade(&meter.0));
            meter
        });
        let mut state = meter.0.0.lock();
        state.layers = state.layers.saturating_add(1);
        drop(state);
        meter
    }

    /// A layer is done with the request, and is about to drop its meter. Returns the count, if only
    /// layers still hold the meter, so that it no longer changes.
    pub(super) fn leave(&self) -> Option<u64> {
        let mut state = self.0.0.lock();
        let is_final = Arc::strong_count(&self.0) == state.layers;
        state.layers = state.layers.saturating_sub(1);
        state.tokens.or(state.counted.filter(|_| is_final))
    }

    /// Takes the meter of the request with these extensions; from now on, the request costs the
    /// count.
    ///
    /// Returns `None` if no layer around the service settles, or if the request is over.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::convert::Infallible;
    ///
    /// use http::{Request, Response};
    /// use tollgate::middleware::Meter;
    /// use tollgate::{DAY, Limit, Quota, RateLimiter};
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// const LLM: Limit = Limit::new("llm-tokens", Quota::fixed_window(40_000, DAY));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = service_fn(async |request: Request<()>| {
    ///     if let Some(meter) = Meter::from_extensions(request.extensions()) {
    ///         meter.add(300);
    ///     }
    ///     Ok::<_, Infallible>(Response::new("forty-two"))
    /// });
    /// let limiter = RateLimiter::in_memory();
    /// let service = limiter.layer(&LLM).cost(1_000).settle().layer(model);
    /// service.oneshot(Request::new(())).await?;
    /// assert_eq!(limiter.peek(&LLM).await?.remaining(), 39_700);
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_extensions(extensions: &Extensions) -> Option<Self> {
        let meter = extensions.get::<Weak<SharedMeter>>()?.upgrade().map(Self)?;
        // From here on it is in use: dropped without a count, it settles the request at 0.
        meter.add(0);
        Some(meter)
    }

    /// Counts this many more tokens. A count after the settlement changes nothing.
    pub fn add(&self, tokens: u64) {
        let mut state = self.0.0.lock();
        state.counted = Some(state.counted.unwrap_or(0).saturating_add(tokens));
    }

    /// Sets the cost of the request to this many tokens, whatever was counted.
    ///
    /// Tokens that the request took in excess are returned. Tokens that it is short of are taken,
    /// into debt if need be.
    ///
    /// This is final, also for the clones of the meter: of several calls, the first counts. A
    /// request that is still running is settled once there is a response, or it is dropped.
    ///
    /// The call does not wait for the store. If the store does not answer at once, the settlement
    /// completes in a task, on the tokio runtime in which this is called.
    pub fn settle(self, actual: u64) {
        self.0.0.finish(|_| Some(actual));
    }

    /// The cost of the request, if its handler has taken the meter.
    pub(super) fn cost(&self) -> Option<&ActualCost> {
        let is_used = self.0.0.lock().counted.is_some();
        is_used.then_some(&self.0.0)
    }
}

impl Drop for SharedMeter {
    fn drop(&mut self) {
        self.0.finish(|counted| counted);
    }
}

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
struct CostState {
    permits: Vec<Permit<'static>>,
    /// How many layers hold the meter.
    layers: usize,
    /// `None` until the meter is taken from its request, or counts.
    counted: Option<u64>,
    /// The final cost.
    tokens: Option<u64>,
    /// Whether a layer settles by it.
    settles: bool,
}

impl Drop for CostState {
    fn drop(&mut self) {
        if self.tokens.is_some() && !self.settles {
            log_unsettled();
        }
    }
}

impl ActualCost {
    /// A cost of this many tokens.
    #[must_use]
    pub fn new(tokens: u64) -> Self {
        let mut state = CostState::default();
        state.tokens = Some(tokens);
        Self::of(state)
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
        let cost = Self::unknown();
        (cost.clone(), Meter::new(cost))
    }

    /// A cost that a meter is yet to set.
    fn unknown() -> Self {
        Self::of(CostState::default())
    }

    fn of(state: CostState) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    /// The tokens, if they are known, for a layer that settles by them or does not.
    pub(super) fn known(&self, settles: bool) -> Option<u64> {
        let mut state = self.lock();
        state.settles |= settles;
        state.tokens
    }

    /// Settles the permit, now or once the cost is known.
    pub(super) fn settle(&self, permit: Permit<'static>) {
        self.complete(|state| state.permits.push(permit));
    }

    /// Sets the final cost, computed from the count, unless it is set already.
    fn finish(&self, tokens: impl FnOnce(Option<u64>) -> Option<u64>) {
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

    fn lock(&self) -> MutexGuard<'_, CostState> {
        lock(&self.0)
    }
}

/// A cost that comes to no layer that settles changes nothing.
#[cold]
fn log_unsettled() {
    #[cfg(feature = "tracing")]
    {
        static IS_LOGGED: AtomicBool = AtomicBool::new(false);
        if !IS_LOGGED.swap(true, Ordering::Relaxed) {
            let warning = "no layer has settled by an `ActualCost`, so its request keeps the cost that it has \
                           paid (call `.settle()` on the layer; a layer inside of it that replaces the \
                           response has to keep its extensions; if the client has disconnected, or the \
                           handler was called without its layer, as in a test, nothing is wrong)";
            tracing::warn!(warning, "possible misconfiguration (logged once)");
        }
    }
}
