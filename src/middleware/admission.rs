//! The view of a handler on the limits that admitted its request.

use std::sync::Arc;

use http::Request;

use super::ledger::{ExtraCharge, RequestLedger};
use crate::clock::Timestamp;
use crate::limiter::{Kept, Limit, Permit, RateLimited, Settlement, Snapshot};

/// How the limits stand that admitted a request, and what its handler can do with its tokens.
///
/// A layer that [exposes](crate::RateLimitLayer::expose) puts it into the extensions of the
/// request. In axum, it is an extractor.
///
/// With it, a handler takes more tokens, settles the cost of the work, or resets the buckets.
/// Tokens are settled once: what a handler settles, neither the layer nor a clone of this settles
/// again.
///
/// If several nested layers expose, it covers the limits of all of them, the outermost first.
/// [`only`](Self::only) selects one limit.
///
/// # Examples
///
/// ```
/// use axum::{Router, routing::post};
/// use tollgate::middleware::Admission;
/// use tollgate::{Limit, MINUTE, Quota, RateLimitExt, RateLimited, RateLimiter};
///
/// static LLM: Limit = Limit::new("llm-tokens", Quota::token_bucket(40_000, MINUTE));
///
/// async fn chat(admission: Admission) -> Result<String, RateLimited> {
///     // The prompt is longer than estimated. If the tokens are not left, `?` returns 429.
///     admission.charge(500).await?;
///     // .. the work runs here, and costs less ..
///     admission.settle(740).await?;
///     Ok(format!("{:?} were left before that", admission.remaining()))
/// }
///
/// let layer = RateLimiter::in_memory().layer(&LLM).cost(1_000).expose();
/// let app: Router = Router::new().route("/chat", post(chat).rate_limit(layer));
/// # drop(app);
/// ```
#[doc(alias("req.rateLimit", "requestPropertyName"))]
#[derive(Clone, Debug)]
pub struct Admission {
    /// The ledgers of the layers, the outermost first; at least one.
    ledgers: Vec<Arc<RequestLedger>>,
    only: Option<Arc<str>>,
}

impl Admission {
    /// Adds it to the extensions of a request, together with the ledgers of outer layers, if the layer
    /// of this ledger exposes; and a meter, if the layer settles.
    pub(super) fn expose<B>(ledger: &Arc<RequestLedger>, request: &mut Request<B>) {
        ledger.note_method(request.method());
        let extensions = request.extensions_mut();
        if ledger.plan.settings.exposes {
            let outer = extensions.get::<Self>().map_or(&[][..], |outer| &outer.ledgers);
            let ledgers = outer.iter().chain([ledger]).map(Arc::clone).collect();
            extensions.insert(Self { ledgers, only: None });
        }
        ledger.open_meter(extensions);
    }

    /// Returns the same for one limit only, which is identified by its name.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::middleware::Admission;
    /// use tollgate::{HOUR, Limit, Quota, RateLimited};
    ///
    /// static FAILURES: Limit = Limit::new("failures", Quota::token_bucket(5, HOUR));
    ///
    /// async fn logged_in(admission: Admission) -> Result<(), RateLimited> {
    ///     // Does not reset the other limits on the route.
    ///     admission.only(&FAILURES).reset().await
    /// }
    /// # drop(logged_in);
    /// ```
    #[must_use]
    pub fn only(&self, limit: &Limit) -> Self {
        Self { ledgers: self.ledgers.clone(), only: Some(limit.name().into()) }
    }

