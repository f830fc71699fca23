//! Batching: operations that arrive while calls are in flight share the next call.
//!
//! # Design
//!
//! There is no timer and no delay. While fewer calls than the [bound](Bounds) are in flight, an
//! operation is sent at once. Otherwise it waits in a queue, and when a call is answered, the next
//! one takes as many waiting operations as a call may name buckets. So a lone operation never
//! waits, and under load more operations share a call.
//!
//! A flood of one client delays no other. Buckets take [turns](lanes), and operations that wait for
//! a bucket that has just refused are answered from that refusal.
//!
//! The next call is sent before the callers of the last one get their answers, so the server has
//! work while they run.
//!
//! Each call in flight belongs to a task of its own ([`InFlight`]). A caller may drop its future at
//! any time, which disturbs neither the task nor the operations that share its call. If the future
//! is dropped or the deadline passes before the operation is sent, it is not sent. A call without
//! an answer stays in flight, so a server that hangs does not get more and more calls.

mod job;
mod lanes;
mod placement;
mod send_queues;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::poll_fn;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

pub use self::job::Job;
use self::job::{Answers, LaneId, fail};
pub use self::send_queues::Bounds;
use self::send_queues::{JobBatch, SendQueues};
use super::operation::NamedOperation;
use super::replay::Replay;
use crate::crowd::Crowd;
use crate::late::Lag;
use tollgate::algebra::Verdict;
use tollgate::backend::{Applied, BackendError};

/// What takes a batch of operations to the store, in one call, and brings the answer back.
pub trait Carrier: fmt::Debug + Send + Sync + 'static {
    /// The store, for errors.
    const STORE: &'static str;

    /// What a caller keeps of its operation, to learn why it is late.
    type Mark: Send + 'static;

    /// Sends these jobs of a slot in one call. The answer has the buckets that they name, as they
    /// were before the call.
    fn call(
        &self,
        slot: u16,
        jobs: &[Job],
    ) -> impl Future<Output = Result<Replay, BackendError>> + Send;

    /// The slot of an operation. A call names one slot.
    fn slot(&self, operation: &NamedOperation) -> u16;

    /// The bounds for a slot; `common` are those of the store.
    fn bounds<'b>(&'b self, _slot: u16, common: &'b Bounds) -> &'b Bounds {
        common
    }

    /// How the jobs of a call for a slot that failed by this error can be sent again.
    fn division(&self, slot: u16, error: &BackendError) -> Division;

    fn mark(&self, operation: &NamedOperation) -> Self::Mark;

    /// Why an operation that had this slot is late, if it is neither this process nor the store as a
    /// whole.
    fn late(&self, _slot: u16, _mark: &Self::Mark) -> Option<BackendError> {
        None
    }

    /// Whether the server of a slot takes, or took, as long as this to answer a call that began then, if
    /// its connection tells. If this process floods it: whether it says nothing for so long.
    fn is_late(
        &self,
        _slot: u16,
        _begun: Instant,
        _time: Duration,
        _is_flooded: bool,
    ) -> Option<bool> {
        None
    }

    /// Whether a job of a call that failed by this error, and has no other slot by now, has the time to
    /// be sent again.
    fn retries(&self, _slot: u16, _job: &Job, _error: &BackendError) -> bool {
        false
    }
}

/// How the jobs of a call that has failed can be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// Not at all.
    None,
    /// Those whose slot is another one by now in calls for that slot, and the others together. Of
    /// the call, nothing was carried out.
    BySlots,
    /// The same, but one by one if all have the slot that they had.
    OneByOne,
}

/// Sends the operations of all callers.
pub struct Batcher<C>(Arc<BatcherShared<C>>);

#[derive(Debug)]
struct BatcherShared<C> {
    carrier: C,
    runtime: Handle,
    queues: Mutex<SendQueues>,
    /// The callers that wait for an answer: more than all calls of a slot take are a crowd.
    callers: Crowd,
    /// How long a caller waits for its answer.
    deadline: Duration,
    bounds: Bounds,
}

