//! A cost that is told after the response.

use std::sync::{Arc, Mutex, PoisonError};

use crate::limiter::{Permit, Settlement};

/// Tells what a request really cost, after its response; made by
/// [`ActualCost::metered`](super::ActualCost::metered).
///
/// Dropping it leaves the tokens taken.
#[derive(Debug)]
#[must_use = "nothing is settled if it is dropped"]
pub struct Meter(LateCost);

impl Meter {
    pub(super) const fn new(cost: LateCost) -> Self {
        Self(cost)
    }

    /// The request cost this many tokens: what is left of those that it took is given back, what is
    /// short is taken, into debt if need be.
    ///
    /// It does not wait: a store that answers later completes it in a task of its own, on the tokio
    /// runtime in which this is called.
    pub fn settle(self, actual: u64) {
        self.0.complete(|metered| metered.tokens = Some(actual));
    }
}

/// A cost that is known later: it and the permits of all layers meet here, and whichever comes
/// first waits for the other.
#[derive(Clone, Debug, Default)]
pub(super) struct LateCost(Arc<Mutex<Metered>>);

#[derive(Debug, Default)]
struct Metered {
    permits: Vec<Permit<'static>>,
    tokens: Option<u64>,
}

impl LateCost {
    /// Settles what was taken, now or once the cost is known.
    pub(super) fn settle(&self, permit: Permit<'static>) {
        self.complete(|metered| metered.permits.push(permit));
    }

    /// Settles what there is once the tokens are known.
    fn complete(&self, add: impl FnOnce(&mut Metered)) {
        let (permits, tokens) = {
            let mut metered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            add(&mut metered);
            let Some(tokens) = metered.tokens else { return };
            (std::mem::take(&mut metered.permits), tokens)
        };
        for permit in permits {
            drop(permit.settle_by(Settlement::All(tokens)));
        }
    }
}
