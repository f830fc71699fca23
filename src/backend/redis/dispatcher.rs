//! Batching: what is asked while calls are under way travels in the next one.
//!
//! # Design
//!
//! There is no timer and no delay. An order that finds a [lane](super::line) free is sent at once. While all lanes
//! have a call under way orders wait in line, and the first lane that is answered takes as many of them as a call
//! may name buckets. So a lone order waits for nobody, and the more are asked for, the more share a call.
//!
//! A lane is a task of its own: whoever asks may go away at any time, and disturbs neither the lane nor those who
//! travel with him. What has gone away, or is out of time, before it was sent is not sent. A call that is not
//! answered keeps its lane, so that a server which hangs is not sent ever more.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::batch::Batch;
use super::found::Found;
use super::line::{Bounds, Job, Lines};
use super::link::{Call, Link};
use super::names::{Name, Names};
use super::order::Order;
use crate::backend::{Applied, BackendError};

/// Orders of all callers, on their way.
#[derive(Clone, Debug)]
pub(super) struct Dispatcher(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    link: Link,
    runtime: Handle,
    lines: Mutex<Lines>,
    settings: Sending,
}

/// How orders are sent.
#[derive(Debug)]
pub(super) struct Sending {
    /// How long a caller waits for his answer.
    pub(super) deadline: Duration,
    /// What is under way at most.
    pub(super) bounds: Bounds,
    /// Where births are noted, if they count.
    pub(super) births: Option<Names>,
    /// What time it is for the script.
    #[cfg(test)]
    pub(super) clock: Arc<dyn crate::clock::Clock>,
}

impl Dispatcher {
    /// A dispatcher whose lanes run on this runtime.
    pub(super) fn new(link: Link, runtime: Handle, settings: Sending) -> Self {
        let lines = Mutex::default();
        Self(Arc::new(Shared { link, runtime, lines, settings }))
    }

    /// Goes on with a task of its own, whatever becomes of whoever waits for it.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = Result<T, BackendError>> + Send + 'static,
    ) -> impl Future<Output = Result<T, BackendError>> + Send + 'static {
        let task = self.0.runtime.spawn(task);
        async move { task.await.unwrap_or_else(|_| Err(shut_down())) }
    }

    /// How long a caller waits for his answer.
    pub(super) fn patience(&self) -> Duration {
        self.0.settings.deadline
    }

    /// The instant by which what is asked now has to be answered.
    pub(super) fn deadline(&self) -> Instant {
        let now = Instant::now();
        let end = now.checked_add(self.patience()).or_else(|| now.checked_add(FAR));
        end.unwrap_or(now)
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.0.link.is_cluster()
    }

    /// Carries out an order whose buckets share a slot.
    ///
    /// It is on its way when this returns, whether or not the future is awaited.
    ///
    /// # Cancel safety
    ///
    /// An order that was not sent when the future is dropped is not sent any more. One that was is carried out at
    /// most once.
    pub(super) fn send(
        &self,
        order: Order,
        deadline: Instant,
    ) -> impl Future<Output = Result<Applied, BackendError>> + Send + 'static {
        let (reply, answer) = oneshot::channel();
        let slot = self.slot(&order);
        let job = Job { order: Box::new(order), deadline, reply };
        let free = self.0.lines().push(slot, job, &self.0.settings.bounds);
        if free {
            let lane = Lane { shared: Arc::clone(&self.0), slot, over: false };
            self.0.runtime.spawn(lane.run());
        }
        let within = self.patience();
        // Whoever asks elsewhere than on a runtime of tokio goes by the timer of ours.
        let ours = Handle::try_current().is_err().then(|| self.0.runtime.clone());
        async move {
            let timed = {
                let _ours = ours.as_ref().map(Handle::enter);
                timeout_at(deadline, answer)
            };
            match timed.await {
                Ok(Ok(answer)) => answer,
                // Who is out of time leaves the line, perhaps before his timer has run.
                Ok(Err(_)) if Instant::now() < deadline => Err(shut_down()),
                Ok(Err(_)) | Err(_) => Err(BackendError::timeout("redis", within)),
            }
        }
    }

    fn slot(&self, order: &Order) -> u16 {
        match self.is_cluster() {
            true => order.names().first().map_or(0, |name| name.slot()),
            false => 0,
        }
    }
}