impl<C: Carrier> Batcher<C> {
    /// A batcher with its tasks on this runtime. A caller waits for its answer until the deadline.
    pub fn new(carrier: C, runtime: Handle, deadline: Duration, bounds: Bounds) -> Self {
        let few = bounds.calls_per_slot.saturating_mul(bounds.buckets_per_call);
        let (queues, callers) = (Mutex::default(), Crowd::more_than(few));
        Self(Arc::new(BatcherShared { carrier, runtime, queues, callers, deadline, bounds }))
    }

    pub fn carrier(&self) -> &C {
        &self.0.carrier
    }

    /// Runs a task that goes on when the returned future is dropped.
    pub fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = Result<T, BackendError>> + Send + 'static,
    ) -> impl Future<Output = Result<T, BackendError>> + Send + 'static {
        let task = self.0.runtime.spawn(task);
        async move {
            task.await.unwrap_or_else(|failed| match failed.is_panic() {
                true => Err(panicked(C::STORE)),
                false => Err(shut_down(C::STORE)),
            })
        }
    }

    /// How long a caller waits for its answer.
    pub fn within(&self) -> Duration {
        self.0.deadline
    }

    /// The instant by which an operation that starts now has to be answered.
    pub fn deadline(&self) -> Instant {
        let now = Instant::now();
        let end = now.checked_add(self.within()).or_else(|| now.checked_add(FAR));
        end.unwrap_or(now)
    }

    /// Carries out an operation on buckets that share a slot.
    ///
    /// It is on its way when this returns, whether or not the future is awaited.
    ///
    /// # Cancel safety
    ///
    /// A charge that was not sent when the future is dropped is not sent any more. A refund or a reset
    /// is, until its deadline. What was sent is carried out at most once.
    pub fn send(
        &self,
        operation: NamedOperation,
        deadline: Instant,
    ) -> impl Future<Output = Result<Applied, BackendError>> + Send + 'static {
        let (reply, mut answer) = oneshot::channel();
        let slot = self.0.carrier.slot(&operation);
        let mark = self.0.carrier.mark(&operation);
        let job = Job::new(operation, deadline, reply);
        let begun = Instant::now();
        let place = self.0.callers.join(begun);
        let caller = Caller { shared: Arc::clone(&self.0), slot, mark, begun, _place: place };
        // Here and not in the future: an operation such as a refund is on its way although its
        // future is dropped.
        self.0.push(slot, job, begun);
        // A caller outside of tokio uses the timer of this runtime.
        let ours = Handle::try_current().is_err().then(|| self.0.runtime.clone());
        async move {
            let timed = {
                let _ours = ours.as_ref().map(Handle::enter);
                timeout_at(deadline, &mut answer)
            };
            match timed.await {
                Ok(Ok((answer, _))) => answer,
                // The queue drops a job after its deadline, perhaps before this timer has fired.
                Ok(Err(_)) if Instant::now() < deadline => Err(shut_down(C::STORE)),
                Ok(Err(_)) => {
                    let lag = Lag::since(deadline).await;
                    Err(caller.late(deadline, lag))
                }
                // The tokens of a late answer are taken in any case, so it is worth a look at
                // whether it has arrived.
                Err(_) => match Lag::or_answer(deadline, || answer.try_recv().ok()).await {
                    Ok((answer, _)) => answer,
                    Err(lag) => {
                        let (runtime, within) = (&caller.shared.runtime, caller.shared.deadline);
                        let lag = lag.or_that_of(runtime, deadline, within).await;
                        Err(caller.late(deadline, lag))
                    }
                },
            }
        }
    }
}

impl<C> Clone for Batcher<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C: fmt::Debug> fmt::Debug for Batcher<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Batcher").field(&self.0).finish()
    }
}

