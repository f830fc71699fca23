//! One limit of a server, as far as its answers show it: how much is surely left, and when the next
//! request is due.
//!
//! The fields do not say whether a limit is a token bucket or a fixed window. So tokens count only
//! where both would have them:
//!
//! * After an answer, as many as it shows, less all requests that the server may have counted
//!   since.
//! * When its reset comes, as many as a bucket would have gained by then. A fixed window has them
//!   as well, since a new window begins then. Until the next answer, requests are sent no faster
//!   than the rate.

use std::time::Duration;

use tokio::time::Instant;

use crate::{FOREVER, LimitReading};

/// When an answer came, and to what.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerTimes {
    /// When the request was sent. The server has decided between this and `came`.
    pub(super) sent: Instant,
    pub(super) came: Instant,
    /// The other requests that the server may have counted after this one: all that were not
    /// answered yet when this one was sent.
    pub(super) others: u64,
    /// Counts the answers that named limits.
    pub(super) serial: u64,
    pub(super) is_refused: bool,
}

#[derive(Clone, Debug)]
pub(super) struct ServerLimit {
    name: Box<str>,
    quota: u64,
    /// The time in which the quota refills, if the server tells it.
    window: Option<Duration>,
    /// The tokens that are surely left.
    level: u64,
    /// The time for which `level` is true; a bucket has gained tokens since.
    since: Instant,
    /// When there are more tokens.
    reset: Instant,
    /// The last time that tokens came by `reset`, and not by an answer.
    stepped: Instant,
    /// What `level` was then.
    level_at_reset: u64,
    /// When the server may have begun a new window. An answer to a request that was sent before may
    /// be about the window before, so it can raise `level`, and neither lower it nor move `reset`.
    renewed: Instant,
    /// Whether an answer has shown what came at `stepped`.
    is_proven: bool,
    /// Whether the server has refused a request that was sent just after a reset: it rounds the
    /// time to the reset down.
    rounds_down: bool,
    /// When the last request was sent.
    spent: Instant,
    /// The serial number of the last answer that named this limit.
    named: u64,
}

impl ServerLimit {
    pub(super) fn new(reading: &LimitReading, answer: &AnswerTimes) -> Self {
        let now = answer.came;
        let mut limit = Self {
            name: reading.name().into(),
            quota: 1,
            window: None,
            level: 0,
            since: now,
            reset: now,
            stepped: answer.sent,
            renewed: answer.sent,
            level_at_reset: 0,
            is_proven: true,
            rounds_down: false,
            spent: answer.sent,
            named: answer.serial,
        };
        limit.learn_quota(reading);
        limit.level = reading.remaining().saturating_sub(answer.others);
        limit.reset = limit.end(reading, now);
        limit
    }

    pub(super) fn is_of(&self, reading: &LimitReading) -> bool {
        *self.name == *reading.name()
    }

    /// Whether its reset has passed, and the last answer that named limits did not name it.
    pub(super) fn is_forgotten(&self, now: Instant, serial: u64) -> bool {
        self.reset <= now && self.named < serial
    }

    /// Whether nothing was left at this instant, and the reset has not come since.
    pub(super) fn is_exhausted_since(&self, sent: Instant) -> bool {
        self.level == 0 && self.since <= sent
    }

    /// The serial number of the last answer that named this limit.
    pub(super) const fn named(&self) -> u64 {
        self.named
    }

    /// Learns from an answer. It may be older than answers that have come before.
    pub(super) fn learn(&mut self, reading: &LimitReading, answer: &AnswerTimes) {
        self.learn_quota(reading);
        self.named = self.named.max(answer.serial);
        let now = answer.came;
        let is_current = answer.sent >= self.renewed;
        // Refused within a second after the reset, for another second.
        self.rounds_down |= answer.is_refused
            && is_current
            && !self.is_proven
            && reading.remaining() == 0
            && answer.sent.saturating_duration_since(self.stepped) < SECOND
            && reading.reset().is_some_and(|reset| reset <= SECOND);
        let end = self.end(reading, now);
        let least = reading.remaining().saturating_sub(answer.others);
        if least > self.level {
            (self.level, self.since) = (least, now);
            if is_current {
                // The server may have begun a new window, with a later end.
                (self.reset, self.renewed) = (end, now);
            }
        } else if is_current {
            // Others may use the limit as well. A bucket may have gained tokens since it counted.
            let gained = self.gain(now.saturating_duration_since(answer.sent));
            let most = reading.remaining().saturating_add(gained);
            if most < self.level {
                (self.level, self.since) = (most, now);
            }
            // Answers round it up to whole seconds, so the earliest is the most exact.
            self.reset = if self.is_proven { self.reset.min(end) } else { end };
            if !self.is_proven && self.level_at_reset == self.quota {
                // A full bucket gains nothing until the server counts the next request.
                self.since = now;
            }
        }
        self.is_proven |= is_current;
    }

