//! Random histories in the queue of the memory store, and in a model of it.
//!
//! The same requests, departures, settlements and penalties go through both. Both have to promise
//! each request the same instant, and to grant it at the same instant; the buckets have to hold the
//! same in the end. Time is that of a paused runtime, with no timers but those of the queue.

mod attacks;
mod model;
mod plans;
mod rules;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use model::ModelBucket;
use tokio::runtime::Builder;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep_until};
use tollgate::backend::Memory;
use tollgate::clock::{Clock, TokioClock};
use tollgate::limiter::{LimitCall, Permit, Reservation};
use tollgate::{Limit, Quota, RateLimiter};
use tollgate_testing::cases::seeds;
use tollgate_testing::dice::Dice;
use tollgate_testing::queue::{Turn, ms, poll};
use tollgate_testing::{at_once, is_admitted};

/// How a request waits.
enum Waits {
    /// In a task of its own, which runs the work.
    Task(JoinHandle<()>),
    /// It was not polled yet.
    Reserved(Reservation),
    /// It was polled, and is polled again only if the history says so.
    Polled(Turn),
    /// It has left, or its work has run.
    Gone,
}

struct Request {
    /// The cost in each of its buckets.
    costs: BTreeMap<usize, u64>,
    promised: i64,
    /// The buckets that have granted it, in the model.
    granted: Vec<usize>,
    /// The granted buckets that were reset since.
    forgiven: Vec<usize>,
    /// The latest instant of a grant.
    granted_at: i64,
    /// Whether its reservation was kept, so that no request waits for it.
    is_kept: bool,
    waits: Waits,
}