impl<C: Carrier> BatcherShared<C> {
    /// A poisoned lock is harmless: nothing panics while it is held, except without memory.
    fn queues(&self) -> MutexGuard<'_, SendQueues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bounds(&self, slot: u16) -> &Bounds {
        self.carrier.bounds(slot, &self.bounds)
    }

    /// Adds a job to the queue of a slot.
    fn push(self: &Arc<Self>, slot: u16, job: Job, now: Instant) {
        let free = self.queues().push(slot, job, now, self.bounds(slot));
        if free {
            let task = InFlight { shared: Arc::clone(self), slot, is_finished: false };
            // A runtime that has shut down drops the task at once. Its destructor then drops the
            // job, and the caller need not wait for its deadline to learn that.
            self.runtime.spawn(task.run());
        }
    }

    /// Sends these jobs, and then the answers of the call `before`. Returns the answers of these
    /// jobs.
    async fn send(self: &Arc<Self>, slot: u16, taken: JobBatch, before: Answers) -> Answers {
        let last_arrival = taken.last_arrival;
        let (mut taken, mut before) = (taken, before);
        loop {
            let sent = self.send_together(slot, taken, std::mem::take(&mut before)).await;
            let (error, jobs) = match sent {
                Ok(answers) => return answers,
                Err(failed) => failed,
            };
            let division = self.carrier.division(slot, &error);
            let moved = match division {
                Division::None => Err(jobs),
                Division::BySlots | Division::OneByOne => self.move_to_slots(slot, jobs),
            };
            match moved {
                Ok(stay) if stay.is_empty() => {}
                Ok(stay) => {
                    taken = JobBatch { jobs: stay, last_arrival };
                    continue;
                }
                // What fails one of the jobs may let others be.
                Err(jobs) if division == Division::OneByOne && jobs.len() > 1 => {
                    let is_due = |job: &Job| !job.is_expired(Instant::now());
                    for job in jobs.into_iter().filter(is_due) {
                        let alone = JobBatch { jobs: vec![job], last_arrival };
                        match self.send_together(slot, alone, Answers::default()).await {
                            // At once, since each of the next jobs takes a call of its own.
                            Ok(answers) => answers.send(),
                            Err((error, jobs)) => fail(jobs, &error),
                        }
                    }
                }
                Err(jobs) => {
                    let again = |job: &Job| self.carrier.retries(slot, job, &error);
                    let (again, over): (Vec<_>, Vec<_>) = jobs.into_iter().partition(again);
                    fail(over, &error);
                    if !again.is_empty() {
                        taken = JobBatch { jobs: again, last_arrival };
                        continue;
                    }
                }
            }
            return Answers::default();
        }
    }

    /// Moves the jobs that have another slot by now, and returns the others.
    ///
    /// # Errors
    ///
    /// If all have this slot still, as they were.
    fn move_to_slots(self: &Arc<Self>, slot: u16, jobs: Vec<Job>) -> Result<Vec<Job>, Vec<Job>> {
        let now = Instant::now();
        let of_slot = |job: Job| (self.carrier.slot(&job.operation), job);
        let (stay, moved): (Vec<_>, Vec<_>) =
            jobs.into_iter().map(of_slot).partition(|(new, _)| *new == slot);
        let stay = stay.into_iter().map(|(_, job)| job);
        if moved.is_empty() {
            return Err(stay.collect());
        }
        for (new, job) in moved {
            if !job.is_expired(now) {
                self.push(new, job, now);
            }
        }
        Ok(stay.filter(|job| !job.is_expired(now)).collect())
    }

    /// Sends these jobs in one call. Returns their answers, or the jobs if the call failed. The
    /// answers of the call `before` are sent to their callers once this call is written, so the
    /// server works while those callers run.
    ///
    /// A refusal also answers jobs that were waiting for the same buckets when the call was sent,
    /// if these buckets refuse them as well. That is as if those jobs had been the last in the
    /// call.
    async fn send_together(
        &self,
        slot: u16,
        taken: JobBatch,
        before: Answers,
    ) -> Result<Answers, (BackendError, Vec<Job>)> {
        let JobBatch { jobs, last_arrival } = taken;
        let begun = Instant::now();
        let replay = {
            let mut call = pin!(caught(C::STORE, self.carrier.call(slot, &jobs)));
            // One poll writes the call. Only then do the callers of the last call run, which may
            // take the processor for a while.
            let sent = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await;
            before.send();
            match sent {
                Poll::Ready(answered) => answered,
                Poll::Pending => call.await,
            }
        };
        let mut replay = match replay {
            Ok(replay) => replay,
            Err(error) => {
                if !error.is_outage() {
                    self.queues().note_answer(slot, begun, self.deadline);
                }
                return Err((error, jobs));
            }
        };
        self.queues().note_answer(slot, begun, self.deadline);
        let places = replay.take_places();
        let (mut rest, mut refused) = (places.as_slice(), Vec::<(LaneId, _, _)>::new());
        let mut answers = Answers::with_capacity(jobs.len());
        for job in jobs {
            let (places, others) =
                rest.split_at_checked(job.operation.names().len()).unwrap_or((rest, &[]));
            rest = others;
            let answer = replay.answer(&job.operation, places);
            let is_refused =
                answer.as_ref().is_ok_and(|applied| applied.verdict() == Verdict::Refused);
            // One for each lane suffices: those that wait are judged by the states after the whole
            // call, not by those that this job found.
            if is_refused && refused.iter().all(|(lane, ..)| *lane != job.lane) {
                refused.push((job.lane, answers.len(), places));
            }
            answers.push(job, answer);
        }
        let mut of_others = Answers::default();
        for (lane, nth, places) in refused {
            let Some(operation) = answers.operation(nth) else { continue };
            let applied = replay.refusal(operation, places);
            let (refused, replay) = (RefusedJob { lane, operation, places }, &replay);
            let others = RefusalReplay { slot, last_arrival, refused, applied, replay };
            while others.answer_some(self, &mut of_others) {}
        }
        answers.append(of_others);
        Ok(answers)
    }
}

