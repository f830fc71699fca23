//! An operation that waits to be sent.

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::backend::redis::operation::Operation;
use crate::backend::{Applied, BackendError};

/// Where the caller waits for its answer.
pub(super) type Reply = oneshot::Sender<Result<Applied, BackendError>>;

/// An operation that waits to be sent.
#[derive(Debug)]
pub(super) struct Job {
    /// Boxed, because it is large and moved several times.
    pub(super) operation: Box<Operation>,
    pub(super) deadline: Instant,
    pub(super) reply: Reply,
    /// The lane that it waits in.
    pub(super) lane: LaneId,
    /// The buckets that count it while it waits, if they are several.
    pub(super) buckets: Box<[LaneId]>,
    /// Its number in the order of arrival.
    pub(super) arrival: u64,
}

impl Job {
    pub(super) fn new(operation: Operation, deadline: Instant, reply: Reply) -> Self {
        let (lane, buckets, arrival) = Default::default();
        Self { operation: Box::new(operation), deadline, reply, lane, buckets, arrival }
    }

    /// Whether its caller is gone or out of time.
    pub(super) fn is_expired(&self, now: Instant) -> bool {
        self.deadline <= now || self.reply.is_closed()
    }
}

/// What callers are to be told.
#[derive(Default)]
pub(super) struct Answers(Vec<(Reply, Result<Applied, BackendError>)>);

impl Answers {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    pub(super) fn push(&mut self, reply: Reply, answer: Result<Applied, BackendError>) {
        self.0.push((reply, answer));
    }

    /// Tells them. A caller that is gone needs no answer.
    pub(super) fn send(self) {
        self.0.into_iter().for_each(|(reply, answer)| drop(reply.send(answer)));
    }
}

/// Answers these jobs with an error. A caller that is gone needs no answer.
pub(super) fn fail(jobs: Vec<Job>, error: &BackendError) {
    jobs.into_iter().for_each(|job| drop(job.reply.send(Err(error.clone()))));
}

/// The hash of a bucket's name, or of the names of buckets whose lanes are in each other. Two may
/// share a lane: then they share its turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct LaneId(u64);

impl LaneId {
    pub(super) const fn new(hash: u64) -> Self {
        Self(hash)
    }
}
