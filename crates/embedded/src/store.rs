//! The store: hands calls to the decider, and waits for their answers until the deadline.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::oneshot::{self, error::RecvError};
use tokio::time::{Instant, timeout};

use super::NAME;
use super::committer::run_committer;
use super::decider::{Decider, Durability};
use super::file::BucketFile;
use super::inbox::{DecisionJob, Inbox, JobAnswer, PushError};
use super::list;
use super::sweep::Sweep;
use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BackendError, BucketId, Charge, DebtorQuery, DebtorReport,
};
use tollgate::clock::{Clock, SystemClock};
use tollgate::kit::not_before;
use tollgate_kit::crowd::Crowd;
use tollgate_kit::debtors::SortedPage;
use tollgate_kit::late::{Lag, in_time};
use tollgate_kit::operation::Operation;
use tollgate_kit::stored::name_ranges;

/// A store in a file of this machine, for limits that survive a restart of one process.
///
/// A decision is exactly what it would be in memory. Each is on the disk before it is answered,
/// unless [`Durability::Fast`] is set. Decisions that are asked for while a commit is under way
/// travel together in the next, so the disk does not bound how many there are. The guide in
/// `docs/embedded.md` of the repository says what it costs and what is lost when.
///
/// One process has the file open at a time. Within the process, clone the store or the
/// [`RateLimiter`](tollgate::RateLimiter); a clone costs no more than a counter. Processes that share
/// their limits need a server, such as `Redis`.
///
/// The store has two threads of its own. Dropping its last clone waits for them: until all that was
/// decided is in the file. Calls need a tokio runtime with its timer, for their deadline.
///
/// # Deadlines
///
/// A call without an answer by the [`deadline`](super::EmbeddedBuilder::deadline) (a second by
/// default) fails with an error whose [`is_timeout`](BackendError::is_timeout) is true, and layers
/// answer 503. A call that was not decided by then takes nothing. One that waits for its commit
/// takes its tokens all the same.
///
/// # The file
///
/// It holds at most [`max_keys`](super::EmbeddedBuilder::max_keys) buckets, a million by default, in
/// some 100 to 300 bytes each. Each commit removes some of those that are full again, and if there
/// are too many, some that have used the smallest shares of their capacity. Space in the file is
/// used again. A file that is much larger than its buckets need is compacted when it is opened.
///
/// # Failures
///
/// While the file cannot be written to, calls that take nothing are answered, such as refusals, and
/// all others fail. An error of a full disk [is full](BackendError::is_full). The store goes on by
/// itself once writes succeed. After a commit has failed, it is unknown whether the decisions in it
/// took effect, as after a [timeout](BackendError::is_timeout).
///
/// # Time
///
/// The store goes by the clock of the machine, as [`SystemClock`] does. If that is earlier than the last
/// commit when the file is opened, as on a machine that starts without a right clock, the store counts
/// on from the commit until the machine's clock is later.
///
/// # Examples
///
/// ```
/// use tollgate_embedded::Embedded;
/// use tollgate::{HOUR, Limit, Quota, RateLimiter};
///
/// const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let path = std::env::temp_dir().join(format!("tollgate-doc-{}.db", std::process::id()));
/// # let _ = std::fs::remove_file(&path);
/// let limiter = RateLimiter::new(Embedded::open(&path)?);
/// assert_eq!(limiter.limit(&LOGIN).key("alice").await?.remaining(), 4);
/// drop(limiter);
///
/// // After a restart:
/// let limiter = RateLimiter::new(Embedded::open(&path)?);
/// assert_eq!(limiter.limit(&LOGIN).key("alice").await?.remaining(), 3);
/// # drop(limiter);
/// # std::fs::remove_file(&path)?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "disk")]
#[doc(alias = "persistent")]
#[doc(alias = "redb")]
#[doc(alias = "sqlite")]
#[derive(Clone)]
pub struct Embedded(Arc<Handle>);

/// What the clones of a store share.
struct Handle {
    path: PathBuf,
    /// For lists, which read it beside the decider.
    file: Arc<BucketFile>,
    clock: Arc<dyn Clock>,
    deadline: Duration,
    durability: Durability,
    inbox: Arc<Inbox>,
    /// The callers that wait for an answer.
    callers: Crowd,
    decider: Mutex<Option<JoinHandle<()>>>,
}

/// What a store is made of.
#[derive(Clone, Debug)]
pub(super) struct EmbeddedSettings {
    pub(super) deadline: Duration,
    pub(super) durability: Durability,
    pub(super) clock: Arc<dyn Clock>,
}

impl Embedded {
    /// Makes a store of an open file. Users try `Embedded::new`, so it is not called that: the compiler
    /// would ask them for these arguments.
    pub(super) fn over(
        path: PathBuf,
        file: BucketFile,
        sweep: Sweep,
        settings: EmbeddedSettings,
    ) -> Result<Self, BackendError> {
        let EmbeddedSettings { deadline, durability, mut clock } = settings;
        if let Some(floor) = file.last_commit()? {
            clock = not_before(clock, floor);
        }
        let (file, inbox) = (Arc::new(file), Arc::new(Inbox::default()));
        let (commits, to_commit) = mpsc::channel();
        let own = (Arc::clone(&file), Arc::clone(&clock));
        let decider =
            Decider::new(Arc::clone(&file), Arc::clone(&inbox), clock, durability, commits);
        let reports = Arc::clone(&inbox);
        let committer = thread::Builder::new()
            .name("tollgate-commit".to_owned())
            .spawn(move || run_committer(&file, sweep, &to_commit, &reports))
            .map_err(|error| BackendError::unavailable(NAME, error))?;
        let decider = thread::Builder::new()
            .name("tollgate-decide".to_owned())
            .spawn(move || {
                decider.run();
                // It has nothing to do any more. If it panicked, the store has ended as well.
                let _ = committer.join();
            })
            .map_err(|error| BackendError::unavailable(NAME, error))?;
        let decider = Mutex::new(Some(decider));
        let ((file, clock), callers) = (own, Crowd::more_than(FEW));
        let handle = Handle { path, file, clock, deadline, durability, inbox, callers, decider };
        Ok(Self(Arc::new(handle)))
    }