impl Shared {
    /// Nothing panics while it is held, but for want of memory.
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends these, and tells each what came of it.
    async fn answer(&self, jobs: Vec<Job>) {
        let Err((error, jobs)) = self.answer_together(jobs).await else { return };
        if jobs.len() > 1 && Link::is_scattered(&error) {
            // While their slot is moved, each may find its keys in one place.
            for job in jobs {
                if let Err((error, jobs)) = self.answer_together(vec![job]).await {
                    fail(jobs, &error);
                }
            }
        } else {
            fail(jobs, &error);
        }
    }

    /// Sends these in one call. If that has failed, nobody was told.
    async fn answer_together(&self, jobs: Vec<Job>) -> Result<(), (BackendError, Vec<Job>)> {
        let (places, found) = self.ask(&jobs).await;
        let mut found = match found {
            Ok(found) => found,
            Err(error) => return Err((error, jobs)),
        };
        let mut rest = places.as_slice();
        for Job { order, reply, .. } in jobs {
            let (own, others) = rest.split_at_checked(order.buckets()).unwrap_or((rest, &[]));
            rest = others;
            drop(reply.send(found.carry_out(&order, own)));
        }
        Ok(())
    }

    /// Finds the buckets of these, and which of them each one names.
    async fn ask(&self, jobs: &[Job]) -> (Vec<usize>, Result<Found, BackendError>) {
        let births = self.settings.births.as_ref();
        let batch = Batch::of(jobs.iter().map(|job| &*job.order), births.is_some());
        #[cfg(test)]
        let batch = batch.at(self.settings.clock.now());
        let buckets = batch.keys().len();
        let first = batch.keys().first();
        let birth =
            first.zip(births).map(|(first, names)| names.birth(first, self.link.is_cluster()));
        let keys: Vec<&Name> = batch.keys().iter().copied().chain(&birth).collect();
        // Those who have less time are answered by themselves.
        let last = jobs.iter().map(|job| job.deadline).max().unwrap_or_else(Instant::now);
        let call = Call::new(&keys, batch.argument(), last).read_by(Found::is_answer);
        let call = if jobs.len() > 1 { call.divisible() } else { call };
        let found = match self.link.call(call).await {
            Ok(answer) => Found::read(answer, buckets, birth.is_some()).ok_or_else(|| {
                BackendError::unavailable("redis", "the script's answer cannot be read")
            }),
            Err(error) => Err(error),
        };
        (batch.into_places(), found)
    }
}

/// Who is not there any more has no use for it.
fn fail(jobs: Vec<Job>, error: &BackendError) {
    jobs.into_iter().for_each(|job| drop(job.reply.send(Err(error.clone()))));
}

/// One of those who carry orders, mostly of one slot.
struct Lane {
    shared: Arc<Shared>,
    slot: u16,
    /// Whether it has found nobody, and has said so.
    over: bool,
}

impl Lane {
    /// Sends what waits until nobody does.
    async fn run(mut self) {
        let mut taken = self.shared.lines().take(&mut self.slot, &self.shared.settings.bounds);
        while !taken.is_empty() {
            self.shared.answer(taken).await;
            taken = self.shared.lines().take_more(&mut self.slot, &self.shared.settings.bounds);
        }
        self.over = true;
    }
}

/// A lane whose runtime is shut down leaves nobody behind: no other would come for them.
impl Drop for Lane {
    fn drop(&mut self) {
        if !self.over {
            let behind = std::mem::take(&mut *self.shared.lines());
            drop(behind);
        }
    }
}

/// For a deadline that is later than can be told.
const FAR: Duration = Duration::from_secs(365 * 86_400);

fn shut_down() -> BackendError {
    BackendError::unavailable("redis", "the tokio runtime in which it was connected is shut down")
}
