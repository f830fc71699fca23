//! An operation that waits to be sent.

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::backend::redis::operation::Operation;
use crate::backend::{Applied, BackendError};

/// An operation that waits to be sent.
#[derive(Debug)]
pub(super) struct Job {
    /// Boxed, because it is large and moved several times.
    pub(super) operation: Box<Operation>,
    pub(super) deadline: Instant,
    pub(super) reply: oneshot::Sender<Result<Applied, BackendError>>,
    /// The lane that it waits in.
    pub(super) lane: LaneId,
    /// The buckets that count it while it waits, if they are several.
    pub(super) buckets: Box<[LaneId]>,
    /// Its number in the order of arrival.
    pub(super) arrival: u64,
}

impl Job {
    pub(super) fn new(
        operation: Operation,
        deadline: Instant,
        reply: oneshot::Sender<Result<Applied, BackendError>>,
    ) -> Self {
        let (lane, buckets, arrival) = Default::default();
        Self { operation: Box::new(operation), deadline, reply, lane, buckets, arrival }
    }

    /// Whether its caller is gone or out of time.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.deadline <= now || self.reply.is_closed()
    }
}

/// The hash of a bucket's name, or of the names of buckets whose lanes are in each other. Two may share
/// a lane: then they share its turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct LaneId(u64);

impl LaneId {
    pub(super) const fn new(hash: u64) -> Self {
        Self(hash)
    }
}
