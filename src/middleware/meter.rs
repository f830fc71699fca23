//! Counting what a request costs, while it runs and while its response is sent.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use http::Extensions;

use crate::limiter::{Permit, Settlement};

/// Counts what a request costs while it runs, while its response is sent, or in a task.
///
/// Every request below a layer that [settles](crate::RateLimitLayer::settle) has one. In axum it is
/// an extractor; other services take it by [`from_extensions`](Self::from_extensions). Its clones
/// count together.
///
/// The request is settled at the sum when its work is over: when there is a response, or the
/// request was dropped before that because its client has gone, and all clones of the meter are
/// dropped as well. So a meter that is kept in the body of the response counts until the stream
/// ends or the client goes away in the middle of it. Nested layers share one meter, and all of them
/// are settled by it.
///
/// A handler that takes the meter answers for the cost: a request that has counted nothing costs
/// nothing. Count what is certain before it is done, such as the tokens of a prompt before it is
/// sent, or a client that disconnects early has it for free. In axum, a request whose body is not
/// complete or is rejected by a later extractor has counted nothing yet; a second limit, on
/// requests, bounds those. A request whose meter is not taken keeps its estimate. An
/// [`ActualCost`](super::ActualCost) in the response goes before the meter.
///
/// # Dropping
///
/// The last drop asks the store. It does not wait: a store that answers later completes the
/// settlement in a task of its own, on the tokio runtime in which the meter is dropped. Dropped
/// outside of a runtime, it settles nothing with such a store, and the estimate stays taken.
///
/// # Examples
///
/// A handler that counts as it goes:
///
/// ```
/// use axum::{Router, routing::post};
/// use tollgate::middleware::Meter;
/// use tollgate::{Limit, MINUTE, Quota, RateLimitExt, RateLimiter};
///
/// const LLM: Limit = Limit::new("llm-tokens", Quota::token_bucket(40_000, MINUTE));
///
/// async fn chat(meter: Meter, prompt: String) -> String {
///     meter.add(prompt.len() as u64 / 4);
///     let mut answer = String::new();
///     for word in ["forty", "-", "two"] {
///         meter.add(1); // if the client goes away here, what was counted so far is paid
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
#[derive(Clone, Debug)]
#[must_use = "a meter that is dropped at once counts nothing"]
pub struct Meter(Arc<SharedMeter>);

/// What the clones of a meter share with the layers around its request. The last of them to be
/// dropped settles, so that it happens once, whatever threads they are dropped in.
#[derive(Debug)]
struct SharedMeter(PendingCost);

/// In the extensions of a request: it keeps nothing open, however long the request is kept.
#[derive(Clone, Debug)]
struct MeterSlot(Weak<SharedMeter>);

impl Meter {
    /// One that is in no request.
    pub(super) fn new(cost: PendingCost) -> Self {
        Self(Arc::new(SharedMeter(cost)))
    }

    /// That of the request with these extensions, which a layer around it has made already or this
    /// one makes.
    pub(super) fn for_request(extensions: &mut Extensions) -> Self {
        let outer = extensions.get::<MeterSlot>().and_then(|slot| slot.0.upgrade());
        outer.map(Self).unwrap_or_else(|| {
            let meter = Self::new(PendingCost::default());
            extensions.insert(MeterSlot(Arc::downgrade(&meter.0)));
            meter
        })
    }

    /// Takes the meter of the request with these extensions: from now on the request costs what is
    /// counted.
    ///
    /// `None` if no layer around the service settles, or if the request is over.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::convert::Infallible;
    ///
    /// use http::{Request, Response};
    /// use tollgate::middleware::Meter;
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// const LLM: Limit = Limit::new("llm-tokens", Quota::token_bucket(40_000, MINUTE));
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
        let meter = extensions.get::<MeterSlot>()?.0.upgrade().map(Self)?;
        meter.add(0);
        Some(meter)
    }

    /// Counts so many tokens more. What is counted after the request was settled changes nothing.
    pub fn add(&self, tokens: u64) {
        let mut metered = self.0.0.lock();
        metered.counted = Some(metered.counted.unwrap_or(0).saturating_add(tokens));
    }

    /// The request cost this many tokens, whatever was counted: what is left of those that it took
    /// is given back, what is short is taken, into debt if need be.
    ///
    /// It is final, also for the clones of this meter; of two that say it, the first counts. A
    /// request that is still running is settled once there is a response, or it is dropped.
    ///
    /// It does not wait: a store that answers later completes it in a task of its own, on the tokio
    /// runtime in which this is called.
    pub fn settle(self, actual: u64) {
        self.0.0.finish(|_| Some(actual));
    }

    /// What the request will have cost, if that is counted.
    pub(super) fn cost(&self) -> Option<&PendingCost> {
        let is_used = self.0.0.lock().counted.is_some();
        is_used.then_some(&self.0.0)
    }
}

impl Drop for SharedMeter {
    fn drop(&mut self) {
        self.0.finish(|counted| counted);
    }
}

/// A cost that is known later: it and the permits of all layers meet here, and whichever comes
/// first waits for the other.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingCost(Arc<Mutex<MeterState>>);

#[derive(Debug, Default)]
struct MeterState {
    permits: Vec<Permit<'static>>,
    /// None until anything is counted.
    counted: Option<u64>,
    /// What it cost in the end.
    tokens: Option<u64>,
}

impl PendingCost {
    /// Settles what was taken, now or once the cost is known.
    pub(super) fn settle(&self, permit: Permit<'static>) {
        self.complete(|metered| metered.permits.push(permit));
    }

    /// Says what it cost in the end, by what was counted, unless that was said before.
    fn finish(&self, tokens: impl FnOnce(Option<u64>) -> Option<u64>) {
        self.complete(|metered| {
            metered.tokens = metered.tokens.or_else(|| tokens(metered.counted));
        });
    }

    /// Settles what there is once the tokens are known.
    fn complete(&self, add: impl FnOnce(&mut MeterState)) {
        let (permits, tokens) = {
            let mut metered = self.lock();
            add(&mut metered);
            let Some(tokens) = metered.tokens else { return };
            (std::mem::take(&mut metered.permits), tokens)
        };
        for permit in permits {
            // The store completes it by itself.
            drop(permit.settle_by(Settlement::All(tokens)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, MeterState> {
        // A panic elsewhere in the holder's thread leaves nothing half done here.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
