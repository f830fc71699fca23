//! An operation that waits to be sent.

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::operation::NamedOperation;
use tollgate::backend::{Applied, BackendError};

/// An answer, and its operation: what the caller has allocated is freed by its thread. Another one, which
/// frees the operations of all, gets into the way of those that allocate.
pub(super) type JobAnswer = (Result<Applied, BackendError>, NamedOperation);

/// The channel on which a caller waits for its answer.
pub(super) type Reply = oneshot::Sender<JobAnswer>;

/// An operation that waits to be sent.
#[derive(Debug)]
pub struct Job {
    pub operation: NamedOperation,
    pub deadline: Instant,
    pub(super) reply: Reply,
    /// The lane in which it waits.
    pub(super) lane: LaneId,
    /// The buckets that count this job while it waits, if it names several.
    pub(super) buckets: Box<[LaneId]>,
    /// Its number in the order of arrival.
    pub(super) arrival: u64,
}

impl Job {
    pub(super) fn new(operation: NamedOperation, deadline: Instant, reply: Reply) -> Self {
        let (lane, buckets, arrival) = Default::default();
        Self { operation, deadline, reply, lane, buckets, arrival }
    }

    /// Whether it is not to be sent any more: its deadline has passed, or it would take tokens for a
    /// caller that has left. A refund is due whether or not its caller waits for it.
    pub(super) fn is_expired(&self, now: Instant) -> bool {
        self.deadline <= now || self.operation.is_charge() && self.reply.is_closed()
    }
}

/// Answers on their way to the callers.
#[derive(Default)]
pub(super) struct Answers(Vec<(Reply, JobAnswer)>);

impl Answers {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    pub(super) fn push(&mut self, job: Job, answer: Result<Applied, BackendError>) {
        self.0.push((job.reply, (answer, job.operation)));
    }

    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    /// The operation that was answered as the nth.
    pub(super) fn operation(&self, nth: usize) -> Option<&NamedOperation> {
        self.0.get(nth).map(|(_, (_, operation))| operation)
    }

    pub(super) fn append(&mut self, mut later: Self) {
        self.0.append(&mut later.0);
    }

    /// Sends them. A caller that was dropped gets none.
    pub(super) fn send(self) {
        self.0.into_iter().for_each(|(reply, answer)| drop(reply.send(answer)));
    }
}

/// Answers these jobs with an error. A caller that was dropped gets none.
///
/// That no answer came in time is no answer: the caller of a job whose time is over knows that, and finds
/// out whether the store is late, or this process.
pub(super) fn fail(jobs: Vec<Job>, error: &BackendError) {
    let (now, is_late) = (Instant::now(), error.is_timeout() && error.is_outage());
    let is_told = |job: &Job| !is_late || job.deadline > now;
    for job in jobs.into_iter().filter(is_told) {
        drop(job.reply.send((Err(error.clone()), job.operation)));
    }
}

/// The hash of a bucket's name, or of several names for a lane within another. If two hashes are
/// equal, their jobs share a lane and its turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct LaneId(u64);

impl LaneId {
    pub(super) const fn new(hash: u64) -> Self {
        Self(hash)
    }
}
