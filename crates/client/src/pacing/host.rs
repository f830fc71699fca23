//! One host: its limits, the requests that it has not answered yet, and the line of those that
//! wait.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use http::Response;
use tokio::time::Instant;

use super::policy::{AnswerTimes, ServerLimit, later};
use super::quota::OwnQuota;
use super::settings::PacingSettings;
use crate::{LimitReading, MAX_LIMITS, Reading, RefusalScope};

#[derive(Debug)]
pub(super) struct Host {
    /// That of the first request: several kinds of requests may go to one host.
    name: String,
    /// Of all kinds of requests to the host of this name.
    pause_of_all: Arc<Mutex<Option<Pause>>>,
    state: Mutex<HostState>,
}

#[derive(Debug, Default)]
struct HostState {
    limits: Vec<ServerLimit>,
    /// The client's own.
    quotas: Vec<OwnQuota>,
    /// No request is sent meanwhile, since the host has asked for that.
    paused: Option<Pause>,
    /// Whether an answer has shown what limits there are, if any.
    is_known: bool,
    /// While the host is not known, one request goes alone, and the others wait until then.
    trial: Option<Instant>,
    /// When a request was last sent at once since it would have had to wait for too long.
    probed: Option<Instant>,
    sent: u64,
    /// Those of `sent` that were answered, have failed or were dropped.
    answered: u64,
    /// The answers that named limits.
    serial: u64,
    next_ticket: u64,
    /// The requests that wait, in order. One that has left its turn to others is not in the line
    /// until it is polled again.
    line: BTreeMap<u64, Waker>,
    /// Since when the first in the line could have taken its turn, as far as another has seen it.
    left: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Pause {
    from: Instant,
    until: Instant,
}

impl Pause {
    /// The later end, if the host has asked twice.
    fn or_later(self, other: Option<Self>) -> Self {
        Self { until: other.map_or(self.until, |other| other.until.max(self.until)), ..self }
    }

    /// This pause, unless a request that was sent at this instant disproves it.
    fn unless_disproved(self, sent: Instant) -> Option<Self> {
        Some(self).filter(|pause| sent < pause.from)
    }
}

impl Host {
    pub(super) fn new(
        name: String,
        pause_of_all: Arc<Mutex<Option<Pause>>>,
        quotas: Vec<OwnQuota>,
    ) -> Self {
        let state = Mutex::new(HostState { quotas, ..HostState::default() });
        Self { name, pause_of_all, state }
    }

    /// Sends at once if no request waits and one is due.
    pub(super) fn enter(
        self: &Arc<Self>,
        now: Instant,
        settings: &Arc<PacingSettings>,
    ) -> Option<Turn> {
        let mut state = self.lock();
        let is_due = |state: &mut HostState| {
            state.own_due(now) <= now && self.due(state, now, settings.headroom) <= now
        };
        if !state.line.is_empty() || !is_due(&mut state) {
            return None;
        }
        Some(state.take(self, settings, now, now))
    }

