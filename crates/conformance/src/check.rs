//! A check by itself, and how it runs.

use std::fmt;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::subject::{IntoStore, START, Subject};
use tollgate::clock::ManualClock;

/// How long a check may take before the suite says that a call never got its answer.
const PATIENCE: Duration = Duration::from_secs(300);

/// The future of a check.
pub(super) type Course = Pin<Box<dyn Future<Output = ()>>>;

/// The clock that a check is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClockKind {
    /// Any clock will do.
    Any,
    /// The store reads its own clock.
    Own,
    /// The suite sets the clock.
    Set,
}

/// A check of the suite, which can be run by itself.
///
/// [`conformance!`](crate::conformance) makes a test of each. Take the checks themselves to run
/// them in another way, for instance to show that one of them finds a mistake.
///
/// # Examples
///
/// ```
/// use tollgate::backend::Memory;
/// use tollgate_conformance::Check;
///
/// let check = Check::all().find(|check| check.name() == "a_list_is_all_or_nothing").unwrap();
/// check.run_with_clock(|clock| Memory::new().clock(clock));
/// ```
pub struct Check {
    pub(super) name: &'static str,
    pub(super) clock: ClockKind,
    pub(super) course: fn(Subject) -> Course,
}

impl Check {
    /// The name of the check, which is that of its test.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it is for a store that reads its own clock, as [`run`](Self::run) has it.
    #[must_use]
    pub fn runs_with_own_clock(&self) -> bool {
        self.clock != ClockKind::Set
    }

    /// Whether it is for a store whose clock is set, as [`run_with_clock`](Self::run_with_clock)
    /// has it.
    #[must_use]
    pub fn runs_with_set_clock(&self) -> bool {
        self.clock != ClockKind::Own
    }

    /// Runs the check on the store that `connect` returns: a [`Backend`](tollgate::backend::Backend),
    /// or a future of one.
    ///
    /// # Panics
    ///
    /// If the store breaks the contract. The message says what was asked, what the contract wants,
    /// and what the store has answered. Also if the check has no end within five minutes.
    pub fn run<M, S: IntoStore<M>>(&self, connect: impl FnOnce() -> S + Send + 'static) {
        self.watch(PATIENCE, None, connect);
    }

    /// As [`run`](Self::run), for a store that reads the clock which `connect` is given.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run).
    pub fn run_with_clock<M, S: IntoStore<M>>(
        &self,
        connect: impl FnOnce(ManualClock) -> S + Send + 'static,
    ) {
        let clock = ManualClock::new(START);
        self.watch(PATIENCE, Some(clock.clone()), move || connect(clock));
    }

    /// Runs the check in a thread of its own. A store that blocks its caller for ever is reported
    /// like one whose futures never end.
    fn watch<M, S: IntoStore<M>>(
        &self,
        patience: Duration,
        clock: Option<ManualClock>,
        connect: impl FnOnce() -> S + Send + 'static,
    ) {
        let (ended, end) = mpsc::channel::<()>();
        let course = self.course;
        let thread = thread::Builder::new().name(self.name.to_owned()).spawn(move || {
            // Dropped when the check ends, also by a panic.
            let _ended = ended;
            // A store may need tokio's network or its timers.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("the system has a reactor for tokio");
            let made = {
                // Outside of a future, so that `connect` may block on one.
                let _inside = runtime.enter();
                connect()
            };
            runtime.block_on(async move {
                let store = made.into_store().await;
                course(Subject { store, clock }).await;
            });
        });
        let thread = thread.expect("the system has a thread for the check");
        if end.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Timeout) {
            panic!(
                "`{}` has not ended within {patience:?}: a call never got its answer (look for a \
                 lock that two calls take in different orders, or that a dropped call keeps)",
                self.name
            );
        }
        if let Err(panic) = thread.join() {
            resume_unwind(panic);
        }
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Check").field(&self.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use tollgate::backend::{Adjustment, Answer, Applied, Backend, BucketId, Charge};

    /// Never answers.
    #[derive(Debug)]
    struct Silent;

    impl Backend for Silent {
        fn apply(&self, _: &[Charge<'_>]) -> Answer<Applied> {
            Answer::pending(pending())
        }

        fn adjust(&self, _: &[Adjustment<'_>]) -> Answer<Applied> {
            Answer::pending(pending())
        }

        fn reset(&self, _: &[BucketId<'_>]) -> Answer<()> {
            Answer::pending(pending())
        }
    }

    /// It waits for 20 ms in vain.
    #[test]
    fn a_store_that_never_answers_is_reported() {
        let check = Check::all().next().unwrap();
        let watch = || check.watch(Duration::from_millis(20), None, || Silent);
        let panic = catch_unwind(AssertUnwindSafe(watch)).unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.contains("a call never got its answer"), "{text}");
    }
}
