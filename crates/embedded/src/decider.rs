//! The thread that decides.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use super::committer::Commit;
use super::file::{BucketChanges, BucketFile, BucketReader};
use super::inbox::{AwaitedEvents, DecisionJob, Delivery, Inbox};
use tollgate::backend::{Applied, BackendError, BucketRecord};
use tollgate::clock::{Clock, Timestamp};
use tollgate_kit::key_name::KeyName;
use tollgate_kit::operation::Operation;
use tollgate_kit::stored::Draft;

/// When a decision is answered.
///
/// # Examples
///
/// ```no_run
/// use tollgate::RateLimiter;
/// use tollgate_embedded::{Durability, Embedded};
///
/// let store = Embedded::at("limits.db").durability(Durability::Fast).open()?;
/// let limiter = RateLimiter::new(store);
/// # drop(limiter);
/// # Ok::<(), tollgate::backend::BackendError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// Once it is on the disk. No decision that was answered is lost, whatever ends the process or
    /// the machine. A decision takes as long as the disk needs for a commit or two.
    #[default]
    Durable,
    /// At once. A commit follows within a tenth of a second, and the time that the disk takes. If
    /// the process is killed or the machine crashes, the decisions since the last commit are lost:
    /// their tokens are in the buckets again. Dropping the store commits what is left.
    Fast,
}

/// How long decisions wait for a commit that no caller waits for.
const COMMIT_AFTER: Duration = Duration::from_millis(100);

/// The largest number of buckets that wait to be written, in some 20 MB. Above it, no job is
/// decided until a commit is done.
const MAX_PENDING: usize = 65_536;

/// What was decided and is not in the file yet.
#[derive(Debug, Default)]
struct PendingChanges<C> {
    changes: C,
    /// The answers that wait for the commit.
    replies: Vec<(DecisionJob, Applied)>,
}

pub(super) struct Decider {
    pub(super) file: Arc<BucketFile>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) durability: Durability,
    commits: mpsc::Sender<Commit>,
    /// For the next commit.
    next: PendingChanges<BucketChanges>,
    /// In the commit that is under way.
    under_way: Option<PendingChanges<Arc<BucketChanges>>>,
    /// Why the last commit has failed, if the disk is full, or for a store that has answered what was
    /// in it.
    failure: Option<BackendError>,
    /// When the next commit begins, unless a caller waits for it. On a full disk, when one is tried.
    due: Instant,
    now: Timestamp,
}

