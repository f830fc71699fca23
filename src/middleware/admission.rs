//! What a handler sees of the limits that let its request in, and what it can do about them.

use std::sync::Arc;
use std::time::Duration;

use http::Request;

use super::tab::{Tab, Which};
use crate::limiter::{Error, Limit, Permit, RateLimited, Standing};

/// How the limits stood that let a request in, for its handler: in the request's extensions, where a
/// layer [exposes](super::RateLimitLayer::expose) it, and an extractor in axum.
///
/// Through it a handler takes more tokens, settles what the work has cost, or makes a fresh start. What
/// it settles is not settled by the layer again, nor by another clone of this.
///
/// Where several layers expose what they have decided, it is about all of their limits, those of the
/// outermost first. [`only`](Self::only) picks one.
///
/// # Examples
///
/// ```
/// use axum::{Router, routing::post};
/// use tollgate::routes::RateLimitExt;
/// use tollgate::middleware::Admission;
/// use tollgate::{Limit, MINUTE, Quota, RateLimited, RateLimiter};
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
    tabs: Vec<Arc<Tab>>,
    only: Option<Arc<str>>,
}

impl Admission {
    /// Puts it into the extensions of a request, beside what outer layers have decided.
    pub(super) fn put<B>(tab: &Arc<Tab>, request: &mut Request<B>) {
        let outer = request.extensions().get::<Self>();
        let outer = outer.map(|outer| outer.tabs.as_slice()).unwrap_or_default();
        let tabs = outer.iter().chain([tab]).map(Arc::clone).collect();
        request.extensions_mut().insert(Self { tabs, only: None });
    }

    /// The same for this limit only; limits are told apart by their names.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::middleware::Admission;
    /// use tollgate::{Error, HOUR, Limit, Quota};
    ///
    /// static FAILURES: Limit = Limit::new("failures", Quota::token_bucket(5, HOUR));
    ///
    /// async fn logged_in(admission: Admission) -> Result<(), Error> {
    ///     // Other limits on the route are left as they are.
    ///     admission.only(&FAILURES).reset().await
    /// }
    /// # drop(logged_in);
    /// ```
    #[must_use]
    pub fn only(&self, limit: &Limit) -> Self {
        Self { tabs: self.tabs.clone(), only: Some(limit.name().into()) }
    }

    /// The whole tokens that were left; of several limits, the least that any had. `None` if the
    /// request is held to none.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        self.standings().iter().map(Standing::remaining).min()
    }

    /// How long until all limits are full again, if nothing more is taken.
    #[must_use]
    pub fn full_after(&self) -> Duration {
        self.standings().iter().map(Standing::full_after).max().unwrap_or_default()
    }

    /// How each limit stood after it let the request in, or after the last
    /// [`charge`](Self::charge).
    ///
    /// There is none if the request is exempt from all, or if nobody could decide and the layer lets
    /// requests go on then.
    #[must_use]
    pub fn standings(&self) -> Vec<Standing<'static>> {
        self.seen(false)
    }

    /// How each limit stood that is a [shadow](super::RateLimitLayer::shadow) to the request: its
    /// [verdict](Standing::verdict) is what would have been decided.
    #[must_use]
    pub fn shadows(&self) -> Vec<Standing<'static>> {
        self.seen(true)
    }

    fn seen(&self, in_shadow: bool) -> Vec<Standing<'static>> {
        let which = Which::All(self.name());
        self.tabs.iter().flat_map(|tab| tab.standings(which, in_shadow)).collect()
    }

    /// Takes so many tokens more, from the limits of each layer in one step.
    ///
    /// Of several limits, those are concerned for which a cost was said, or all of them if none was, as
    /// in [`Permit::settle`]. A [`settle`](Self::settle) that comes later is about the sum, be it the layer's.
    /// What was settled before is not: what is charged then stays taken in addition, also where the
    /// response is there and leaves the rest to a [`Meter`](super::Meter). Shadow rules are not asked.
    ///
    /// # Errors
    ///
    /// If they are not there: nothing is taken by that layer then, and the refusal is a response
    /// with the time to come back. Or if the cost can never fit, or the backend could not decide.
    ///
    /// # Cancel safety
    ///
    /// As [`RateLimiter::limit`](crate::RateLimiter::limit).
    pub async fn charge(&self, tokens: u64) -> Result<(), RateLimited> {
        for tab in &self.tabs {
            tab.charge(Which::Priced(self.name()), tokens).await?;
        }
        Ok(())
    }

    /// Says what the work really cost: what is left of its tokens is given back, what is short is
    /// taken, into debt if need be.
    ///
    /// Of several limits, those are concerned that [`charge`](Self::charge) is about. What was settled
    /// before, by whomever, stays as it is.
    ///
    /// # Errors
    ///
    /// If the backend could not do it.
    ///
    /// # Cancel safety
    ///
    /// The store is asked when the future is first polled, and heard to the end if it is dropped after
    /// that. One that answers later needs a tokio runtime for that, the one in which the future is
    /// dropped.
    pub async fn settle(&self, actual: u64) -> Result<(), Error> {
        self.end(Which::Priced(self.name()), Some(actual)).await
    }

    /// Gives all tokens back that nobody has settled: the work has not run, or is to cost nothing.
    ///
    /// # Errors
    ///
    /// As [`settle`](Self::settle).
    ///
    /// # Cancel safety
    ///
    /// As [`settle`](Self::settle).
    pub async fn refund(&self) -> Result<(), Error> {
        self.end(Which::All(self.name()), None).await
    }

    async fn end(&self, which: Which<'_>, actual: Option<u64>) -> Result<(), Error> {
        // All are asked before any is waited for.
        let bills: Vec<_> = self.tabs.iter().filter_map(|tab| tab.close(which)).collect();
        let settling: Vec<_> = bills.iter().map(|bill| bill.settling(actual)).collect();
        let mut outcome = Ok(());
        for settling in settling {
            outcome = outcome.and(settling.await.map(drop));
        }
        outcome
    }

    /// Makes the buckets as if they had never been used, for all keys by which the request is limited.
    /// Nothing of what it took is given back after that.
    ///
    /// # Errors
    ///
    /// As [`settle`](Self::settle).
    ///
    /// # Cancel safety
    ///
    /// As [`settle`](Self::settle).
    pub async fn reset(&self) -> Result<(), Error> {
        let which = Which::All(self.name());
        let resets: Vec<_> = self.tabs.iter().filter_map(|tab| tab.reset(which)).collect();
        let mut outcome = Ok(());
        for (limit, reset) in resets {
            outcome = outcome.and(reset.await.map_err(|error| Error::backend(&limit, error)));
        }
        outcome
    }

    /// Leave to run, with all that nobody has settled: from now on it is for whoever has the permit to
    /// settle. `None` if there is nothing of that.
    ///
    /// Where several layers expose, it is that of the innermost one that has anything left.
    #[must_use]
    pub fn permit(&self) -> Option<Permit<'static>> {
        self.tabs.iter().rev().find_map(|tab| tab.permit(Which::All(self.name())))
    }

    fn name(&self) -> Option<&str> {
        self.only.as_deref()
    }
}
