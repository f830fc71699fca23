//! Requests in the order of their times: servers write a line when a request ends, and some with the
//! time at which it began.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use tollgate::Timestamp;

use super::log::Fault;
use super::spool::Request;

/// How much earlier than a line before it a line may be.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);
/// Requests that are kept at most, 40 bytes each; in a log with more in a window, it is shorter.
const MAX_PENDING: usize = 1 << 19;

#[derive(Debug, Default)]
pub(crate) struct Order {
    /// With the number of the line, as requests of one time keep their order.
    pending: BinaryHeap<Reverse<(Timestamp, u64, u64, u32)>>,
    newest: Option<Timestamp>,
    last: Option<Timestamp>,
    /// Lines that came too late. They count at the time of the last request, as a limiter's clock does
    /// not go back.
    pub(crate) early: Option<Fault>,
}

impl Order {
    pub(crate) fn push(&mut self, (mut at, cost, key): Request, line: u64) {
        self.newest = self.newest.max(Some(at));
        if let Some(last) = self.last.filter(|last| at < *last) {
            Fault::count(&mut self.early, line, || format!("{at} is before {last}"));
            at = last;
        }
        self.pending.push(Reverse((at, line, cost, key)));
    }

    /// The next request that no later line can come before; at the end of the log, the next one.
    pub(crate) fn pop(&mut self, is_end: bool) -> Option<Request> {
        let Reverse((at, ..)) = *self.pending.peek()?;
        let is_full = self.pending.len() > MAX_PENDING;
        let is_next = is_end || is_full || self.newest.is_some_and(|newest| at + WINDOW < newest);
        if !is_next {
            return None;
        }
        let Reverse((at, _, cost, key)) = self.pending.pop()?;
        self.last = Some(at);
        Some((at, cost, key))
    }
}
