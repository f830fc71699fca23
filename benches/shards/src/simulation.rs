//! Limits in shards beside one without, fed with the same requests.

use tollgate::backend::Memory;
use tollgate::clock::ManualClock;
use tollgate::{Limit, Quota, RateLimiter, SECOND, Timestamp};

use crate::arrivals::Arrivals;
use crate::ask::at_once;

/// Tokens that a limit gains in a second. Only its ratio to the load and the capacity matters.
pub const RATE: u64 = 1_000;

/// Some time in 2023.
const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// What is fed to the limits.
#[derive(Clone, Copy)]
pub struct Load {
    /// Requests for each token that is gained.
    pub load: f64,
    /// Tokens saved up at most, by all shards together.
    pub capacity: u64,
    pub seed: u64,
    /// Requests that are not counted: buckets are full at first.
    pub ahead: usize,
    pub counted: usize,
}

/// What became of the requests that were counted.
#[derive(Clone, Copy, Default)]
pub struct Outcome {
    pub requests: u64,
    /// Refused by the limit without shards.
    pub refused_whole: u64,
    pub refused: u64,
    /// Refused, where the limit without shards has admitted.
    pub early: u64,
}

impl Outcome {
    /// In parts of all requests.
    pub fn early_part(self) -> f64 {
        self.early as f64 / self.requests as f64
    }

    /// How many more are refused than without shards, in parts of all requests.
    pub fn lost_part(self) -> f64 {
        (self.refused as f64 - self.refused_whole as f64) / self.requests as f64
    }

    pub fn refused_whole_part(self) -> f64 {
        self.refused_whole as f64 / self.requests as f64
    }

    pub fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            refused_whole: self.refused_whole + other.refused_whole,
            refused: self.refused + other.refused,
            early: self.early + other.early,
        }
    }
}

/// Asks for a token at each arrival, of a limit without shards and of one for each number of
/// shards.
pub fn simulate(load: Load, shards: &[u32]) -> Vec<Outcome> {
    let Load { load, capacity, seed, ahead, counted } = load;
    let clock = ManualClock::new(START);
    let limiter = RateLimiter::new(Memory::new().clock(clock.clone())).seed(seed);
    let quota = Quota::token_bucket(RATE, SECOND).capacity(capacity);
    let limit = |shards| Limit::new("hot", quota.shards(shards));
    let whole = limit(1);
    let limits: Vec<_> = shards.iter().map(|&shards| limit(shards)).collect();
    // Of one name, and told apart by the key.
    let ask = |limit: &Limit| {
        let call = limiter.limit(limit).key(u64::from(limit.quota().get_shards()));
        match at_once(call) {
            Ok(_permit) => true,
            Err(error) if error.is_refused() => false,
            Err(error) => panic!("no decision: {error}"),
        }
    };

    let mut outcomes = vec![Outcome::default(); limits.len()];
    let arrivals = Arrivals::new(seed, load * RATE as f64).take(ahead + counted);
    for (nth, at) in arrivals.enumerate() {
        clock.set(START + at);
        let by_whole = ask(&whole);
        for (limit, outcome) in limits.iter().zip(&mut outcomes) {
            let admitted = ask(limit);
            if nth >= ahead {
                outcome.requests += 1;
                outcome.refused_whole += u64::from(!by_whole);
                outcome.refused += u64::from(!admitted);
                outcome.early += u64::from(by_whole && !admitted);
            }
        }
    }
    outcomes
}