    /// The tokens that were left, in whole tokens; of several limits, the fewest. `None` if the
    /// request is not limited.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        self.snapshots().iter().map(Snapshot::remaining).min()
    }

    /// The time at which all limits are full again, if nothing more is taken. `None` if the request
    /// is not limited.
    #[must_use]
    pub fn full_at(&self) -> Option<Timestamp> {
        self.snapshots().iter().map(Snapshot::full_at).max()
    }

    /// How each limit stood after it admitted the request, or after the last
    /// [`charge`](Self::charge).
    ///
    /// Empty if the request is exempt from all limits, or if it was
    /// [admitted](super::OnFailure::Admit) during an outage of the store.
    #[must_use]
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.select_snapshots(false)
    }

    /// How each limit stood that is a [shadow](super::Rule::shadow) for the request. The limit
    /// would have admitted the request if its cost [fits](Snapshot::fits).
    ///
    /// A request that has waited in the queue is charged to them while it runs. With a store that
    /// answers later, they are here once it has answered.
    #[must_use]
    pub fn shadows(&self) -> Vec<Snapshot> {
        self.select_snapshots(true)
    }

    fn select_snapshots(&self, in_shadow: bool) -> Vec<Snapshot> {
        let ledgers = self.ledgers.iter();
        ledgers.flat_map(|ledger| ledger.snapshots(self.name(), in_shadow)).collect()
    }

    /// Takes this many more tokens, from all limits of a layer in one step. What outer layers have
    /// taken when an inner one refuses is given back.
    ///
    /// With several rules, only those with an explicit `cost` are charged; if none has one, all
    /// are, as in [`Permit::settle`]. Shadow rules are not charged. A later settlement, by
    /// [`settle`](Self::settle) or by the layer, covers the sum. After a settlement, further
    /// charges stay taken in addition, also if the response leaves the rest of the cost to a
    /// [`Meter`](super::Meter).
    ///
    /// # Errors
    ///
    /// If the tokens are not left or the cost can never fit: then no layer takes anything. If a store
    /// fails: then what it has taken may stay taken. In an outage that
    /// [`OnFailure::Admit`](super::OnFailure::Admit) covers, it is `Ok`, and nothing is charged. As a
    /// response, a refusal is 429 with `Retry-After`.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it completes, nothing is charged. With a store that answers
    /// later, a task gives the tokens back, on the tokio runtime in which the future is dropped. Outside
    /// of a runtime, they may stay taken.
    pub async fn charge(&self, tokens: u64) -> Result<(), RateLimited> {
        let mut charged = Vec::new();
        for ledger in &self.ledgers {
            charged.extend(ledger.charge_more(self.name(), tokens).await?);
        }
        charged.into_iter().for_each(ExtraCharge::keep);
        Ok(())
    }

    /// Settles the tokens at the actual cost of the work.
    ///
    /// Tokens that the request took in excess are returned. Tokens that it is short of are taken,
    /// into debt if need be.
    ///
    /// It settles the limits that [`charge`](Self::charge) charges. Tokens that were settled before
    /// stay as they are.
    ///
    /// # Errors
    ///
    /// If the store fails.
    ///
    /// # Cancel safety
    ///
    /// The settlement is sent when the future is first polled, and completes even if the future is
    /// dropped after that. If the store has not answered by then, this needs a tokio runtime in the
    /// place where the future is dropped.
    pub async fn settle(&self, actual: u64) -> Result<(), RateLimited> {
        let kept = Kept::Tokens(actual);
        self.settle_each(actual, |ledger| ledger.close_by_cost(self.name(), kept)).await
    }

    /// Returns all tokens that were not settled yet, because the work has not run or costs nothing.
    ///
    /// # Errors
    ///
    /// Like [`settle`](Self::settle).
    ///
    /// # Cancel safety
    ///
    /// Like [`settle`](Self::settle).
    pub async fn refund(&self) -> Result<(), RateLimited> {
        self.settle_each(0, |ledger| ledger.close(self.name(), Kept::Tokens(0))).await
    }

    async fn settle_each(
        &self,
        actual: u64,
        close: impl Fn(&Arc<RequestLedger>) -> Option<Permit<'static>>,
    ) -> Result<(), RateLimited> {
        // All settlements are sent before the first one is awaited.
        let permits = self.ledgers.iter().filter_map(close);
        let settle = |permit: Permit<'static>| permit.settle_by(Settlement::All(actual));
        let settling: Vec<_> = permits.map(settle).collect();
        let mut outcome = Ok(());
        for settle in settling {
            outcome = outcome.and(settle.await.map(drop));
        }
        outcome
    }

    /// Resets the buckets of the request, including those of shadows, as if they had never been
    /// used.
    ///
    /// The tokens of the request count as settled after that.
    ///
    /// # Errors
    ///
    /// Like [`settle`](Self::settle).
    ///
    /// # Cancel safety
    ///
    /// Like [`settle`](Self::settle).
    pub async fn reset(&self) -> Result<(), RateLimited> {
        let ledgers = self.ledgers.iter();
        let resets: Vec<_> = ledgers.filter_map(|ledger| ledger.reset(self.name())).collect();
        let mut outcome = Ok(());
        for (limit, reset) in resets {
            outcome =
                outcome.and(reset.await.map_err(|error| RateLimited::unavailable(&limit, error)));
        }
        outcome
    }

    /// Takes out a permit with all tokens that were not settled yet; its holder settles them from
    /// now on.
    ///
    /// Returns `None` if everything is settled.
    ///
    /// If several layers expose, the permit is that of the innermost layer with tokens to settle.
    #[must_use]
    pub fn permit(&self) -> Option<Permit<'static>> {
        self.ledgers.iter().rev().find_map(|ledger| ledger.permit(self.name()))
    }

    fn name(&self) -> Option<&str> {
        self.only.as_deref()
    }
}
