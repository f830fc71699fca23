//! One host: its limits, the requests that it has not answered yet, and the line of those that
//! wait.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use super::policy::{AnswerTimes, ServerLimit, later};
use super::reading::{self, MAX_LIMITS};
use crate::fields::read_retry_after;

#[derive(Debug, Default)]
pub(super) struct Host {
    state: Mutex<HostState>,
}

#[derive(Debug, Default)]
struct HostState {
    limits: Vec<ServerLimit>,
    /// No request is sent before, since the host has asked for that.
    paused: Option<Instant>,
    /// Whether an answer has shown what limits there are, if any.
    is_known: bool,
    /// While the host is not known, one request goes alone, and the others wait until then.
    trial: Option<Instant>,
    sent: u64,
    /// Those of `sent` that were answered, have failed or were dropped.
    answered: u64,
    /// The answers that named limits.
    serial: u64,
    next_ticket: u64,
    /// The requests that wait, in order.
    line: BTreeMap<u64, Waker>,
}

impl Host {
    /// Sends at once if no request waits and one is due.
    pub(super) fn enter(self: &Arc<Self>, now: Instant, headroom: u64) -> Option<Turn> {
        let mut state = self.lock();
        if !state.line.is_empty() || state.due(now, headroom) > now {
            return None;
        }
        Some(state.take(self, now))
    }

    /// Joins the line at its end.
    pub(super) fn wait(self: &Arc<Self>) -> Place {
        let mut state = self.lock();
        let ticket = state.next_ticket;
        state.next_ticket = ticket.wrapping_add(1);
        state.line.insert(ticket, Waker::noop().clone());
        Place { host: Arc::clone(self), ticket }
    }

    fn lock(&self) -> MutexGuard<'_, HostState> {
        // The state is true after each statement, so a panic in between does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HostState {
    /// When the next request may be sent; `now` if it may be sent at once.
    fn due(&mut self, now: Instant, headroom: u64) -> Instant {
        if let Some(end) = self.paused {
            if now < end {
                return end;
            }
            // What a pause was for is not known, so one request goes first.
            (self.paused, self.is_known, self.trial) = (None, false, None);
        }
        if let Some(end) = self.trial.filter(|end| !self.is_known && now < *end) {
            return end;
        }
        self.limits.retain(|limit| !limit.is_forgotten(now, self.serial));
        self.limits.iter_mut().for_each(|limit| limit.refresh(now));
        let due = self.limits.iter().map(|limit| limit.due(headroom)).max();
        due.map_or(now, |due| due.max(now))
    }

    fn take(&mut self, host: &Arc<Host>, now: Instant) -> Turn {
        if !self.is_known {
            self.trial = Some(later(now, TRIAL));
        }
        self.limits.iter_mut().for_each(|limit| limit.take(now));
        self.sent = self.sent.saturating_add(1);
        Turn {
            host: Arc::clone(host),
            sent: now,
            answered_before: self.answered,
            is_under_way: false,
            is_over: false,
        }
    }

    fn first(&self) -> Option<Waker> {
        self.line.values().next().cloned()
    }
}

/// A place in the line. Dropping it gives it up.
#[derive(Debug)]
pub(super) struct Place {
    host: Arc<Host>,
    ticket: u64,
}

impl Place {
    /// Returns the turn if it has come, or if the request can wait no longer. Otherwise, returns
    /// when to ask again; the waker is woken if that changes.
    pub(super) fn turn(
        &self,
        waker: &Waker,
        now: Instant,
        deadline: Instant,
        headroom: u64,
    ) -> Result<Turn, Instant> {
        let mut state = self.host.lock();
        let is_first = state.line.keys().next() == Some(&self.ticket);
        let due = if is_first { state.due(now, headroom) } else { deadline };
        // A request that would have to wait for too long goes at once: the server answers it.
        let is_due = due <= now || (is_first && due > deadline) || deadline <= now;
        if is_due {
            return Ok(state.take(&self.host, now));
        }
        if let Some(known) = state.line.get_mut(&self.ticket) {
            known.clone_from(waker);
        }
        Err(due.min(deadline))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.host.lock();
        state.line.remove(&self.ticket);
        let first = state.first();
        drop(state);
        first.iter().for_each(Waker::wake_by_ref);
    }
}

/// A request that may be sent or was sent. Dropping it without an answer gives back its tokens, if
/// it was not sent.
#[derive(Debug)]
pub(super) struct Turn {
    host: Arc<Host>,
    sent: Instant,
    answered_before: u64,
    is_under_way: bool,
    is_over: bool,
}

impl Turn {
    /// From now on, the server may have counted the request.
    pub(super) const fn send(&mut self) {
        self.is_under_way = true;
    }

    /// Learns from the answer.
    pub(super) fn finish(mut self, status: StatusCode, headers: &HeaderMap) {
        let now = Instant::now();
        let readings = reading::read(headers);
        let is_refused =
            matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let pause = is_refused.then(|| read_retry_after(headers)).flatten();
        self.is_over = true;
        let mut state = self.host.lock();
        state.answered = state.answered.saturating_add(1);
        (state.is_known, state.trial) = (true, None);
        if let Some(pause) = pause {
            state.paused = state.paused.max(Some(later(now, pause)));
        }
        if !readings.is_empty() {
            state.serial = state.serial.saturating_add(1);
        }
        let counted = self.answered_before.saturating_add(1);
        let answer = AnswerTimes {
            sent: self.sent,
            came: now,
            others: state.sent.saturating_sub(counted),
            serial: state.serial,
        };
        for reading in &readings {
            if let Some(limit) = state.limits.iter_mut().find(|limit| limit.is_of(reading)) {
                limit.refresh(now);
                limit.learn(reading, &answer);
            } else if state.limits.len() < MAX_LIMITS {
                state.limits.push(ServerLimit::new(reading, &answer));
            }
        }
        let first = state.first();
        drop(state);
        first.iter().for_each(Waker::wake_by_ref);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut state = self.host.lock();
        state.answered = state.answered.saturating_add(1);
        if !self.is_under_way {
            state.limits.iter_mut().for_each(ServerLimit::give_back);
        }
        // If it went alone, the next one does.
        state.trial = None;
        let first = state.first();
        drop(state);
        first.iter().for_each(Waker::wake_by_ref);
    }
}

/// How long the others wait for the first answer of a host.
const TRIAL: Duration = Duration::from_secs(1);
