//! The same calls of a limiter in memory and in Redis have the same answers.
//!
//! Over a store that answers later, the limiter undoes and hands on what is given up in background
//! tasks. So each such step is followed by a wait until nothing changes any more. All times are
//! whole minutes, or long fractions of them, so it does not depend on the speed of the machine
//! which slots are still to come.

use std::time::Duration;

use tollgate_testing::cases::seeds;

use super::calls::{CallTarget, FollowUp, Holding, Step, follow_up, run_step, settled};
use super::{Dice, START, Server, on};
use tollgate::backend::{Adjustment, Answer, Applied, Backend, BucketId, Charge, Memory};
use tollgate::clock::{Clock, ManualClock, Timestamp};
use tollgate::{Limit, MINUTE, Quota, RateLimiter};

const NAMES: [&str; 5] = ["bucket", "window", "shards", "window-shards", "late"];

/// A quota in which each token takes whole minutes.
fn quota(dice: &mut Dice, name: &str) -> Quota {
    loop {
        let rate = 1 + dice.below(5);
        let shards = if name.ends_with("shards") { 2 + dice.below(3) } else { 1 };
        let each = if shards > 1 { 3 << 12 } else { 1 + dice.below(20) };
        let period = MINUTE * u32::try_from(rate * each).unwrap();
        let mut quota = match name.starts_with("window") {
            // The windows of the limit in shards start at any instant, by the hash of its name.
            true if shards > 1 => Quota::fixed_window(rate, period),
            true => Quota::fixed_window(rate, period).start(START),
            false => Quota::token_bucket(rate, period),
        };
        quota = quota.capacity(dice.below(9)).shards(u32::try_from(shards).unwrap());
        if dice.one_in(2) {
            quota = quota.max_reserved(dice.below(16));
        }
        if name == "late" {
            quota = quota.initial(dice.below(quota.get_capacity() + 1));
        }
        if let Ok(quota) = quota.validated() {
            return quota;
        }
    }
}

/// A memory store that answers later, so the limiter treats it like a store that other processes
/// share.
#[derive(Debug)]
struct DelayedMemory(Memory);

fn later<T: Send + 'static>(answer: Answer<T>) -> Answer<T> {
    Answer::pending(answer.wait())
}

impl Backend for DelayedMemory {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        later(self.0.apply(charges))
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        later(self.0.adjust(adjustments))
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        later(self.0.reset(ids))
    }
}

struct History {
    dice: Dice,
    limits: Vec<Limit>,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let limits = NAMES.map(|name| Limit::try_new(name, quota(&mut dice, name)).unwrap());
        Self { dice, limits: limits.to_vec() }
    }

    fn draw_target(&mut self) -> CallTarget {
        let limit = usize::try_from(self.dice.below(NAMES.len() as u64)).unwrap();
        let cost = match self.dice.below(8) {
            0..=2 => None,
            3 => Some(0),
            4 => Some(self.dice.up_to(1 << 53)),
            _ => Some(1 + self.dice.below(5)),
        };
        CallTarget { limit, key: usize::from(self.dice.one_in(2)), cost }
    }

    fn step(&mut self) -> Step {
        if self.dice.one_in(60) {
            let nth = usize::try_from(self.dice.below(NAMES.len() as u64)).unwrap();
            let quota = quota(&mut self.dice, NAMES[nth]);
            self.limits[nth] = Limit::try_new(NAMES[nth], quota).unwrap();
        }
        match self.dice.below(40) {
            0 => Step::Reset(self.draw_target()),
            1 => Step::Penalize(self.draw_target()),
            2 => Step::Block(
                self.draw_target(),
                MINUTE * u32::try_from(self.dice.below(90)).unwrap(),
            ),
            3..=9 => Step::Peek(self.draw_target()),
            _ => {
                let count = if self.dice.one_in(4) { 2 + self.dice.below(3) } else { 1 };
                let wait = match self.dice.below(4) {
                    0 | 1 => Some(Duration::MAX),
                    2 => Some(MINUTE * u32::try_from(self.dice.below(200)).unwrap()),
                    _ => None,
                };
                Step::Take((0..count).map(|_| self.draw_target()).collect(), wait)
            }
        }
    }

    fn next(&mut self) -> FollowUp {
        match self.dice.below(8) {
            0..=2 => FollowUp::Drop,
            3 => FollowUp::Keep,
            4 => FollowUp::Refund,
            5 => FollowUp::Settle(self.dice.below(8)),
            _ => FollowUp::StandInLine,
        }
    }
}

