//! The numbers of limits in an outage, and what units are worth in them.

use std::collections::HashMap;

use crate::algebra::{Bucket, State};
use crate::backend::adjustment::{Adjustment, Change, convert_units, cost_in};
use crate::quota::{Quota, QuotaError};

/// The numbers by which the local store decides.
#[derive(Debug)]
pub(super) struct LocalNumbers {
    nodes: u32,
    /// By the name of the limit.
    own: HashMap<Box<str>, Bucket>,
}

impl LocalNumbers {
    pub(super) fn new() -> Self {
        Self { nodes: 1, own: HashMap::new() }
    }

    pub(super) fn set_nodes(&mut self, nodes: u32) {
        self.nodes = nodes.max(1);
    }

    pub(super) fn set_quota(&mut self, limit: &str, quota: &Quota) -> Result<(), QuotaError> {
        if quota.is_none() {
            return Err(QuotaError::nothing_in_outage());
        }
        self.own.insert(limit.into(), Bucket::of_shard(quota)?);
        Ok(())
    }

    /// The numbers in place of these; `None` if a part of them cannot be counted.
    pub(super) fn local(&self, limit: &str, bucket: &Bucket) -> Option<Bucket> {
        match self.own.get(limit) {
            Some(own) => Some(*own),
            None => bucket.part_of(self.nodes),
        }
    }
}

/// What a bucket holds, rounded down.
pub(super) fn state_in(state: State, from: &Bucket, to: &Bucket) -> State {
    State { value: convert_units(state.value, from, to), ts: state.ts }
}

/// What a charge that left this state in the store has left in a local bucket: that has as much of it
/// in use, and no debt.
fn paid_state(since: State, from: &Bucket, to: &Bucket) -> State {
    let used = convert_units(from.capacity().saturating_sub(since.value), from, to);
    State { value: to.capacity().saturating_sub(used).max(0), ts: since.ts }
}

/// The adjustment by local numbers. An undone charge is a refund there: nothing was reserved. What the
/// local bucket has not paid of the charge does not come back to it.
pub(super) fn adjustment_in<'a>(one: &Adjustment<'a>, to: &'a Bucket) -> Adjustment<'a> {
    let from = one.bucket();
    let change = match one.change() {
        Change::Refund { units } | Change::Undo { units, .. } => {
            Change::Refund { units: convert_units(units, from, to) }
        }
        Change::RefundSince { units, since } => Change::RefundSince {
            units: convert_units(units, from, to),
            since: paid_state(since, from, to),
        },
        block @ Change::Block { .. } => block,
    };
    let unpaid = cost_in(one.unpaid(), from, to).min(change.returns_at_most()).max(0);
    Adjustment::new(one.id(), to, change.returning_less(unpaid))
}
