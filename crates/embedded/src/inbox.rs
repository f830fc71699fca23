//! What the callers and the committer tell the decider.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use tollgate::backend::{Applied, BackendError};
use tollgate_kit::operation::Operation;

/// The answer to a job, and the job itself: what the caller has allocated is freed by its thread. The
/// decider, which would free all of it, would get into the way of the threads that allocate: that costs
/// up to half of the decisions.
pub(super) type JobAnswer = (Result<Applied, BackendError>, Option<Box<Operation>>);

/// A call of the store.
#[derive(Debug)]
pub(super) struct DecisionJob {
    /// What to decide. Without it, the job is answered once all earlier decisions are in the file.
    pub(super) operation: Option<Box<Operation>>,
    pub(super) reply: oneshot::Sender<JobAnswer>,
}

impl DecisionJob {
    /// A caller that has left needs no answer.
    pub(super) fn answer(self, answer: Result<Applied, BackendError>) {
        let _ = self.reply.send((answer, self.operation));
    }
}

/// The largest number of jobs that wait for the decider. It decides as many in a tenth of a second.
const MAX_JOBS: usize = 65_536;

/// Why a job was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PushError {
    /// Too many jobs wait already.
    Overload,
    /// The decider has ended.
    End,
}

#[derive(Debug, Default)]
pub(super) struct Inbox {
    letters: Mutex<Letters>,
    arrival: Condvar,
}

/// What has come since the decider last looked.
#[derive(Debug, Default)]
struct Letters {
    jobs: Vec<DecisionJob>,
    report: Option<Result<(), BackendError>>,
    /// Since when the first of the jobs waits.
    jobs_since: Option<Instant>,
    /// Since when a commit is under way.
    commit_since: Option<Instant>,
    /// The store was dropped: no job comes after those that are here.
    is_closed: bool,
    /// The decider has ended.
    is_dead: bool,
}

/// What the decider waits for, besides a report.
#[derive(Clone, Copy, Debug)]
pub(super) struct AwaitedEvents {
    pub(super) jobs: bool,
    pub(super) close: bool,
    pub(super) until: Option<Instant>,
}

/// What the decider was told.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) jobs: Vec<DecisionJob>,
    pub(super) report: Option<Result<(), BackendError>>,
    pub(super) is_closed: bool,
}

impl Inbox {
    pub(super) fn push(&self, job: DecisionJob) -> Result<(), PushError> {
        let mut letters = self.lock();
        if letters.is_dead {
            return Err(PushError::End);
        }
        if letters.jobs.len() >= MAX_JOBS {
            return Err(PushError::Overload);
        }
        let is_first = letters.jobs.is_empty();
        letters.jobs.push(job);
        letters.jobs_since.get_or_insert_with(Instant::now);
        drop(letters);
        // The decider takes all jobs at once, so it was told of those before.
        if is_first {
            self.arrival.notify_one();
        }
        Ok(())
    }

    /// A commit begins.
    pub(super) fn note_commit(&self) {
        self.lock().commit_since = Some(Instant::now());
    }

    /// Whether the decider or a commit makes no progress for so long.
    pub(super) fn is_stuck(&self, time: Duration) -> bool {
        let letters = self.lock();
        let is_old = |since: Instant| since.elapsed() >= time;
        letters.jobs_since.is_some_and(is_old) || letters.commit_since.is_some_and(is_old)
    }

    pub(super) fn report(&self, report: Result<(), BackendError>) {
        let mut letters = self.lock();
        (letters.report, letters.commit_since) = (Some(report), None);
        drop(letters);
        self.arrival.notify_one();
    }

    /// No more jobs come.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.arrival.notify_one();
    }

    /// The decider ends: jobs are not answered any more.
    pub(super) fn end(&self) {
        let mut letters = self.lock();
        letters.is_dead = true;
        let jobs = std::mem::take(&mut letters.jobs);
        drop(letters);
        // Dropped after the lock, because that wakes their callers.
        drop(jobs);
    }

    /// Waits for what is awaited, and takes it.
    pub(super) fn take(&self, awaited: AwaitedEvents) -> Delivery {
        let mut letters = self.lock();
        loop {
            let has_jobs = awaited.jobs && !letters.jobs.is_empty();
            let has_closed = awaited.close && letters.is_closed;
            if has_jobs || has_closed || letters.report.is_some() {
                break;
            }
            let Some(until) = awaited.until else {
                letters = self.arrival.wait(letters).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.arrival.wait_timeout(letters, left);
            letters = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let jobs = if awaited.jobs {
            letters.jobs_since = None;
            std::mem::take(&mut letters.jobs)
        } else {
            Vec::new()
        };
        Delivery { jobs, report: letters.report.take(), is_closed: letters.is_closed }
    }

    /// Nothing panics while the lock is held, so its content is whole even if it is poisoned.
    fn lock(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