/// The permits of the tasks that run their work.
type Running = Arc<Mutex<Vec<(usize, Permit<'static>)>>>;

struct History {
    dice: Dice,
    start: Instant,
    clock: TokioClock,
    now: u64,
    limiter: RateLimiter,
    limits: Vec<Limit>,
    buckets: Vec<ModelBucket>,
    requests: Vec<Request>,
    running: Running,
    /// What is to be settled: when, which request, and at how many tokens.
    open: Vec<(u64, usize, u64, Permit<'static>)>,
    /// Whether buckets are reset now and then.
    has_resets: bool,
}

#[derive(Debug, Default)]
struct Counts {
    requests: usize,
    left: usize,
    settled: usize,
    moved: usize,
}

impl History {
    fn new(seed: u64) -> Self {
        let (mut dice, start) = (Dice(seed), Instant::now());
        let clock = TokioClock::new();
        let anchor = clock.now();
        let (mut limits, mut buckets) = (Vec::new(), Vec::new());
        for number in 0..=dice.below(3) {
            let (gain, capacity) = (1 + dice.below(5), dice.below(13));
            let step = [3, 10, 25][dice.nth(&[3, 10, 25])];
            let quota = match dice.below(2) {
                0 => Quota::token_bucket(gain, ms(1)),
                _ => Quota::fixed_window(gain, ms(step)).start(anchor),
            };
            let limit = Limit::new(["a", "b", "c"][number as usize], quota.capacity(capacity));
            buckets.push(ModelBucket::new(limit.bucket(), anchor.as_micros()));
            limits.push(limit);
        }
        let limiter = RateLimiter::new(Memory::new().clock(clock));
        let (requests, running, open) = Default::default();
        let (now, has_resets) = (0, seed % 2 == 1);
        Self {
            dice,
            start,
            clock,
            now,
            limiter,
            limits,
            buckets,
            requests,
            running,
            open,
            has_resets,
        }
    }

    fn micros(&self) -> i64 {
        self.clock.now().as_micros()
    }

    /// Advances the model to now, and compares which requests run.
    async fn settle_down(&mut self) {
        let now = self.micros();
        for (number, bucket) in self.buckets.iter_mut().enumerate() {
            for (id, at) in bucket.pass_until(now) {
                let Some(request) = id.and_then(|id| self.requests.get_mut(id)) else {
                    continue;
                };
                request.granted.push(number);
                request.granted_at = request.granted_at.max(at);
            }
        }
        for _ in 0..3 {
            yield_now().await;
        }
        let running = std::mem::take(&mut *self.running.lock().unwrap());
        for (id, permit) in running {
            self.check(id, &permit);
            self.requests[id].waits = Waits::Gone;
            self.work(id, permit);
        }
        for (id, request) in self.requests.iter().enumerate() {
            let is_granted = request.granted.len() == request.costs.len();
            let still_waits = matches!(request.waits, Waits::Task(_));
            assert!(!(is_granted && still_waits), "request {id} was granted, and still waits");
        }
    }

    /// Checks that a running request was granted in the model, and at the same instant.
    fn check(&self, id: usize, permit: &Permit<'_>) {
        let request = &self.requests[id];
        assert_eq!(request.granted.len(), request.costs.len(), "request {id} runs too early");
        assert_eq!(permit.at().as_micros(), request.granted_at, "request {id}");
        assert!(request.granted_at <= request.promised, "request {id} runs later than promised");
    }

    /// Plans to settle some of the work later, at less than it has paid or at more.
    fn work(&mut self, id: usize, permit: Permit<'static>) {
        if self.dice.below(10) < 6 {
            let most = self.requests[id].costs.values().max().copied().unwrap_or(0);
            let (delay, actual) =
                ([0, 1, 7, 30][self.dice.nth(&[0; 4])], self.dice.below(most + 2));
            self.open.push((self.now + delay, id, actual, permit));
        }
    }

    async fn pass(&mut self, time: u64, counts: &mut Counts) {
        let until = self.now + time;
        loop {
            let next = self.open.iter().map(|(at, ..)| *at).min().unwrap_or(u64::MAX).max(self.now);
            self.now = next.min(until);
            sleep_until(self.start + ms(self.now)).await;
            self.settle_down().await;
            if next > until {
                return;
            }
            let Some(nth) = self.open.iter().position(|(at, ..)| *at <= self.now) else { continue };
            let (_, id, actual, permit) = self.open.remove(nth);
            counts.settled += 1;
            self.settle(id, actual, permit);
            self.settle_down().await;
        }
    }

    fn settle(&mut self, id: usize, actual: u64, permit: Permit<'static>) {
        let now = self.micros();
        for (&number, &cost) in &self.requests[id].costs {
            let bucket = &mut self.buckets[number];
            let token = bucket.token;
            match cost.checked_sub(actual) {
                Some(_) if self.requests[id].forgiven.contains(&number) => {}
                Some(back) => bucket.give_back(now, back as i64 * token),
                None => bucket.enter(None, (actual - cost) as i64 * token),
            }
        }
        // A settlement counts whether it is awaited or dropped.
        let settle = permit.settle(actual);
        if self.dice.below(2) == 0 {
            at_once(settle).unwrap();
        }
    }

    fn draw_costs(&mut self) -> BTreeMap<usize, u64> {
        let mut costs = BTreeMap::new();
        while costs.is_empty() {
            for number in 0..self.limits.len() {
                if self.dice.below(2) == 0 {
                    costs.insert(number, 1 + self.dice.below(8));
                }
            }
        }
        costs
    }

    async fn arrive(&mut self) {
        let (id, now, costs) = (self.requests.len(), self.micros(), self.draw_costs());
        let promised = costs.iter().map(|(&number, &cost)| {
            let bucket = &self.buckets[number];
            bucket.promised(now, cost as i64 * bucket.token)
        });
        let promised = promised.max().unwrap();
        let reservation = at_once(call(&self.limiter, &self.limits, &costs).reserve()).unwrap();
        assert_eq!(
            reservation.at().as_micros(),
            promised,
            "request {id} is promised a different instant"
        );
        for (&number, &cost) in &costs {
            let bucket = &mut self.buckets[number];
            bucket.enter(Some(id), cost as i64 * bucket.token);
        }
        let mut is_kept = false;
        let waits = match self.dice.below(10) {
            0 => Waits::Reserved(reservation),
            1 => {
                // Its work will run at the promised instant.
                is_kept = true;
                drop(reservation.keep());
                Waits::Gone
            }
            2..4 => Waits::Polled(Box::pin(reservation.ready())),
            _ => {
                let running = Arc::clone(&self.running);
                Waits::Task(tokio::spawn(async move {
                    let permit = reservation.ready().await;
                    running.lock().unwrap().push((id, permit));
                }))
            }
        };
        let granted_at = now;
        let (granted, forgiven) = Default::default();
        self.requests.push(Request {
            costs,
            promised,
            granted,
            forgiven,
            granted_at,
            is_kept,
            waits,
        });
        self.settle_down().await;
        if let Waits::Polled(_) = &self.requests[id].waits {
            self.poll(id);
        }
    }

    /// Polls a request if its future is polled by hand.
    fn poll(&mut self, id: usize) {
        let request = &mut self.requests[id];
        let Waits::Polled(ready) = &mut request.waits else { return };
        let is_granted = request.granted.len() == request.costs.len();
        let permit = poll(ready);
        assert_eq!(permit.is_some(), is_granted, "request {id}");
        if let Some(permit) = permit {
            self.requests[id].waits = Waits::Gone;
            self.check(id, &permit);
            self.work(id, permit);
        }
    }

    /// Drops a random request that has not run yet.
    async fn leave(&mut self, counts: &mut Counts) {
        let held = |request: &&Request| !matches!(request.waits, Waits::Gone);
        let held: Vec<_> =
            (0..self.requests.len()).filter(|&id| held(&&self.requests[id])).collect();
        if held.is_empty() {
            return;
        }
        let id = held[self.dice.nth(&held)];
        counts.left += 1;
        match std::mem::replace(&mut self.requests[id].waits, Waits::Gone) {
            Waits::Task(task) => {
                task.abort();
                assert!(task.await.unwrap_err().is_cancelled());
            }
            Waits::Reserved(reservation) => drop(reservation),
            Waits::Polled(ready) => drop(ready),
            Waits::Gone => {}
        }
        let now = self.micros();
        let request = &self.requests[id];
        for (number, cost) in &request.costs {
            let bucket = &mut self.buckets[*number];
            if request.forgiven.contains(number) {
                continue;
            }
            if request.granted.contains(number) {
                let units = *cost as i64 * bucket.token;
                bucket.give_back(now, units);
            } else {
                bucket.leave(id);
            }
        }
        self.settle_down().await;
    }

    /// A request that does not wait.
    async fn take(&mut self) {
        let (now, costs) = (self.micros(), self.draw_costs());
        let fits = costs.iter().all(|(&number, &cost)| {
            let bucket = &self.buckets[number];
            bucket.value() >= cost as i64 * bucket.token
        });
        let largest =
            |(&number, &cost): (&usize, &u64)| self.limits[number].quota().get_capacity() >= cost;
        if !costs.iter().all(largest) {
            return;
        }
        let call = call(&self.limiter, &self.limits, &costs);
        assert_eq!(is_admitted(call), fits);
        if fits {
            for (number, cost) in costs {
                let bucket = &mut self.buckets[number];
                let units = cost as i64 * bucket.token;
                bucket.take(now, units);
            }
        }
        self.settle_down().await;
    }

    async fn penalize(&mut self) {
        let (number, tokens) = (self.dice.nth(&self.limits), 1 + self.dice.below(6));
        let snapshot = at_once(self.limiter.penalize(&self.limits[number], tokens)).unwrap();
        let bucket = &mut self.buckets[number];
        bucket.enter(None, tokens as i64 * bucket.token);
        assert_eq!(snapshot.state().value, bucket.value());
        self.settle_down().await;
    }

    /// Forgives what was granted. The waiters go on.
    async fn reset(&mut self) {
        let number = self.dice.nth(&self.limits);
        at_once(self.limiter.reset(&self.limits[number])).unwrap();
        let requests = &self.requests;
        self.buckets[number].reset(|id| !requests[id].is_kept);
        for request in self.requests.iter_mut().filter(|request| request.granted.contains(&number))
        {
            request.forgiven.push(number);
        }
        self.settle_down().await;
    }

    async fn play(mut self) -> Counts {
        let mut counts = Counts::default();
        for _ in 0..50 {
            let time = [0, 0, 1, 2, 5, 30][self.dice.nth(&[0; 6])];
            self.pass(time, &mut counts).await;
            match self.dice.below(if self.has_resets { 22 } else { 20 }) {
                0..6 => self.leave(&mut counts).await,
                6..8 => self.take().await,
                8 => self.penalize().await,
                9 => {
                    let id = self.dice.nth(&vec![0; self.requests.len().max(1)]);
                    if let Some(Waits::Polled(_)) = self.requests.get(id).map(|one| &one.waits) {
                        self.poll(id);
                    }
                }
                20.. => self.reset().await,
                _ => self.arrive().await,
            }
        }
        self.pass(20_000, &mut counts).await;
        for (number, bucket) in self.buckets.iter().enumerate() {
            assert_eq!(
                bucket.excess(),
                0,
                "bucket {number}: more was granted than its bound: {bucket:?}"
            );
            assert!(bucket.is_idle(), "bucket {number}: a request still waits");
            let held = at_once(self.limiter.peek(&self.limits[number]).cost(0)).unwrap();
            assert_eq!(held.state().value, bucket.value(), "bucket {number}");
            assert!(held.state().value >= 0, "bucket {number} owes");
        }
        for id in 0..self.requests.len() {
            self.poll(id);
        }
        counts.requests = self.requests.len();
        let has_moved = |request: &&Request| request.granted_at < request.promised;
        counts.moved = self.requests.iter().filter(has_moved).count();
        counts
    }
}

fn call<'l>(
    limiter: &'l RateLimiter,
    limits: &'l [Limit],
    costs: &BTreeMap<usize, u64>,
) -> LimitCall<'l> {
    let mut costs = costs.iter();
    let (&first, &cost) = costs.next().unwrap();
    let call = limiter.limit(&limits[first]).cost(cost);
    costs.fold(call, |call, (&number, &cost)| call.and(&limits[number]).cost(cost))
}

fn histories(seeds: impl Iterator<Item = u64>) {
    let mut all = Counts::default();
    for seed in seeds {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let played = runtime.unwrap().block_on(async {
            let played = tokio::spawn(History::new(seed).play()).await;
            played.unwrap_or_else(|error| panic!("seed {seed}: {error}"))
        });
        all.requests += played.requests;
        all.left += played.left;
        all.settled += played.settled;
        all.moved += played.moved;
    }
    println!("{all:?}");
    assert!(all.left * 10 > all.requests && all.settled * 10 > all.requests, "{all:?}");
    assert!(all.moved * 10 > all.requests, "{all:?}");
}

// In four parts, which run in parallel.

#[test]
fn histories_go_as_in_the_model_1() {
    histories(seeds(625));
}

#[test]
fn histories_go_as_in_the_model_2() {
    histories(seeds(625).map(|seed| 5_000 + seed));
}

#[test]
fn histories_go_as_in_the_model_3() {
    histories(seeds(625).map(|seed| 10_000 + seed));
}

#[test]
fn histories_go_as_in_the_model_4() {
    histories(seeds(625).map(|seed| 15_000 + seed));
}