/// Ends the inbox with the thread, also if that panics: callers must not wait for it.
struct EndGuard(Arc<Inbox>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Decider {
    pub(super) fn new(
        file: Arc<BucketFile>,
        inbox: Arc<Inbox>,
        clock: Arc<dyn Clock>,
        durability: Durability,
        commits: mpsc::Sender<Commit>,
    ) -> Self {
        let now = clock.now();
        let next = PendingChanges::default();
        let (under_way, failure, due) = (None, None, Instant::now());
        Self { file, inbox, clock, durability, commits, next, under_way, failure, due, now }
    }

    /// Decides jobs until the store is dropped and all that was decided is in the file.
    pub(super) fn run(mut self) {
        let _guard = EndGuard(Arc::clone(&self.inbox));
        let mut last_try = false;
        loop {
            let Delivery { jobs, report, is_closed } = self.inbox.take(self.awaited());
            if let Some(report) = report {
                self.finish(report);
            }
            self.decide_all(jobs);
            if self.is_due() || (is_closed && self.under_way.is_none()) {
                if self.next.changes.is_empty() {
                    self.answer_flushes();
                    if is_closed && self.under_way.is_none() {
                        return;
                    }
                } else if last_try && self.failure.is_some() {
                    // The file cannot be written to. The process should not hang for that.
                    return;
                } else {
                    last_try = is_closed;
                    self.begin();
                }
            }
        }
    }

    fn awaited(&self) -> AwaitedEvents {
        let is_idle = self.under_way.is_none();
        let under_way = self.under_way.as_ref().map_or(0, |pending| pending.changes.len());
        let has_room = self.next.changes.len().saturating_add(under_way) < MAX_PENDING;
        let until = (is_idle && !self.next.changes.is_empty()).then_some(self.due);
        AwaitedEvents { jobs: has_room, close: is_idle, until }
    }

    /// Whether to begin a commit.
    fn is_due(&self) -> bool {
        let is_awaited = !self.next.replies.is_empty();
        self.under_way.is_none()
            && (is_awaited
                || (!self.next.changes.is_empty() && self.due <= Instant::now())
                || self.next.changes.len() >= MAX_PENDING)
    }

    /// Sends what was decided to the committer.
    fn begin(&mut self) {
        let PendingChanges { changes, replies } = mem::take(&mut self.next);
        let changes = Arc::new(changes);
        self.under_way = Some(PendingChanges { changes: Arc::clone(&changes), replies });
        self.inbox.note_commit();
        if self.commits.send(Commit { changes, now: self.now }).is_err() {
            let ended = "the thread that writes has ended (open the store again)";
            self.finish(Err(BackendError::unavailable(super::NAME, ended)));
        }
    }

    /// Answers the calls of the commit that was under way.
    fn finish(&mut self, report: Result<(), BackendError>) {
        let Some(PendingChanges { changes, replies }) = self.under_way.take() else { return };
        self.due = Instant::now() + COMMIT_AFTER;
        match report {
            Ok(()) => {
                self.failure = None;
                for (job, applied) in replies {
                    job.answer(Ok(applied));
                }
            }
            Err(error) => {
                let later = mem::take(&mut self.next.replies);
                for (job, _) in replies.into_iter().chain(later) {
                    job.answer(Err(error.clone()));
                }
                match self.durability {
                    // Later decisions count on those that have failed.
                    Durability::Durable => {
                        self.next.changes.clear();
                        self.failure = error.is_full().then_some(error);
                    }
                    // They were answered, so they are written as soon as that is possible.
                    Durability::Fast => {
                        for (name, record) in changes.iter() {
                            self.next.changes.entry(name.clone()).or_insert(*record);
                        }
                        self.failure = Some(error);
                    }
                }
            }
        }
    }

    /// Answers those that wait for the file while nothing has to be written.
    fn answer_flushes(&mut self) {
        for (job, applied) in mem::take(&mut self.next.replies) {
            job.answer(Ok(applied));
        }
    }

    fn decide_all(&mut self, jobs: Vec<DecisionJob>) {
        // Opened by the first job that has to read the file; it sees all commits that are not
        // pending any more.
        let mut reader = None;
        for job in jobs {
            // Its caller has left, or has missed its deadline. It takes nothing.
            if job.reply.is_closed() {
                continue;
            }
            self.now = self.clock.now();
            let Some(operation) = &job.operation else {
                let applied = Applied::many(self.now, Vec::new());
                match &mut self.under_way {
                    Some(pending) if self.next.changes.is_empty() => {
                        pending.replies.push((job, applied));
                    }
                    _ => self.next.replies.push((job, applied)),
                }
                continue;
            };
            match self.decide(operation, &mut reader) {
                Ok((applied, true)) if self.durability == Durability::Durable => {
                    self.next.replies.push((job, applied));
                }
                decided => job.answer(decided.map(|(applied, _)| applied)),
            }
        }
    }

    /// Returns also whether something has to be written.
    fn decide(
        &mut self,
        operation: &Operation,
        reader: &mut Option<BucketReader>,
    ) -> Result<(Applied, bool), BackendError> {
        let named = operation.named_ids();
        let mut draft = Draft::new(self.now);
        for (id, name) in &named {
            draft.add(*id, self.read(name, reader)?);
        }
        let applied = operation.decide(&mut draft);
        if !draft.has_changed() {
            return Ok((applied, false));
        }
        if let Some(failure) = self.failure.as_ref().filter(|_| !self.tries()) {
            return Err(failure.clone());
        }
        for ((_, name), entry) in named.into_iter().zip(draft.entries()) {
            if entry.has_changed() {
                self.next.changes.insert(name, entry.after().copied());
            }
        }
        Ok((applied, true))
    }

    /// Whether the next change tries if the disk is still full. A commit that fails takes far longer than
    /// one that does not, as the file is opened again: so one change tries, and no others wait for it.
    fn tries(&self) -> bool {
        self.durability == Durability::Durable
            && self.under_way.is_none()
            && self.next.changes.is_empty()
            && self.due <= Instant::now()
    }

    /// Reads a bucket: what is pending, or else what is in the file.
    fn read(
        &self,
        name: &KeyName,
        reader: &mut Option<BucketReader>,
    ) -> Result<Option<BucketRecord>, BackendError> {
        let under_way = self.under_way.as_ref().and_then(|pending| pending.changes.get(name));
        if let Some(record) = self.next.changes.get(name).or(under_way) {
            return Ok(*record);
        }
        // The database may panic if another program has changed the file.
        let read = catch_unwind(AssertUnwindSafe(|| {
            let reader = match reader {
                Some(reader) => reader,
                None => reader.insert(self.file.reader()?),
            };
            reader.get(name.as_str())
        }));
        read.unwrap_or_else(|_| {
            Err(BackendError::internal(super::NAME, "the database panicked while it was read"))
        })
    }
}
