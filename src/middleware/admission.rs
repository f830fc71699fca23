//! What a handler sees of the limits that let its request in, and what it can do with them.

use std::sync::Arc;

use http::Request;

use super::ledger::{RequestLedger, Selection};
use crate::clock::Timestamp;
use crate::limiter::{Limit, Permit, RateLimited, Settlement, Snapshot};

/// How the limits stood that let a request in, for its handler: in the request's extensions, where
/// a layer [exposes](crate::RateLimitLayer::expose) it, and an extractor in axum.
///
/// Through it a handler takes more tokens, settles what the work has cost, or makes a fresh start.
/// What it settles is not settled by the layer again, nor by another clone of this.
///
/// Where several layers expose what they have decided, it is about all of their limits, those of
/// the outermost first. [`only`](Self::only) picks one.
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
///     // The question is longer than was thought: 429 leaves by the question mark.
///     admission.charge(500).await?;
///     // the work runs here, and has cost less
///     admission.settle(740).await?;
///     Ok(format!("{:?} were left before that", admission.remaining()))
/// }
///
/// let layer = RateLimiter::in_memory().layer(&LLM).cost(1_000).expose();
/// let app: Router = Router::new().route("/chat", post(chat).rate_limit(layer));
/// # drop(app);
/// ```
#[derive(Clone, Debug)]
pub struct Admission {
    /// Those of the outermost layer first; at least one.
    ledgers: Vec<Arc<RequestLedger>>,
    only: Option<Arc<str>>,
}

impl Admission {
    /// Puts it into the extensions of a request, beside what outer layers have decided, if the
    /// layer of this ledger exposes.
    pub(super) fn expose<B>(ledger: &Arc<RequestLedger>, request: &mut Request<B>) {
        if !ledger.is_exposed() {
            return;
        }
        let outer = request.extensions().get::<Self>();
        let outer = outer.map(|outer| outer.ledgers.as_slice()).unwrap_or_default();
        let ledgers = outer.iter().chain([ledger]).map(Arc::clone).collect();
        request.extensions_mut().insert(Self { ledgers, only: None });
    }

    /// The same for this limit only; limits are told apart by their names.
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
    ///     // Other limits on the route are left as they are.
    ///     admission.only(&FAILURES).reset().await
    /// }
    /// # drop(logged_in);
    /// ```
    #[must_use]
    pub fn only(&self, limit: &Limit) -> Self {
        Self { ledgers: self.ledgers.clone(), only: Some(limit.name().into()) }
    }

    /// The whole tokens that were left; of several limits, the least that any had. `None` if the
    /// request is held to none.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        self.snapshots().iter().map(Snapshot::remaining).min()
    }

    /// The time at which all limits are full again, if nothing more is taken. `None` if the request
    /// is held to none.
    #[must_use]
    pub fn full_at(&self) -> Option<Timestamp> {
        self.snapshots().iter().map(Snapshot::full_at).max()
    }

    /// How each limit stood after it let the request in, or after the last
    /// [`charge`](Self::charge).
    ///
    /// There is none if the request is exempt from all, or if the store did not answer and the
    /// layer [admits](super::OnFailure::Admit) requests then.
    #[must_use]
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.select_snapshots(false)
    }

    /// How each limit stood that is a [shadow](super::Rule::shadow) to the request: it would have
    /// admitted the request if its cost [fits](Snapshot::fits).
    #[must_use]
    pub fn shadows(&self) -> Vec<Snapshot> {
        self.select_snapshots(true)
    }

    fn select_snapshots(&self, in_shadow: bool) -> Vec<Snapshot> {
        let selection = Selection::All(self.name());
        self.ledgers.iter().flat_map(|ledger| ledger.snapshots(selection, in_shadow)).collect()
    }

    /// Takes so many tokens more, from the limits of each layer in one step.
    ///
    /// With several rules, only those with an explicit `cost` are charged; if none has one, all
    /// are, as in [`Permit::settle`]. A [`settle`](Self::settle) that comes later is about the sum,
    /// also the layer's. What was settled before is not: what is charged then stays taken in
    /// addition, also where the response is there and leaves the rest to a [`Meter`](super::Meter).
    /// Shadow rules are not charged.
    ///
    /// # Errors
    ///
    /// If they are not there: nothing is taken by that layer then, and the refusal is a response
    /// with the time to come back. Or if the cost can never fit, or the store did not answer.
    ///
    /// # Cancel safety
    ///
    /// As [`RateLimiter::limit`](crate::RateLimiter::limit).
    pub async fn charge(&self, tokens: u64) -> Result<(), RateLimited> {
        for ledger in &self.ledgers {
            ledger.charge_more(Selection::ByCost(self.name()), tokens).await?;
        }
        Ok(())
    }

    /// Says what the work really cost: what is left of its tokens is given back, what is short is
    /// taken, into debt if need be.
    ///
    /// It concerns the limits that [`charge`](Self::charge) does. What was settled before stays as
    /// it is.
    ///
    /// # Errors
    ///
    /// If the store could not do it.
    ///
    /// # Cancel safety
    ///
    /// The store is asked when the future is first polled, and completes the settlement if it is
    /// dropped after that. One that answers later needs a tokio runtime for that, the one in which
    /// the future is dropped.
    pub async fn settle(&self, actual: u64) -> Result<(), RateLimited> {
        self.settle_selected(Selection::ByCost(self.name()), actual).await
    }

    /// Gives all tokens back that were not settled yet: the work has not run, or is to cost
    /// nothing.
    ///
    /// # Errors
    ///
    /// As [`settle`](Self::settle).
    ///
    /// # Cancel safety
    ///
    /// As [`settle`](Self::settle).
    pub async fn refund(&self) -> Result<(), RateLimited> {
        self.settle_selected(Selection::All(self.name()), 0).await
    }

    async fn settle_selected(
        &self,
        selection: Selection<'_>,
        actual: u64,
    ) -> Result<(), RateLimited> {
        // All are asked before any is waited for.
        let permits = self.ledgers.iter().filter_map(|ledger| ledger.close(selection));
        let settle = |permit: Permit<'static>| permit.settle_by(Settlement::All(actual));
        let settling: Vec<_> = permits.map(settle).collect();
        let mut outcome = Ok(());
        for settle in settling {
            outcome = outcome.and(settle.await.map(drop));
        }
        outcome
    }

    /// Makes the buckets as if they had never been used, for all keys by which the request is
    /// limited, shadows included. Nothing of what it took is given back after that.
    ///
    /// # Errors
    ///
    /// As [`settle`](Self::settle).
    ///
    /// # Cancel safety
    ///
    /// As [`settle`](Self::settle).
    pub async fn reset(&self) -> Result<(), RateLimited> {
        let selection = Selection::All(self.name());
        let resets: Vec<_> =
            self.ledgers.iter().filter_map(|ledger| ledger.reset(selection)).collect();
        let mut outcome = Ok(());
        for (limit, reset) in resets {
            outcome =
                outcome.and(reset.await.map_err(|error| RateLimited::unavailable(&limit, error)));
        }
        outcome
    }

    /// Leave to run, with all that was not settled yet: from now on the holder of the permit
    /// settles it. `None` if there is nothing of that.
    ///
    /// Where several layers expose, it is that of the innermost one that has anything left.
    #[must_use]
    pub fn permit(&self) -> Option<Permit<'static>> {
        self.ledgers.iter().rev().find_map(|ledger| ledger.permit(Selection::All(self.name())))
    }

    fn name(&self) -> Option<&str> {
        self.only.as_deref()
    }
}