    /// Joins the line at its end.
    pub(super) fn wait(self: &Arc<Self>, settings: &Arc<PacingSettings>) -> Place {
        let mut state = self.lock();
        let ticket = state.next_ticket;
        state.next_ticket = ticket.wrapping_add(1);
        state.line.insert(ticket, Waker::noop().clone());
        Place { host: Arc::clone(self), settings: Arc::clone(settings), ticket }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn pause_of_all(&self) -> Arc<Mutex<Option<Pause>>> {
        Arc::clone(&self.pause_of_all)
    }

    /// When the server lets the next request go; `now` or before if at once.
    fn due(&self, state: &mut HostState, now: Instant, headroom: u64) -> Instant {
        let of_all = self.lock_pause().map_or(now, |pause| pause.until);
        state.due(now, headroom).max(of_all)
    }

    fn lock_pause(&self) -> MutexGuard<'_, Option<Pause>> {
        self.pause_of_all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, HostState> {
        // The state is true after each statement, so a panic in between does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HostState {
    /// When the next request may be sent; `now` if it may be sent at once.
    fn due(&mut self, now: Instant, headroom: u64) -> Instant {
        if let Some(pause) = self.paused {
            if now < pause.until {
                return pause.until;
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

    /// When the client's own quotas let the next request go; `now` if at once.
    fn own_due(&mut self, now: Instant) -> Instant {
        self.quotas.iter_mut().map(|quota| quota.due(now)).max().unwrap_or(now)
    }

    /// Whether the first in the line may be sent though the server would let it wait for too long.
    fn may_probe(&self, now: Instant, max_wait: Duration) -> bool {
        self.probed.is_none_or(|probed| later(probed, max_wait) <= now)
    }

    /// Sends a request that was due at this instant.
    fn take(
        &mut self,
        host: &Arc<Host>,
        settings: &Arc<PacingSettings>,
        now: Instant,
        due: Instant,
    ) -> Turn {
        if !self.is_known {
            self.trial = Some(later(now, TRIAL));
        }
        if now < due {
            self.probed = Some(now);
        }
        self.limits.iter_mut().for_each(|limit| limit.take(now));
        self.quotas.iter_mut().for_each(OwnQuota::take);
        self.left = None;
        self.sent = self.sent.saturating_add(1);
        Turn {
            host: Arc::clone(host),
            settings: Arc::clone(settings),
            sent: now,
            is_early: now < due,
            answered_before: self.answered,
            is_under_way: false,
            is_over: false,
        }
    }

    /// Learns that a request was admitted which was sent at this instant, though it was not due. So
    /// what the host had said before, or a proxy for it, does not hold: it may be years away.
    fn disprove(&mut self, sent: Instant, named: &[LimitReading]) {
        self.paused = self.paused.and_then(|pause| pause.unless_disproved(sent));
        self.limits.retain(|limit| {
            named.iter().any(|reading| limit.is_of(reading)) || !limit.is_exhausted_since(sent)
        });
    }

    /// Whether one more limit is remembered. If there are too many, that one is forgotten for it
    /// which the host has not named for longest.
    fn has_room(&mut self) -> bool {
        if self.limits.len() < MAX_LIMITS {
            return true;
        }
        let all = self.limits.iter().enumerate();
        let oldest = all.map(|(at, limit)| (limit.named(), at)).min();
        let Some((_, at)) = oldest.filter(|(named, _)| *named < self.serial) else { return false };
        self.limits.swap_remove(at);
        true
    }

    /// Those to wake after a change: the first takes its turn, and the second looks after it.
    fn first_two(&mut self) -> [Option<Waker>; 2] {
        self.left = None;
        let mut line = self.line.values();
        [line.next().cloned(), line.next().cloned()]
    }

    /// Takes the first out of the line if it has left its turn for too long, and returns it and
    /// those to wake then. Otherwise, returns when that will be.
    fn overtake(&mut self, now: Instant) -> Result<(Option<Waker>, [Option<Waker>; 2]), Instant> {
        let end = later(*self.left.get_or_insert(now), PATIENCE);
        if now < end {
            return Err(end);
        }
        let overtaken = self.line.pop_first().map(|(_, waker)| waker);
        Ok((overtaken, self.first_two()))
    }

    /// How long a request that is neither first nor second waits until it looks at the line again.
    fn look(&self) -> Duration {
        let requests = u32::try_from(self.line.len()).unwrap_or(u32::MAX);
        PATIENCE.saturating_mul(requests).max(LOOK)
    }

    /// Where a request stands in the line: 0, 1, or 2 for all behind.
    fn place(&self, ticket: u64) -> usize {
        self.line.keys().take(2).position(|other| *other == ticket).unwrap_or(2)
    }
}

/// Wakes these, without the lock.
fn wake(wakers: [Option<Waker>; 2]) {
    wakers.into_iter().flatten().for_each(Waker::wake);
}

/// A place in the line. Dropping it gives it up.
#[derive(Debug)]
pub(super) struct Place {
    host: Arc<Host>,
    settings: Arc<PacingSettings>,
    ticket: u64,
}

impl Place {
    /// Its number, by which requests are in order.
    pub(super) const fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Returns the turn if it has come, or if the request can wait no longer. Otherwise, returns
    /// when to ask again; the waker is woken if that changes.
    pub(super) fn turn(
        &self,
        waker: &Waker,
        now: Instant,
        deadline: Instant,
    ) -> Result<Turn, Instant> {
        let PacingSettings { headroom, max_wait, .. } = *self.settings;
        // What is dropped with a waker may be a future that leaves this line, so no waker is dropped
        // under the lock.
        let _replaced;
        let mut state = self.host.lock();
        _replaced = state.line.insert(self.ticket, waker.clone());
        let (own, server) = (state.own_due(now), self.host.due(&mut state, now, headroom));
        let place = state.place(self.ticket);
        // A request that would have to wait for too long goes at once: the server answers it.
        let is_probe = || server > deadline && state.may_probe(now, max_wait);
        if own <= now && (deadline <= now || (place == 0 && (server <= now || is_probe()))) {
            return Ok(state.take(&self.host, &self.settings, now, server));
        }
        let due = own.max(server);
        // No request waits so long that it breaks the client's own quota.
        let deadline = deadline.max(own);
        // A future that is not polled any more must not hold up the line.
        let look = match place {
            0 => due,
            _ if due <= now => match state.overtake(now) {
                Ok((overtaken, first)) => {
                    drop(state);
                    drop(overtaken);
                    wake(first);
                    later(now, PATIENCE)
                }
                Err(until) => until,
            },
            1 => later(due, PATIENCE),
            _ => later(now, state.look().max(due.saturating_duration_since(now).min(FAR_LOOK))),
        };
        Err(look.min(deadline))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.host.lock();
        let left = state.line.remove(&self.ticket);
        let first = state.first_two();
        drop(state);
        drop(left);
        wake(first);
    }
}

/// A request that may be sent or was sent. Dropping it without an answer gives back its tokens, if
/// it was not sent.
#[derive(Debug)]
pub(super) struct Turn {
    host: Arc<Host>,
    settings: Arc<PacingSettings>,
    sent: Instant,
    /// Whether it was sent although it was not due, since it could wait no longer.
    is_early: bool,
    answered_before: u64,
    is_under_way: bool,
    is_over: bool,
}

impl Turn {
    /// From now on, the server may have counted the request.
    pub(super) const fn send(&mut self) {
        self.is_under_way = true;
    }

    /// The place to return to, if the host has asked for a pause since the turn has come.
    pub(super) fn stopped(&self, ticket: u64, now: Instant) -> Option<Place> {
        let mut state = self.host.lock();
        let is_new = |pause: Pause| self.sent <= pause.from && now < pause.until;
        let is_stopped =
            state.paused.is_some_and(is_new) || self.host.lock_pause().is_some_and(is_new);
        if self.is_early || !is_stopped {
            return None;
        }
        state.line.insert(ticket, Waker::noop().clone());
        let (host, settings) = (Arc::clone(&self.host), Arc::clone(&self.settings));
        Some(Place { host, settings, ticket })
    }

    /// Learns from the answer.
    pub(super) fn finish<R>(mut self, response: &mut Response<R>) {
        let (now, status) = (Instant::now(), response.status());
        let reading = self.settings.reader.read(response.headers(), status);
        self.settings.told.tell(response, &reading, &self.host.name);
        let pause = pause(&reading, status.is_client_error(), now);
        let readings = reading.limits();
        self.is_over = true;
        let mut state = self.host.lock();
        state.answered = state.answered.saturating_add(1);
        (state.is_known, state.trial) = (true, None);
        state.quotas.iter_mut().for_each(|quota| quota.end_one(now));
        if let Some(pause) = pause {
            state.paused = Some(pause.or_later(state.paused));
            if reading.scope() == RefusalScope::Host {
                let mut of_all = self.host.lock_pause();
                *of_all = Some(pause.or_later(*of_all));
            }
        }
        if self.is_early && !status.is_client_error() && !status.is_server_error() {
            state.disprove(self.sent, readings);
            let mut of_all = self.host.lock_pause();
            *of_all = of_all.and_then(|pause| pause.unless_disproved(self.sent));
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
            is_refused: reading.is_refused(),
        };
        for reading in readings {
            if let Some(limit) = state.limits.iter_mut().find(|limit| limit.is_of(reading)) {
                limit.refresh(now);
                limit.learn(reading, &answer);
            } else if state.has_room() {
                state.limits.push(ServerLimit::new(reading, &answer));
            }
        }
        let first = state.first_two();
        drop(state);
        wake(first);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut state = self.host.lock();
        state.answered = state.answered.saturating_add(1);
        if self.is_under_way {
            let now = Instant::now();
            state.quotas.iter_mut().for_each(|quota| quota.end_one(now));
        } else {
            state.limits.iter_mut().for_each(ServerLimit::give_back);
            state.quotas.iter_mut().for_each(OwnQuota::give_back);
        }
        // If it went alone, the next one does.
        state.trial = None;
        let first = state.first_two();
        drop(state);
        wake(first);
    }
}

/// The pause of other requests to the host that this answer asks for.
fn pause(reading: &Reading, is_client_error: bool, from: Instant) -> Option<Pause> {
    if !reading.is_refused() || reading.scope() == RefusalScope::Resource {
        return None;
    }
    // A server that refuses and tells no wait is asked again by one request, after a second.
    let wait = reading.retry_after().or_else(|| is_client_error.then_some(TRIAL))?;
    Some(Pause { from, until: later(from, wait) })
}

/// How long the first in the line may leave its turn, which it does if the machine is busy.
const PATIENCE: Duration = Duration::from_millis(10);
/// The shortest time after which a request further behind looks whether those before it take their
/// turns. In a long line the time is longer, so that all together look 100 times a second at most.
const LOOK: Duration = Duration::from_secs(1);
/// The longest such time, which a line has that is hours away from its turn.
const FAR_LOOK: Duration = Duration::from_secs(60);
/// How long the others wait for the first answer of a host.
const TRIAL: Duration = Duration::from_secs(1);
