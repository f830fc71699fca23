//! A quota that the client knows: at most so many requests in any time of a period, however the
//! server counts them.
//!
//! The server counts a request at some time between its sending and its answer. So a request takes
//! a place from the moment it is sent until a period after its answer. While the places are as many
//! as the quota, no window of the server's can hold more: of those in it, the one that was sent
//! last would have found a place taken by each of the others.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use super::policy::later;
use crate::FOREVER;

/// One quota of one host.
#[derive(Clone)]
pub(super) struct OwnQuota {
    requests: usize,
    period: Duration,
    under_way: usize,
    /// When those were answered whose period has not passed, in order.
    answered: VecDeque<Instant>,
}

impl OwnQuota {
    /// No request can be sent by a quota of zero, so it is taken for one.
    pub(super) fn new(requests: u32, period: Duration) -> Self {
        let requests = usize::try_from(requests).unwrap_or(usize::MAX).max(1);
        Self { requests, period, under_way: 0, answered: VecDeque::new() }
    }

    /// When the next request may be sent, as far as it is known: while all places are under way,
    /// the next answer tells.
    pub(super) fn due(&mut self, now: Instant) -> Instant {
        while self.answered.front().is_some_and(|answered| self.end(*answered) <= now) {
            self.answered.pop_front();
        }
        let taken = self.under_way.saturating_add(self.answered.len());
        match self.answered.front() {
            _ if taken < self.requests => now,
            Some(answered) => self.end(*answered),
            None => later(now, FOREVER),
        }
    }

    /// A server that counts in whole milliseconds may count the ends of a period in.
    fn end(&self, answered: Instant) -> Instant {
        later(answered, self.period.saturating_add(Duration::from_millis(1)))
    }

    pub(super) fn take(&mut self) {
        self.under_way = self.under_way.saturating_add(1);
    }

    /// A request was not sent.
    pub(super) fn give_back(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// A request was answered, or the client no longer waits for its answer.
    pub(super) fn end_one(&mut self, now: Instant) {
        self.give_back();
        self.answered.push_back(now);
    }
}

impl fmt::Debug for OwnQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {:?}", self.requests, self.period)
    }
}
