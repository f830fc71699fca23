//! Background work of which one piece is under way at a time.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::error::LinkError;

/// A task that connects or reads, for all calls that wait for its result.
///
/// The owner notes under its own lock that work is under way, so it starts no second piece. The
/// note must not outlive the work, or no call would ever start it again. [`Completion`] makes sure
/// of that.
#[derive(Debug, Default)]
pub(super) struct SingleFlight(Mutex<Option<AbortHandle>>);

impl SingleFlight {
    /// Runs `work` in a task of its own, and calls `settle` with its result.
    ///
    /// The task goes on when the calls that wait for it give up; it is aborted when `self` is
    /// dropped. `settle` is called exactly once, also where no runtime can run the task.
    pub(super) fn start<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, LinkError>> + Send + 'static,
        settle: impl FnOnce(Result<T, LinkError>) + Send + 'static,
    ) {
        let completion = Completion(Some(Box::new(settle)));
        let Ok(runtime) = Handle::try_current() else {
            return completion.complete(Err(LinkError::new("there is no tokio runtime here")));
        };
        // The completion is part of the task: if the task is dropped at any point, `settle` still
        // runs.
        let task = runtime.spawn(async move { completion.complete(work.await) });
        // A poisoned lock is harmless: it guards one handle.
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // What this replaces has ended, since the owner starts no second piece before.
        *last = Some(task.abort_handle());
    }
}

impl Drop for SingleFlight {
    fn drop(&mut self) {
        let task = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task.take() {
            task.abort();
        }
    }
}

type ResultHandler<T> = Box<dyn FnOnce(Result<T, LinkError>) + Send>;

/// Passes on the result of the work. Work that is dropped, as by a runtime that shuts down, counts
/// as failed.
struct Completion<T>(Option<ResultHandler<T>>);

impl<T> Completion<T> {
    fn complete(mut self, result: Result<T, LinkError>) {
        if let Some(settle) = self.0.take() {
            settle(result);
        }
    }
}

impl<T> Drop for Completion<T> {
    fn drop(&mut self) {
        // After `complete` there is nothing left to call.
        if let Some(settle) = self.0.take() {
            settle(Err(LinkError::new("the tokio runtime has ended")));
        }
    }
}

impl<T> fmt::Debug for Completion<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Completion")
    }
}
