//! The rules of a circuit breaker, without a clock, a lock or a future.

use std::time::Duration;

use crate::backend::error::BackendError;
use crate::clock::Timestamp;

/// Whether a [`CircuitBreaker`](super::CircuitBreaker) lets calls through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CircuitState {
    /// The store works: all calls go to it.
    Closed,
    /// The store has failed: calls fail at once until the pause is over.
    Open,
    /// The store is being tried: some calls go to it, and the others fail at once.
    HalfOpen,
}

/// How long to wait between probes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbePauses {
    pub(super) first: Duration,
    pub(super) longest: Duration,
}

/// What became of a call.
#[derive(Clone, Debug)]
pub(super) enum CallEnd {
    /// The store has answered.
    Answered,
    /// The store has failed.
    Failed(BackendError),
    /// The call tells nothing about the store: it was dropped, say.
    Unknown,
}

impl CallEnd {
    pub(super) fn of(error: Option<&BackendError>) -> Self {
        match error {
            None => Self::Answered,
            Some(error) if error.is_outage() => Self::Failed(error.clone()),
            // The server has answered with an error of its own.
            Some(error) if error.is_full() || error.is_misconfigured() => Self::Answered,
            // Decided in this process, perhaps.
            Some(_) => Self::Unknown,
        }
    }
}

/// A circuit breaker.
#[derive(Debug)]
pub(super) struct Circuit {
    failures: u32,
    pauses: ProbePauses,
    phase: CircuitPhase,
    /// Raised when the breaker opens and when it begins to probe. A call from before tells how the
    /// store was then, and is not counted any more.
    round: u64,
}

#[derive(Debug)]
enum CircuitPhase {
    Closed { failed: u32 },
    Open { until: Timestamp, pause: Duration, last: BackendError },
    HalfOpen { since: Timestamp, pause: Duration, last: BackendError, probes: Probes },
}

/// The calls that were let through on trial.
#[derive(Clone, Copy, Debug, Default)]
struct Probes {
    running: u32,
    succeeded: u32,
}

impl Probes {
    /// One at first, and twice as many after each success.
    fn has_room(self) -> bool {
        self.running < 1_u32.checked_shl(self.succeeded).unwrap_or(u32::MAX)
    }
}

/// So many probes close the breaker. At the last one, 16 calls may run at once.
const PROBES: u32 = 5;

impl Circuit {
    pub(super) const fn new(failures: u32, pauses: ProbePauses) -> Self {
        Self { failures, pauses, phase: CircuitPhase::Closed { failed: 0 }, round: 0 }
    }

    /// Lets a call through, and returns the round that it belongs to.
    ///
    /// # Errors
    ///
    /// If it must not ask the store now.
    pub(super) fn enter(&mut self, now: Timestamp) -> Result<u64, BackendError> {
        match &mut self.phase {
            CircuitPhase::Closed { .. } => return Ok(self.round),
            CircuitPhase::Open { until, pause, last } if now >= *until => {
                let (pause, last) = (*pause, last.clone());
                let probes = Probes { running: 1, succeeded: 0 };
                self.phase = CircuitPhase::HalfOpen { since: now, pause, last, probes };
                self.round = self.round.saturating_add(1);
                return Ok(self.round);
            }
            CircuitPhase::HalfOpen { probes, .. } if probes.has_room() => {
                probes.running = probes.running.saturating_add(1);
                return Ok(self.round);
            }
            // The probes have no answer for so long that they may never get one.
            CircuitPhase::HalfOpen { since, last, .. }
                if now.since(*since) > self.pauses.longest =>
            {
                let last = last.clone();
                self.open(last, now);
            }
            CircuitPhase::Open { .. } | CircuitPhase::HalfOpen { .. } => {}
        }
        Err(self.error(now))
    }

    /// Counts what became of a call of this round.
    pub(super) fn leave(&mut self, round: u64, end: CallEnd, now: Timestamp) {
        if round != self.round {
            return;
        }
        match (&mut self.phase, end) {
            (CircuitPhase::Closed { failed }, CallEnd::Answered) => *failed = 0,
            (CircuitPhase::Closed { failed }, CallEnd::Failed(error)) => {
                *failed = failed.saturating_add(1);
                if *failed >= self.failures {
                    self.open(error, now);
                }
            }
            (CircuitPhase::HalfOpen { .. }, CallEnd::Failed(error)) => self.open(error, now),
            (CircuitPhase::HalfOpen { since, probes, .. }, CallEnd::Answered) => {
                probes.running = probes.running.saturating_sub(1);
                probes.succeeded = probes.succeeded.saturating_add(1);
                *since = now;
                if probes.succeeded >= PROBES {
                    self.phase = CircuitPhase::Closed { failed: 0 };
                }
            }
            (CircuitPhase::HalfOpen { probes, .. }, CallEnd::Unknown) => {
                probes.running = probes.running.saturating_sub(1);
            }
            (CircuitPhase::Closed { .. }, CallEnd::Unknown) | (CircuitPhase::Open { .. }, _) => {}
        }
    }

    /// What the next call will find.
    pub(super) fn state(&self, now: Timestamp) -> CircuitState {
        match &self.phase {
            CircuitPhase::Closed { .. } => CircuitState::Closed,
            CircuitPhase::Open { until, .. } if now < *until => CircuitState::Open,
            CircuitPhase::Open { .. } | CircuitPhase::HalfOpen { .. } => CircuitState::HalfOpen,
        }
    }

    /// The error of a call that only a closed breaker lets through; `None` if it is closed.
    pub(super) fn open_error(&self, now: Timestamp) -> Option<BackendError> {
        match self.phase {
            CircuitPhase::Closed { .. } => None,
            CircuitPhase::Open { .. } | CircuitPhase::HalfOpen { .. } => Some(self.error(now)),
        }
    }

    /// Opens, or opens again, for twice the pause before.
    fn open(&mut self, last: BackendError, now: Timestamp) {
        let ProbePauses { first, longest } = self.pauses;
        let pause = match &self.phase {
            CircuitPhase::Closed { .. } => first,
            CircuitPhase::Open { pause, .. } | CircuitPhase::HalfOpen { pause, .. } => {
                pause.saturating_mul(2)
            }
        };
        let pause = pause.min(longest);
        self.phase = CircuitPhase::Open { until: now + pause, pause, last };
        self.round = self.round.saturating_add(1);
    }

    /// The error of a call that is not let through.
    fn error(&self, now: Timestamp) -> BackendError {
        match &self.phase {
            CircuitPhase::Open { until, last, .. } => {
                BackendError::circuit_open(until.since(now), last.clone())
            }
            CircuitPhase::HalfOpen { pause, last, .. } => {
                BackendError::circuit_open(*pause, last.clone())
            }
            // Not reached: a closed breaker lets all calls through.
            CircuitPhase::Closed { .. } => BackendError::incomplete(),
        }
    }
}