/// How often each thing has happened.
#[derive(Debug, Default)]
struct Count {
    calls: usize,
    /// Reservations with an instant that was still to come.
    reserved: usize,
    in_line: usize,
    given_up: usize,
    /// Reservations that were given up, and had their tokens at once.
    given_back: usize,
}

/// Both limiters, and the permits and reservations of each, in pairs.
struct LimiterPair {
    limiters: [RateLimiter; 2],
    held: Vec<[Holding; 2]>,
    count: Count,
}

impl LimiterPair {
    async fn run_step(&mut self, limits: &[Limit], step: &Step) {
        let [here, there] = &self.limiters;
        let (told, held) = run_step(here, limits, step).await;
        let (told_there, held_there) = run_step(there, limits, step).await;
        assert_eq!(told, told_there, "{step:?} of {limits:?}");
        self.count.calls += 1;
        self.count.reserved += usize::from(held.waits());
        if !matches!(held, Holding::Nothing) {
            self.held.push([held, held_there]);
        }
    }

    async fn follow_up(&mut self, limits: &[Limit], nth: usize, next: FollowUp) {
        let [here, there] = self.held.swap_remove(nth);
        let (frees, waits) = (!matches!(here, Holding::Permit(_)), here.waits());
        let (told, held) = follow_up(here, next).await;
        let (told_there, held_there) = follow_up(there, next).await;
        assert_eq!(told, told_there, "{next:?} of {limits:?}");
        self.count.calls += 1;
        self.count.in_line += usize::from(matches!(held, Holding::InLine(_)));
        if frees {
            let [here, there] = &self.limiters;
            assert_eq!(
                settled(here, limits).await,
                settled(there, limits).await,
                "{next:?} of {limits:?}"
            );
            let is_over = matches!(held, Holding::Nothing);
            self.count.given_up += usize::from(is_over && waits);
            self.count.given_back += usize::from(is_over && !waits);
        }
        if !matches!(held, Holding::Nothing) {
            self.held.push([held, held_there]);
        }
    }

    /// No waiter may be in a queue while time goes on, because its timer would decide.
    async fn leave_queues(&mut self, limits: &[Limit]) {
        while let Some(nth) =
            self.held.iter().position(|[here, _]| matches!(here, Holding::InLine(_)))
        {
            self.follow_up(limits, nth, FollowUp::Drop).await;
        }
    }
}

async fn play(server: &Server, seed: u64, steps: usize) -> Count {
    let clock = ManualClock::new(START);
    let redis = on(server, &clock).prefix(format!("l{seed}")).connect().await.unwrap();
    let memory = DelayedMemory(Memory::new().clock(clock.clone()).keep_full());
    let limiters = [RateLimiter::new(memory).seed(seed), RateLimiter::new(redis).seed(seed)];
    let mut both = LimiterPair { limiters, held: Vec::new(), count: Count::default() };
    let mut history = History::new(seed);
    for _ in 0..steps {
        if history.dice.one_in(6) {
            both.leave_queues(&history.limits).await;
            let by = i64::try_from(history.dice.up_to(200)).unwrap();
            let by = if history.dice.one_in(10) { -by } else { by };
            let now = clock.now().as_micros() + by * 60_000_000;
            clock.set(Timestamp::from_micros(now));
        }
        let step = history.step();
        both.run_step(&history.limits, &step).await;
        if both.held.len() > 12 || (!both.held.is_empty() && history.dice.one_in(3)) {
            let nth = usize::try_from(history.dice.below(both.held.len() as u64)).unwrap();
            let next = history.next();
            both.follow_up(&history.limits, nth, next).await;
        }
    }
    both.count
}

#[tokio::test]
async fn memory_and_redis_answer_calls_of_a_limiter_alike() {
    let server = Server::start();
    let mut all = Count::default();
    let seeds = seeds(8);
    for seed in seeds.clone() {
        let count = play(&server, seed, 200).await;
        all.calls += count.calls;
        all.reserved += count.reserved;
        all.in_line += count.in_line;
        all.given_up += count.given_up;
        all.given_back += count.given_back;
    }
    // Each of these comes in every history, if seldom.
    let least = |each: u64| usize::try_from(each * seeds.end).unwrap();
    assert!(all.calls >= least(300), "{all:?}");
    assert!(all.reserved >= least(15) && all.given_up >= least(7), "{all:?}");
    assert!(all.in_line >= least(3) && all.given_back >= least(7), "{all:?}");
}
