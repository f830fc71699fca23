//! Requests that wait while the store is saved: their process is gone, and their tokens stay taken.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate_testing::cases::seeds;
use tollgate_testing::dice::Dice;
use tollgate_testing::queue::{ms, reserve, settled};
use tollgate_testing::{START, at_once, is_admitted, store};

use super::dump_of;
use tokio::task::JoinHandle;
use tollgate::algebra::check_history_with_returns;
use tollgate::backend::Memory;
use tollgate::clock::{Clock, ManualClock, TokioClock};
use tollgate::{Limit, Permit, Quota, RateLimiter, SECOND, Timestamp};

static JOBS: Limit =
    Limit::new("jobs", Quota::token_bucket(1, SECOND).capacity(5).max_reserved(20));

fn loaded(memory: &Memory, clock: &ManualClock) -> RateLimiter {
    let loaded = Memory::new().max_keys(100).load(dump_of(memory).as_slice()).unwrap();
    store(loaded, clock).1
}

fn wait_of(limiter: &RateLimiter, cost: u64) -> Option<Duration> {
    at_once(limiter.peek(&JOBS).cost(cost)).unwrap().wait()
}

#[test]
fn a_newcomer_waits_as_long_as_behind_the_waiters_that_are_gone() {
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new().max_keys(100), &clock);
    assert!(is_admitted(limiter.limit(&JOBS).cost(5)));
    let waiters = [reserve(&limiter, &JOBS, 4), reserve(&limiter, &JOBS, 3)];
    let next = loaded(&memory, &clock);
    for cost in 0..5 {
        assert_eq!(wait_of(&next, cost), wait_of(&limiter, cost));
    }
    assert_eq!(wait_of(&next, 1), Some(8 * SECOND));
    // In the store that goes on, a waiter that leaves gives its tokens back. The other store never
    // hears of it.
    drop(waiters);
    assert_eq!(wait_of(&limiter, 1), Some(SECOND));
    assert_eq!(wait_of(&next, 1), Some(8 * SECOND));
    clock.advance(8 * SECOND);
    assert!(is_admitted(next.limit(&JOBS)));
}

/// Drained before the save, waiters give all back.
#[test]
fn what_drained_waiters_give_back_is_in_the_dump() {
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new().max_keys(100), &clock);
    assert!(is_admitted(limiter.limit(&JOBS).cost(5)));
    let waiter = reserve(&limiter, &JOBS, 4);
    limiter.drain(Duration::ZERO);
    drop(waiter);
    assert_eq!(wait_of(&loaded(&memory, &clock), 1), Some(SECOND));
}

/// A process that takes, waits, leaves and settles, in whole milliseconds.
struct Process {
    limiter: RateLimiter,
    clock: TokioClock,
    waiters: Vec<JoinHandle<()>>,
    record: Arc<Mutex<Record>>,
}

#[derive(Debug, Default)]
struct Record {
    ran: Vec<(Timestamp, u64)>,
    returned: Vec<(Timestamp, u64)>,
    /// The work that runs, with what it has paid.
    permits: Vec<(Permit<'static>, u64)>,
}

impl Record {
    fn run(&mut self, permit: Permit<'static>, cost: u64, now: Timestamp) {
        self.ran.push((now, cost));
        self.permits.push((permit, cost));
    }
}

impl Process {
    fn new(limiter: RateLimiter, clock: TokioClock) -> Self {
        Self { limiter, clock, waiters: Vec::new(), record: Arc::default() }
    }

    async fn step(&mut self, dice: &mut Dice, limit: &Limit) {
        let (clock, record) = (self.clock, Arc::clone(&self.record));
        let cost = 1 + dice.below(4);
        match dice.below(8) {
            0..=2 => {
                if let Ok(permit) = at_once(self.limiter.limit(limit).cost(cost)) {
                    record.lock().unwrap().run(permit.into_owned(), cost, clock.now());
                }
            }
            3..=5 => {
                if let Ok(reservation) = at_once(self.limiter.limit(limit).cost(cost).reserve()) {
                    self.waiters.push(tokio::spawn(async move {
                        let permit = reservation.ready().await;
                        record.lock().unwrap().run(permit, cost, clock.now());
                    }));
                }
            }
            6 if !self.waiters.is_empty() => {
                let nth = dice.nth(&self.waiters);
                self.waiters.remove(nth).abort();
            }
            _ => {
                let mut record = record.lock().unwrap();
                if !record.permits.is_empty() {
                    let nth = dice.nth(&record.permits);
                    let (permit, cost) = record.permits.remove(nth);
                    let used = dice.below(cost + 1);
                    at_once(permit.settle(used)).unwrap();
                    record.returned.push((clock.now(), cost - used));
                }
            }
        }
        settled().await;
        tokio::time::sleep(ms(dice.below(700))).await;
        settled().await;
    }

    /// The process is killed. Its work does not give anything back.
    fn end(self) -> Record {
        self.waiters.iter().for_each(JoinHandle::abort);
        std::mem::take(&mut self.record.lock().unwrap())
    }
}

/// The waiters of the first process never run. What ran in both processes is within the bound.
#[tokio::test(start_paused = true)]
async fn a_store_that_was_saved_with_waiters_grants_no_more_than_the_limit() {
    let mut waited = 0;
    for seed in seeds(60) {
        let (clock, mut dice) = (TokioClock::new(), Dice(seed));
        let steps = Quota::fixed_window(3, SECOND).max_reserved(20).start(clock.now());
        let limit =
            [JOBS.clone(), Limit::try_new("steps", steps).unwrap()][dice.nth(&[0, 1])].clone();
        let memory = Arc::new(Memory::new().max_keys(100).clock(clock));
        let mut first = Process::new(RateLimiter::new(Arc::clone(&memory)), clock);
        for _ in 0..dice.below(60) {
            first.step(&mut dice, &limit).await;
        }
        waited += first.limiter.peek(&limit).waiting();
        let dump = dump_of(&memory);
        let mut ended = first.end();
        let next = Memory::new().max_keys(100).load(dump.as_slice()).unwrap().clock(clock);
        let mut second = Process::new(RateLimiter::new(next), clock);
        for _ in 0..60 {
            second.step(&mut dice, &limit).await;
        }
        let mut more = second.end();
        ended.ran.append(&mut more.ran);
        ended.returned.append(&mut more.returned);
        let Record { ran, returned, .. } = ended;
        let violation = check_history_with_returns(limit.quota(), &ran, &returned).unwrap();
        assert_eq!(violation, None, "seed {seed}, {}", limit.name());
    }
    assert!(waited > 10, "{waited} requests waited when their process was saved");
}
