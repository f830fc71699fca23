//! What a backend answers, and when.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use super::{BackendError, Charge};
use crate::algebra::{Charged, State, Verdict};
use crate::clock::Timestamp;

/// An answer that is there now, or will be later.
#[expect(
    clippy::exhaustive_enums,
    reason = "an answer is there or it is not; wrappers match on it"
)]
pub enum Answer<T> {
    /// The answer is known: nothing was allocated and nothing has to be awaited.
    Now(Result<T, BackendError>),
    /// The answer comes from elsewhere.
    Later(Pin<Box<dyn Future<Output = Result<T, BackendError>> + Send>>),
}

impl<T> Answer<T> {
    /// An answer that this future gives.
    pub fn later(future: impl Future<Output = Result<T, BackendError>> + Send + 'static) -> Self {
        Self::Later(Box::pin(future))
    }

    /// The answer, read by this function when it is there.
    #[must_use]
    pub fn map<U>(self, read: impl FnOnce(T) -> U + Send + 'static) -> Answer<U>
    where
        T: 'static,
    {
        match self {
            Self::Now(answer) => Answer::Now(answer.map(read)),
            Self::Later(future) => Answer::later(async move { future.await.map(read) }),
        }
    }

    /// Waits for the answer.
    ///
    /// # Errors
    ///
    /// If the backend could not decide.
    ///
    /// # Cancel safety
    ///
    /// As [`Backend`](super::Backend): the operation may take effect although nobody waits.
    pub async fn wait(self) -> Result<T, BackendError> {
        match self {
            Self::Now(answer) => answer,
            Self::Later(future) => future.await,
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(answer) => f.debug_tuple("Now").field(answer).finish(),
            Self::Later(_) => f.write_str("Later(..)"),
        }
    }
}

/// What became of a list of charges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    now: Timestamp,
    readings: List<Reading>,
}

/// What each bucket said; one alone needs no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum List<T> {
    One([T; 1]),
    Many(Vec<T>),
}

impl<T> List<T> {
    pub(super) fn as_slice(&self) -> &[T] {
        match self {
            Self::One(one) => one,
            Self::Many(many) => many,
        }
    }
}

impl Applied {
    /// The outcome of one charge.
    #[must_use]
    pub const fn one(now: Timestamp, reading: Reading) -> Self {
        Self { now, readings: List::One([reading]) }
    }

    /// The outcome of several charges, in their order.
    #[must_use]
    pub const fn many(now: Timestamp, readings: Vec<Reading>) -> Self {
        Self { now, readings: List::Many(readings) }
    }

    /// The time at which all of them were decided.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// What each bucket answered, in the order of the charges.
    #[must_use]
    pub fn readings(&self) -> &[Reading] {
        self.readings.as_slice()
    }

    /// What they came to together: refused if one was, else reserved if one was.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let mut verdict = Verdict::Admitted;
        for reading in self.readings() {
            match reading.verdict {
                Verdict::Refused => return Verdict::Refused,
                Verdict::Reserved => verdict = Verdict::Reserved,
                Verdict::Admitted => {}
            }
        }
        verdict
    }

    /// The longest wait of them all: when every bucket has what was asked of it.
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.readings().iter().map(Reading::wait).max().unwrap_or(Duration::ZERO)
    }
}

/// What one bucket answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    verdict: Verdict,
    state: State,
    wait: Duration,
}

impl Reading {
    /// A reading of `state`, with the bucket's own verdict and wait.
    #[must_use]
    pub const fn new(verdict: Verdict, state: State, wait: Duration) -> Self {
        Self { verdict, state, wait }
    }

    /// What a charge came to that is alone: whoever only looks sees the bucket as it stays.
    #[must_use]
    pub const fn of(charge: &Charge<'_>, charged: &Charged) -> Self {
        let state = if charge.takes() { charged.state() } else { charged.before() };
        Self::new(charged.verdict(), state, charged.wait())
    }

    /// What this bucket said for itself, whatever the others did.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// What the bucket holds now that all charges are taken, or none is.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// How long until this bucket has what was asked of it; zero if it had.
    #[must_use]
    pub const fn wait(&self) -> Duration {
        self.wait
    }
}
