//! A store that is shared with other processes, as far as the limiter can tell, and what came back
//! to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate::algebra::{Bucket, check_history};
use tollgate::backend::{Adjustment, Answer, Applied, Backend, BucketId, Charge, Memory};
use tollgate::clock::{Clock, TokioClock};
use tollgate::{Quota, RateLimiter, Timestamp};

/// A memory store that the limiter does not know as one. It answers at once.
#[derive(Clone, Debug)]
pub struct Shared {
    memory: Arc<Memory>,
    clock: TokioClock,
    /// How often it was asked to give something back.
    adjusted: Arc<AtomicU64>,
}

impl Shared {
    /// On the clock of the runtime.
    pub fn new() -> Self {
        let clock = TokioClock::new();
        let memory = Arc::new(Memory::new().clock(clock));
        Self { memory, clock, adjusted: Arc::default() }
    }

    /// The time of the store.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// How often it was asked to give something back since this was last read.
    pub fn take_adjusted(&self) -> u64 {
        self.adjusted.swap(0, Ordering::Relaxed)
    }

    /// A limiter like that of another process.
    pub fn limiter(&self) -> RateLimiter {
        RateLimiter::new(self.clone())
    }
}

impl Backend for Shared {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        self.memory.apply(charges)
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        self.adjusted.fetch_add(1, Ordering::Relaxed);
        self.memory.adjust(adjustments)
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.memory.reset(ids)
    }
}

/// The work that ran on one bucket, and the tokens that were returned to it.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// When it was reserved, when it ran, its cost.
    pub ran: Vec<(Timestamp, Timestamp, u64)>,
    /// The cancelled reservations: when, and the promised instant.
    pub left: Vec<(Timestamp, Timestamp)>,
    /// The tokens that were returned, and when.
    pub returned: Vec<(Timestamp, u64)>,
}

/// Which returns the bound of a window counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// Those within the window: the bound that every limit promises.
    Within,
    /// The returns since requests began to wait without a break up to the window: the promise of a
    /// store that other processes only charge.
    WhileWaiting,
    /// All returns before the end of the window: the promise if other processes settle as well.
    Before,
}

impl History {
    /// The largest number of tokens by which the work that ran exceeds the bound.
    ///
    /// Instants are compared with so much leeway: this process and a store count time apart.
    pub fn excess(&self, quota: &Quota, counts: Counts, leeway: Duration) -> u64 {
        let bucket = Bucket::new(quota).unwrap();
        let mut ran = self.ran.clone();
        ran.sort_unstable_by_key(|&(_, at, _)| at);
        let mut worst = 0;
        for (nth, &(_, from, _)) in ran.iter().enumerate() {
            let (mut used, mut largest, mut first) = (0, 0, from);
            for &(reserved, to, cost) in &ran[nth..] {
                used += cost * bucket.token();
                largest = largest.max(cost * bucket.token());
                match counts {
                    Counts::Within => {}
                    Counts::WhileWaiting => first = first.min(self.waiting_since(reserved)),
                    Counts::Before => first = Timestamp::UNIX_EPOCH,
                }
                let steps = u64::try_from(to.since(from).as_micros()).unwrap() / bucket.step() + 1;
                let since = Timestamp::from_micros(
                    first.as_micros() - i64::try_from(leeway.as_micros()).unwrap(),
                );
                let returned =
                    self.returned.iter().filter(|&&(at, _)| since <= at && at <= to + leeway);
                let returned = returned.map(|&(_, tokens)| tokens * bucket.token()).sum::<u64>();
                let capacity = bucket.capacity().unsigned_abs();
                let bound = capacity.max(largest) + steps * bucket.gain() + returned;
                worst = worst.max(used.saturating_sub(bound));
            }
        }
        if self.returned.is_empty() {
            let runs: Vec<_> = self.ran.iter().map(|&(_, at, cost)| (at, cost)).collect();
            assert_eq!(worst > 0, check_history(quota, &runs).unwrap().is_some(), "{self:?}");
        }
        worst.div_ceil(bucket.token())
    }

    /// The time since which at least one request has waited, up to `at`.
    fn waiting_since(&self, at: Timestamp) -> Timestamp {
        let waits = || {
            let ran = self.ran.iter().map(|&(came, ran, _)| (came, ran));
            ran.chain(self.left.iter().copied())
        };
        let mut since = at;
        while let Some((before, _)) = waits().filter(|w| w.0 < since && since <= w.1).min() {
            since = before;
        }
        since
    }
}
