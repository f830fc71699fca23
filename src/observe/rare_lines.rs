//! Lines of the log that are written once in an interval for each limit.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::limiter::NameTable;

/// When a line about one cause was last logged. A line that is left out takes no lock and makes no
/// allocation: in a flood, that is each of them.
#[derive(Debug, Default)]
pub(super) struct RareLines {
    /// By the names of the limits, as [`now`](Self::now).
    last: NameTable<AtomicU64>,
    /// Of all limits beyond the bound.
    others: AtomicU64,
    /// The first question.
    epoch: OnceLock<Instant>,
}

/// For so many limits the last line is remembered. Limits beyond that share one place: a program that
/// makes up their names must not fill the memory.
const MAX_LIMITS: usize = 1_000;

impl RareLines {
    /// Whether a line about this limit is due: the last one was written an `interval` ago.
    pub(super) fn is_due(&self, limit: &str, interval: Duration) -> bool {
        let now = self.now();
        let last = self.last.get_or_add(limit, MAX_LIMITS, AtomicU64::default);
        let last = last.unwrap_or(&self.others);
        let before = last.load(Ordering::Relaxed);
        let is_recent = before != 0 && Duration::from_nanos(now.saturating_sub(before)) < interval;
        // Of several requests at once, one writes the line. Relaxed, as nothing else depends on it.
        let take = || last.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed);
        !is_recent && take().is_ok()
    }

    /// The nanoseconds since the first question, and one more, so that none is zero.
    fn now(&self) -> u64 {
        let elapsed = self.epoch.get_or_init(Instant::now).elapsed();
        u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX).saturating_add(1)
    }
}
