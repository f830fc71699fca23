//! Looks at the buckets that a layer would charge for a request, and takes nothing.

use std::time::Duration;

use bytes::Bytes;
use http::Response;

use super::plan::Plan;
use super::planned_rule::{Failure, PlannedRule};
use super::reject::{Rejection, render};
use crate::algebra::Terms;
use crate::fields::SOON;
use crate::key::Head;
use crate::limiter::{Limit, Mode, Snapshot};
use crate::quota::MAX_UNITS;

/// How a limit stands for a client, and what the layer does with its requests.
pub(crate) struct Outlook {
    pub(crate) snapshot: Snapshot,
    /// The cost of each request; `None` if it depends on the request.
    pub(crate) cost: Option<u64>,
    /// The terms of a request: they allow a wait if the layer has a queue.
    pub(crate) terms: Terms,
    /// Whether requests wait in line that were told a later instant.
    pub(crate) stays: bool,
}

impl Plan {
    /// Looks at the limits of the client that has sent this request, one after another: a store may
    /// be unable to answer about several in one step, and a state stays right while time passes.
    ///
    /// # Errors
    ///
    /// The response of the layer to a request without a key, or while the store fails.
    pub(crate) async fn look(&self, head: &Head<'_>) -> Result<Vec<Outlook>, Response<Bytes>> {
        if self.limiter.state.is_off {
            return Ok(Vec::new());
        }
        let (mut snapshots, mut in_flight) = (Vec::new(), false);
        // The conditions of a rule are left out: they concern the requests that pay, and this one does
        // not. Nor is its cost computed, which may depend on what this request does not have.
        for planned in self.advertised() {
            let key = match planned.key(head, planned.extract(head)) {
                Ok(Some(key)) => key,
                Ok(None) => continue,
                Err(failure) => return Err(respond(self, failure, head)),
            };
            let limit = planned.choose(&self.limiter, head);
            let Some(limit) = limit.filter(|limit| planned.rule.enforces(limit.name(), &key))
            else {
                continue;
            };
            if limit.quota().is_in_flight() {
                // Nobody can predict when a request in flight ends.
                in_flight = true;
                continue;
            }
            let peek = self.limiter.peek(&limit).key(key).cost(0);
            match peek.await {
                Ok(snapshot) => snapshots.push((planned, snapshot)),
                Err(error) => {
                    let after = error.retry_after().unwrap_or(SOON);
                    return Err(respond(self, Failure::unavailable(after), head));
                }
            }
        }
        let mode = self.mode(in_flight);
        let outlooks = snapshots.into_iter();
        Ok(outlooks.map(|(planned, snapshot)| Outlook::new(mode, planned, snapshot)).collect())
    }
}

fn respond(plan: &Plan, failure: Failure, head: &Head<'_>) -> Response<Bytes> {
    let response = render(plan, &Rejection::Failed(failure), head);
    response.map(|text| text.bytes().cloned().unwrap_or_default())
}

impl Outlook {
    fn new(mode: Mode, planned: &PlannedRule, snapshot: Snapshot) -> Self {
        let (terms, cost) = (mode.terms(snapshot.limit()), planned.rule.fixed_cost());
        Self { snapshot, cost, terms, stays: matches!(mode, Mode::Stay(_)) }
    }

    /// The largest cost that the limit can ever grant on the terms of its layer; `None` if it grants
    /// nothing, not even a cost of zero.
    pub(crate) fn max_cost(&self) -> Option<u64> {
        let limit = self.snapshot.limit();
        (!limit.quota().is_none()).then(|| max_cost(limit, self.terms))
    }

    /// The longest wait in the queue of the layer: zero without a queue, `None` without a bound.
    pub(crate) fn max_wait(&self) -> Option<Duration> {
        let micros = self.terms.max_wait();
        (micros != u64::MAX).then(|| Duration::from_micros(micros))
    }
}

/// By bisection: what is too large for a limit stays so for every larger cost.
fn max_cost(limit: &Limit, terms: Terms) -> u64 {
    // A cost of nothing always fits, and more than can be counted never does.
    let (mut fits, mut too_large) = (0, MAX_UNITS.saturating_add(1));
    while too_large.saturating_sub(fits) > 1 {
        let middle = fits.midpoint(too_large);
        match limit.is_too_large(middle, terms) {
            true => too_large = middle,
            false => fits = middle,
        }
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::{HOUR, Quota, SECOND};

    #[test]
    fn the_largest_cost_is_the_last_that_is_not_too_large() {
        let ten = Quota::token_bucket(10, SECOND);
        let waiting = |quota: &Quota, wait| {
            let limit = Limit::try_new("api", *quota).unwrap();
            let terms = Mode::Reserve(wait).terms(&limit);
            (max_cost(&limit, Terms::AT_ONCE), max_cost(&limit, terms))
        };
        assert_eq!(waiting(&ten.max_reserved(5), HOUR), (10, 15));
        // The wait bounds it as well: 20 tokens more take two seconds.
        assert_eq!(waiting(&ten, 2 * SECOND), (10, 30));
        assert_eq!(waiting(&ten.capacity(0), 2 * SECOND), (0, 20));
        // Two of ten shards hold a fifth.
        assert_eq!(waiting(&ten.capacity(100).max_reserved(50).shards(10), HOUR), (20, 30));
        // 2^53 units of debt and capacity together, at 100,000 units a token.
        assert_eq!(waiting(&ten, Duration::MAX), (10, 90_071_992_547));
    }
}