    fn learn_quota(&mut self, reading: &LimitReading) {
        let known = if reading.quota().is_none() { self.quota } else { 1 };
        self.quota = reading.quota().unwrap_or(known).max(known).max(reading.remaining());
        self.window = reading.window().or(self.window);
        self.level = self.level.min(self.quota);
    }

    fn end(&self, reading: &LimitReading, now: Instant) -> Instant {
        let reset = reading.reset().or(self.window).unwrap_or(SECOND);
        let is_whole = self.rounds_down && reset.subsec_nanos() == 0;
        later(now, if is_whole { reset.saturating_add(SECOND) } else { reset })
    }

    /// The tokens that a bucket gains in this time.
    fn gain(&self, elapsed: Duration) -> u64 {
        let Some(window) = self.window else { return 0 };
        let tokens = elapsed.as_nanos().saturating_mul(u128::from(self.quota));
        let tokens = tokens.checked_div(window.as_nanos()).unwrap_or(0);
        u64::try_from(tokens).unwrap_or(u64::MAX).min(self.quota)
    }

    /// The time between two requests at the rate of the limit.
    fn spacing(&self) -> Duration {
        let nanos = self.window.unwrap_or_default().as_nanos().div_ceil(u128::from(self.quota));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).min(FOREVER)
    }

    /// Adds what has come at the reset, if that has passed.
    pub(super) fn refresh(&mut self, now: Instant) {
        if now < self.reset {
            return;
        }
        // The server has named this time, so there is at least one, whatever the rate says.
        let gained = self.gain(now.saturating_duration_since(self.since)).max(1);
        self.level = self.level.saturating_add(gained).min(self.quota);
        (self.since, self.stepped, self.renewed, self.is_proven) = (now, now, now, false);
        self.level_at_reset = self.level;
        // Answers come before that, unless they take longer than the window. Requests on their way
        // may be faster or slower than the last ones, so there is a margin.
        let window = self.window.unwrap_or(SECOND).min(FOREVER);
        self.reset = later(now, window.saturating_add(window / 8));
    }

    /// When the next request may be sent, if `headroom` tokens are left to others: at once while
    /// more than an eighth of the quota is left. The rest is spread over the time to the reset.
    pub(super) fn due(&self, headroom: u64) -> Instant {
        let headroom = headroom.min(self.quota.saturating_sub(1));
        let spare = self.level.saturating_sub(headroom);
        if spare == 0 {
            return self.reset;
        }
        if self.spent < self.stepped {
            return self.stepped;
        }
        if !self.is_proven {
            return later(self.spent, self.spacing()).min(self.reset);
        }
        let is_large = spare > self.quota.saturating_sub(headroom) / 8;
        if is_large {
            return self.spent;
        }
        let left = self.reset.saturating_duration_since(self.spent);
        let parts = u32::try_from(spare.saturating_add(1)).unwrap_or(u32::MAX);
        later(self.spent, left.checked_div(parts).unwrap_or_default())
    }

    pub(super) fn take(&mut self, now: Instant) {
        self.level = self.level.saturating_sub(1);
        self.spent = now;
    }

    pub(super) fn give_back(&mut self) {
        self.level = self.level.saturating_add(1).min(self.quota);
    }
}

/// An instant after this one.
pub(super) fn later(from: Instant, wait: Duration) -> Instant {
    // A year from now does not overflow on any system; if it did, the wait would be none.
    from.checked_add(wait.min(FOREVER)).unwrap_or(from)
}

/// The unit in which most servers tell times, and when a limit that tells no reset is tried again.
const SECOND: Duration = Duration::from_secs(1);
