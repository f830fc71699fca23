//! Lines of the log that are written once in an interval for each cause.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// When each cause was last logged.
#[derive(Debug, Default)]
pub(super) struct RareLines {
    /// By the cause and the name of the limit.
    last: Mutex<HashMap<(&'static str, Box<str>), Instant>>,
}

/// For so many causes and limits the last line is remembered. Limits beyond that share one place:
/// a program that makes up their names must not fill the memory.
const MAX_CAUSES: usize = 1_000;

impl RareLines {
    /// Whether a line about this cause is due: the last one was written an `interval` ago.
    pub(super) fn is_due(&self, cause: &'static str, limit: &str, interval: Duration) -> bool {
        let now = Instant::now();
        // A poisoned lock is harmless: nothing that holds it can panic halfway through a change.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = last.len() < MAX_CAUSES;
        let mut cause = (cause, Box::<str>::from(limit));
        if !has_room && !last.contains_key(&cause) {
            cause.1 = "".into();
        }
        let is_recent =
            last.get(&cause).is_some_and(|last| now.saturating_duration_since(*last) < interval);
        if !is_recent {
            last.insert(cause, now);
        }
        !is_recent
    }
}
