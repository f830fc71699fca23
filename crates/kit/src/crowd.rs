//! The callers that wait for a store.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// The callers that wait for answers of a store. If they are many, each is late by the work for the
/// others, and one late answer tells nothing about the store.
///
/// Each caller has a clone as long as it waits, so the clones are counted.
#[derive(Clone, Debug)]
pub struct Crowd(Arc<CrowdState>);

#[derive(Debug)]
struct CrowdState {
    /// So many are no crowd.
    few: usize,
    /// When they were last more.
    seen_at: Mutex<Option<Instant>>,
}

impl Crowd {
    /// A crowd is more than a `few`.
    pub fn more_than(few: usize) -> Self {
        Self(Arc::new(CrowdState { few, seen_at: Mutex::default() }))
    }

    /// One more caller, that comes now.
    pub fn join(&self, now: Instant) -> Self {
        let caller = self.clone();
        // The first clone is that of the store.
        if Arc::strong_count(&self.0).saturating_sub(1) > self.0.few {
            *self.seen_at() = Some(now);
        }
        caller
    }

    /// Whether there was a crowd since `then`.
    pub fn was_there_since(&self, then: Instant) -> bool {
        self.seen_at().is_some_and(|at| at >= then)
    }

    /// A poisoned lock is harmless: it guards one value.
    fn seen_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.seen_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn callers_are_a_crowd_while_more_than_a_few_wait() {
        let crowd = Crowd::more_than(2);
        let begun = Instant::now();
        let at = |second| begun + Duration::from_secs(second);
        let mut waiting: Vec<_> = (0..2).map(|nth| crowd.join(at(nth))).collect();
        assert!(!crowd.was_there_since(begun));
        waiting.push(crowd.join(at(2)));
        assert!(waiting[0].was_there_since(at(2)) && !crowd.was_there_since(at(3)));
        // Callers that have their answers do not count.
        waiting.truncate(1);
        waiting.push(crowd.join(at(4)));
        assert!(!crowd.was_there_since(at(3)));
    }
}
