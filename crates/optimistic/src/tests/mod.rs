//! The engine over a map in memory, which can fail, hesitate, and be faster than its callers.

mod ahead;
mod apart;
mod cancellation;
mod conflicts;
mod conformance;
mod contract;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::task::yield_now;

use super::{Optimistic, Swap, SwapScan, SwapStore};
use tollgate::backend::{BackendError, BucketId};
use tollgate::clock::{Clock, ManualClock, Timestamp};
use tollgate::{Key, Limit};
use tollgate_conformance::dice::Dice;

/// A map that swaps several values in one step, or only one.
#[derive(Debug, Default)]
pub(super) struct CasMap<const SEVERAL: bool> {
    pub(super) state: Mutex<CasState>,
    pub(super) loads: AtomicU64,
    pub(super) swaps: AtomicU64,
    /// A clock of its own, by which values expire.
    pub(super) clock: Option<ManualClock>,
    /// Whether callers are told the time of that clock.
    pub(super) tells_time: bool,
    /// Whether each call hesitates before and after its step.
    pub(super) hesitates: bool,
}

#[derive(Debug, Default)]
pub(super) struct CasState {
    pub(super) values: HashMap<String, (Vec<u8>, Option<Timestamp>)>,
    /// Draws what goes wrong; nothing does without it.
    pub(super) faults: Option<Faults>,
}

/// What goes wrong in a swap: nothing in most cases, or each of these in one of so many.
#[derive(Debug)]
pub(super) struct Faults {
    pub(super) dice: Dice,
    pub(super) conflict: u64,
    pub(super) failure: u64,
    /// Whether the last failure came after the swap.
    pub(super) is_made: bool,
}

impl<const SEVERAL: bool> CasMap<SEVERAL> {
    pub(super) fn counts(&self) -> [u64; 2] {
        [&self.loads, &self.swaps].map(|count| count.load(Ordering::Relaxed))
    }

    async fn hesitate(&self) {
        if self.hesitates {
            yield_now().await;
        }
    }

    async fn step(&self, swaps: &[Swap<'_>]) -> Result<bool, BackendError> {
        self.swaps.fetch_add(1, Ordering::Relaxed);
        self.hesitate().await;
        let answer = self.step_now(swaps);
        self.hesitate().await;
        answer
    }

    fn step_now(&self, swaps: &[Swap<'_>]) -> Result<bool, BackendError> {
        let mut state = self.state.lock().unwrap();
        let CasState { values, faults } = &mut *state;
        let mut fails = false;
        if let Some(faults) = faults.as_mut().filter(|_| swaps.iter().any(Swap::changes)) {
            if faults.dice.one_in(faults.conflict) {
                return Ok(false);
            }
            fails = faults.dice.one_in(faults.failure);
            faults.is_made = fails && faults.dice.one_in(2);
            if fails && !faults.is_made {
                return Err(BackendError::unavailable("map", "it fell over"));
            }
        }
        let now = self.clock.as_ref().map(Clock::now);
        let get = |key: &str| {
            let (value, at) = values.get(key)?;
            let is_there = at.is_none_or(|at| now.is_none_or(|now| now < at));
            is_there.then_some(value.as_slice())
        };
        if swaps.iter().any(|swap| get(swap.key()) != swap.old()) {
            return Ok(false);
        }
        for swap in swaps {
            match swap.new_value() {
                Some(value) if swap.changes() => {
                    values.insert(swap.key().to_owned(), (value.to_owned(), swap.full_at()));
                }
                Some(_) => {}
                None => drop(values.remove(swap.key())),
            }
        }
        if fails { Err(BackendError::unavailable("map", "its answer was lost")) } else { Ok(true) }
    }
}

impl<const SEVERAL: bool> SwapStore for CasMap<SEVERAL> {
    const NAME: &'static str = "map";
    const SWAPS_SEVERAL: bool = SEVERAL;

    async fn load(&self, key: &str) -> Result<Option<Vec<u8>>, BackendError> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        self.hesitate().await;
        let now = self.clock.as_ref().map(Clock::now);
        let value = self.state.lock().unwrap().values.get(key).cloned();
        self.hesitate().await;
        let value = value.filter(|(_, at)| at.is_none_or(|at| now.is_none_or(|now| now < at)));
        Ok(value.map(|(value, _)| value))
    }

    async fn swap(&self, swap: &Swap<'_>) -> Result<bool, BackendError> {
        self.step(std::slice::from_ref(swap)).await
    }

    async fn swap_all(&self, swaps: &[Swap<'_>]) -> Result<bool, BackendError> {
        assert!(SEVERAL, "it was not asked to");
        self.step(swaps).await
    }

    async fn scan(
        &self,
        first: &str,
        behind: &str,
        max: usize,
    ) -> Result<Option<SwapScan>, BackendError> {
        self.hesitate().await;
        let state = self.state.lock().unwrap();
        let values = state.values.iter().filter(|(key, _)| (first..behind).contains(&key.as_str()));
        let mut found: Vec<_> =
            values.map(|(key, (value, _))| (key.clone(), value.clone())).collect();
        found.sort_unstable();
        found.truncate(max);
        // Only a map that swaps several values can go through its keys.
        Ok(SEVERAL.then_some(found))
    }

    fn now(&self) -> Option<Timestamp> {
        self.clock.as_ref().filter(|_| self.tells_time).map(Clock::now)
    }
}

/// The name of a bucket in the map.
pub(super) fn name(limit: &Limit, key: &Key) -> String {
    let name = tollgate_kit::stored::bucket_name(BucketId::new(limit.name(), key));
    name.as_str().to_owned()
}

/// A store on a map.
pub(super) fn on<const SEVERAL: bool>(
    map: CasMap<SEVERAL>,
) -> (Arc<CasMap<SEVERAL>>, Optimistic<Arc<CasMap<SEVERAL>>>) {
    let map = Arc::new(map);
    (Arc::clone(&map), Optimistic::new(map))
}

/// The error of the store behind that of a call.
#[track_caller]
pub(super) fn backend_error(error: &tollgate::RateLimited) -> BackendError {
    let source = std::error::Error::source(error).expect("a source");
    source.downcast_ref::<BackendError>().expect("an error of the store").clone()
}
