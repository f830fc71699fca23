//! Requests in the order of their times: servers write a line when a request ends, and some with the
//! time at which it began.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use tollgate::Timestamp;

use super::line::Entry;
use super::log::Fault;

/// How much earlier than a line before it a line may be.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);
/// Bytes that are kept at most. In a log with more in a window, the window is shorter.
pub(crate) const MAX_PENDING: usize = 64 << 20;

/// A time, the number of a line, as requests of one time keep their order, a cost and a key.
type Pending = (Timestamp, u64, u64, Box<str>);

#[derive(Debug, Default)]
pub(crate) struct Order {
    pending: BinaryHeap<Reverse<Pending>>,
    bytes: usize,
    newest: Option<Timestamp>,
    last: Option<Timestamp>,
    /// Lines that came too late. They count at the time of the last request, as a limiter's clock does
    /// not go back.
    pub(crate) early: Option<Fault>,
}

impl Order {
    pub(crate) fn push(&mut self, entry: Entry<'_>, line: u64) {
        let Entry { mut at, key, cost } = entry;
        self.newest = self.newest.max(Some(at));
        if let Some(last) = self.last.filter(|last| at < *last) {
            Fault::count(&mut self.early, line, || format!("{at} is before {last}"));
            at = last;
        }
        self.bytes += size(&key);
        self.pending.push(Reverse((at, line, cost, key.into())));
    }

    /// The next request that no later line can come before; at the end of the log, the next one.
    pub(crate) fn pop(&mut self, is_end: bool) -> Option<Entry<'static>> {
        let Reverse((at, ..)) = self.pending.peek()?;
        let is_full = self.bytes > MAX_PENDING;
        let is_next = is_end || is_full || self.newest.is_some_and(|newest| *at + WINDOW < newest);
        if !is_next {
            return None;
        }
        let Reverse((at, _, cost, key)) = self.pending.pop()?;
        self.bytes -= size(&key);
        self.last = Some(at);
        Some(Entry { at, key: String::from(key).into(), cost })
    }
}

/// A request in memory: its row and its key.
fn size(key: &str) -> usize {
    size_of::<Pending>() + key.len()
}