/// A job that the store has refused.
struct RefusedJob<'c> {
    lane: LaneId,
    operation: &'c NamedOperation,
    /// The places of its buckets in the reply.
    places: &'c [usize],
}

/// Answers jobs that wait in the lane of a refused job, had arrived when its call was sent, and are
/// refused by the same states.
struct RefusalReplay<'c> {
    slot: u16,
    last_arrival: u64,
    refused: RefusedJob<'c>,
    /// The answer to an equal job.
    applied: Option<Applied>,
    replay: &'c Replay,
}

impl RefusalReplay<'_> {
    /// Answers some of them. Returns whether there may be more.
    fn answer_some<C: Carrier>(&self, shared: &BatcherShared<C>, answers: &mut Answers) -> bool {
        // A few at a time, so that a long lane does not keep callers from adding their jobs.
        let mut queues = shared.queues();
        let answered: Vec<_> = iter::from_fn(|| {
            queues.pop_if_answered(self.slot, self.refused.lane, |job| self.answer(job))
        })
        .take(ANSWERED_TOGETHER)
        .collect();
        drop(queues);
        let is_more = answered.len() == ANSWERED_TOGETHER;
        answered.into_iter().for_each(|(job, applied)| answers.push(job, Ok(applied)));
        is_more
    }

    fn answer(&self, job: &Job) -> Option<Applied> {
        let RefusedJob { operation, places, .. } = &self.refused;
        // It came after the call was sent. By then the bucket may have gained what it needs, which
        // the states of the call do not show.
        if job.arrival > self.last_arrival {
            None
        } else if job.operation.charges_as(operation) {
            self.applied.clone()
        } else if job.operation.names() == operation.names() {
            self.replay.refusal(&job.operation, places)
        } else {
            None
        }
    }
}

/// How many jobs are answered from a refusal under one lock of the queues.
const ANSWERED_TOGETHER: usize = 32;

