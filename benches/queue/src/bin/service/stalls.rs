//! How long the program's only thread was held up, by its own work or by other programs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

const EVERY: Duration = Duration::from_millis(5);

/// Measures stalls: every instant of a scenario may be that much late.
pub struct Stalls {
    longest_nanos: Arc<AtomicU64>,
}

impl Stalls {
    /// Starts a task that sleeps again and again, and sees how late it wakes.
    pub fn watch() -> Self {
        let longest_nanos = Arc::new(AtomicU64::new(0));
        let longest = Arc::clone(&longest_nanos);
        tokio::spawn(async move {
            loop {
                let start = Instant::now();
                sleep(EVERY).await;
                let late = start.elapsed().saturating_sub(EVERY).as_nanos();
                longest.fetch_max(u64::try_from(late).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        });
        Self { longest_nanos }
    }

    /// The longest since the last call.
    pub fn take(&self) -> Duration {
        Duration::from_nanos(self.longest_nanos.swap(0, Ordering::Relaxed))
    }
}