    /// Waits until all decisions that were answered are on the disk.
    ///
    /// With [`Durability::Durable`] they always are. This has no deadline.
    ///
    /// # Errors
    ///
    /// If the file cannot be written to.
    ///
    /// # Cancel safety
    ///
    /// The decisions are written whether or not the future is dropped.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tollgate::backend::BackendError;
    /// use tollgate_embedded::{Durability, Embedded};
    ///
    /// # async fn run() -> Result<(), BackendError> {
    /// let store = Embedded::at("limits.db").durability(Durability::Fast).open()?;
    /// // Before an update of the machine:
    /// store.flush().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn flush(&self) -> Result<(), BackendError> {
        answered(self.send(None)?.await).map(drop)
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    fn send(
        &self,
        operation: Option<Box<Operation>>,
    ) -> Result<oneshot::Receiver<JobAnswer>, BackendError> {
        let (reply, answer) = oneshot::channel();
        match self.0.inbox.push(DecisionJob { operation, reply }) {
            Ok(()) => Ok(answer),
            Err(PushError::Overload) => Err(BackendError::overloaded(NAME, self.0.deadline)),
            Err(PushError::End) => Err(ended()),
        }
    }

    fn ask(&self, operation: Operation) -> Answer<Applied> {
        let deadline = self.0.deadline;
        match self.send(Some(Box::new(operation))) {
            Err(error) => Answer::Ready(Err(error)),
            Ok(answer) => {
                let begun = Instant::now();
                let place = self.0.callers.join(begun);
                let waiter = Waiter { inbox: Arc::clone(&self.0.inbox), begun, place };
                Answer::pending(async move {
                    match timeout(deadline, answer).await {
                        Ok(answer) => answered(answer),
                        Err(_) => Err(waiter.late(deadline).await),
                    }
                })
            }
        }
    }
}

/// A caller that waits for its answer.
struct Waiter {
    inbox: Arc<Inbox>,
    begun: Instant,
    place: Crowd,
}

impl Waiter {
    /// The error at the deadline. A flood makes commits long: while they end, and many wait, this
    /// process is overloaded, and the disk is well.
    async fn late(&self, within: Duration) -> BackendError {
        let Self { inbox, begun, place } = self;
        let lag = Lag::since(begun.checked_add(within).unwrap_or(*begun)).await;
        match place.was_there_since(*begun) && !inbox.is_stuck(within.saturating_mul(2).max(STUCK))
        {
            true => BackendError::overloaded(NAME, within),
            false => lag.error(NAME, within),
        }
    }
}

/// The least time for which a commit without end is no long commit.
const STUCK: Duration = Duration::from_secs(2);

/// How many callers may wait before they are the reason why answers are late.
const FEW: usize = 16;

fn answered(answer: Result<JobAnswer, RecvError>) -> Result<Applied, BackendError> {
    answer.map_or_else(|_| Err(ended()), |(answer, _)| answer)
}

fn ended() -> BackendError {
    BackendError::unavailable(NAME, "the thread that decides has ended (open the store again)")
}

impl Backend for Embedded {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        if charges.is_empty() {
            return Answer::Ready(Ok(Applied::many(SystemClock::new().now(), Vec::new())));
        }
        self.ask(Operation::charges(charges))
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        if adjustments.is_empty() {
            return Answer::Ready(Ok(Applied::many(SystemClock::new().now(), Vec::new())));
        }
        self.ask(Operation::adjustments(adjustments))
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        if ids.is_empty() {
            return Answer::Ready(Ok(()));
        }
        self.ask(Operation::resets(ids)).map(drop)
    }

    /// Reads the file, once all that was decided before is in there.
    fn debtors(&self, query: &DebtorQuery) -> Answer<DebtorReport> {
        let page = match SortedPage::new(NAME, query, name_ranges(query.limit())) {
            Ok(page) => page,
            Err(error) => return Answer::Ready(Err(error)),
        };
        let (store, deadline) = (self.clone(), self.0.deadline);
        Answer::pending(async move {
            let page = async {
                store.flush().await?;
                list::fill(Arc::clone(&store.0.file), Arc::clone(&store.0.clock), page).await
            };
            in_time(NAME, deadline, page).await?
        })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.inbox.close();
        let decider = self.decider.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(decider) = decider
            // A caller's waker may drop the store on the decider itself.
            && decider.thread().id() != thread::current().id()
        {
            // A panic was reported by the errors of the calls.
            let _ = decider.join();
        }
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded")
            .field("path", &self.0.path)
            .field("deadline", &self.0.deadline)
            .field("durability", &self.0.durability)
            .finish_non_exhaustive()
    }
}