/// A caller that waits for its answer.
struct Caller<C: Carrier> {
    shared: Arc<BatcherShared<C>>,
    slot: u16,
    mark: C::Mark,
    begun: Instant,
    /// It is counted among the callers that wait for this store.
    _place: Crowd,
}

impl<C: Carrier> Caller<C> {
    /// The error at the deadline.
    ///
    /// It is the store that is late if it owes an answer for most of the time, or did so when the last
    /// one came. A connection tells that; where none does, calls have to be without an answer for as long.
    /// In either case, this process must not be what takes the time. Otherwise it is overloaded: so it is
    /// if it had more to send than a call takes, and calls were answered.
    ///
    /// In a crowd of callers, answers that come one after the other tell nothing: the server is never
    /// without a question, and this process is late with all it does. Nor do they in a process that is
    /// late with other work. Then the store is late only if it is silent, for two deadlines.
    fn late(&self, deadline: Instant, lag: Lag) -> BackendError {
        let shared = &*self.shared;
        if let Some(error) = shared.carrier.late(self.slot, &self.mark) {
            return error;
        }
        let within = shared.deadline;
        let before = |instant: Instant, time| instant.checked_sub(time).unwrap_or(instant);
        let then = before(self.begun, within);
        let is_flooded = shared.callers.was_there_since(then) || lag.is_felt(within);
        let most = if is_flooded { within.saturating_mul(2) } else { within / 5 * 4 };
        let is_late = shared.carrier.is_late(self.slot, self.begun, most, is_flooded);
        let mut queues = shared.queues();
        let then_silent = before(deadline, most);
        let is_late =
            is_late.unwrap_or_else(|| queues.is_silent_since(self.slot, then_silent, is_flooded));
        match is_late && !queues.was_overloaded_since(self.slot, then) {
            true => lag.error(C::STORE, within),
            false => BackendError::overloaded(C::STORE, within),
        }
    }
}

/// A task with one call in flight at a time. It serves one slot, and may change to a waiting one.
struct InFlight<C: Carrier> {
    shared: Arc<BatcherShared<C>>,
    slot: u16,
    /// Whether the task has left the queues, which then count one call less.
    is_finished: bool,
}

impl<C: Carrier> InFlight<C> {
    /// Sends calls until no job waits.
    async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let bounds = shared.bounds(self.slot);
        let mut taken = shared.queues().take(&mut self.slot, bounds);
        let mut answers = Answers::default();
        while !taken.jobs.is_empty() {
            answers = shared.send(self.slot, taken, answers).await;
            // Take the next jobs before the answers are sent: see `send`.
            taken = shared.queues().take_more(&mut self.slot, bounds);
        }
        // The queues count this task no more, and other callers may be using them. From here on its
        // destructor must not clear them.
        self.is_finished = true;
        answers.send();
    }
}

/// When the runtime shuts down, no task is left to send what waits. So all jobs are dropped, which
/// gives their callers an error.
impl<C: Carrier> Drop for InFlight<C> {
    fn drop(&mut self) {
        if !self.is_finished {
            let left = std::mem::take(&mut *self.shared.queues());
            // The guard is gone by now: a reply that is dropped wakes its caller, which may lock
            // the queues.
            drop(left);
        }
    }
}

/// A call whose panic is an error, so that it ends no other call.
async fn caught<T>(
    store: &'static str,
    call: impl Future<Output = Result<T, BackendError>>,
) -> Result<T, BackendError> {
    let mut call = pin!(call);
    poll_fn(|cx| {
        // After a panic it is not polled again.
        let polled = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx)));
        polled.unwrap_or_else(|_| Poll::Ready(Err(panicked(store))))
    })
    .await
}

fn panicked(store: &'static str) -> BackendError {
    BackendError::internal(store, "a call panicked")
}

/// The deadline if the one that is set is beyond what an instant can hold.
const FAR: Duration = Duration::from_secs(365 * 86_400);

fn shut_down(store: &'static str) -> BackendError {
    BackendError::unavailable(store, "the tokio runtime in which it was connected is shut down")
}
