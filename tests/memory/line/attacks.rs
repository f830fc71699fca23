//! Attacks on the queue of the memory store: races, extreme values, changed quotas and full stores.

use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use tokio::time::{Instant, advance};
use tollgate::backend::Memory;
use tollgate::clock::{ManualClock, TokioClock};
use tollgate::limiter::Permit;
use tollgate::{DAY, HOUR, Limit, MINUTE, Quota, RateLimiter, SECOND};
use tollgate_testing::cases::{seeds, times};
use tollgate_testing::queue::{Turn, lines, ms, paused, poll, reserve, settled, tokens, waiter};
use tollgate_testing::{START, at_once, is_admitted};

static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(1, SECOND).capacity(0));
static FIVE: Limit = Limit::new("five", Quota::token_bucket(1, SECOND).capacity(5));

#[track_caller]
fn take(limiter: &RateLimiter, limit: &Limit, cost: u64) -> Permit<'static> {
    at_once(limiter.limit(limit).cost(cost)).unwrap().into_owned()
}

/// A waker that polls its waiter in place, and settles the work at once.
struct InPlace(Mutex<Option<(Turn, u64)>>);

impl Wake for InPlace {
    fn wake(self: Arc<Self>) {
        let Some((mut ready, actual)) = self.0.lock().unwrap().take() else { return };
        if let Some(permit) = poll(&mut ready) {
            at_once(permit.settle(actual)).unwrap();
        }
    }
}

/// A call sets the timer of the queue after it has released the lock. A later call may overtake it
/// there; the first must not then put the timer off.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_overtaken_before_it_sets_the_timer_delays_no_waiter() {
    let limiter = paused();
    let start = Instant::now();
    let paid = take(&limiter, &FIVE, 5);
    let mut first = Box::pin(reserve(&limiter, &FIVE, 4).ready());
    let place = Arc::new(InPlace(Mutex::new(None)));
    let waker = Waker::from(Arc::clone(&place));
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    *place.0.lock().unwrap() = Some((first, 2));
    // Due at 8 s and at 68 s.
    let second = tokio::spawn(waiter(&limiter, &FIVE, 4));
    let third = tokio::spawn(waiter(&limiter, &FIVE, 60));
    settled().await;
    // 4 come back: the first waiter is granted, and gives 2 of them back. The second is due in 2 s.
    at_once(paid.settle(1)).unwrap();
    let _permit = second.await.unwrap();
    assert_eq!(start.elapsed(), 2 * SECOND);
    drop(third);
}

/// Blocks the thread that wakes it until the test opens the gate.
struct Gate(Mutex<Option<std::sync::mpsc::Receiver<()>>>, std::sync::mpsc::Sender<()>);

impl Wake for Gate {
    fn wake(self: Arc<Self>) {
        if let Some(receiver) = self.0.lock().unwrap().take() {
            self.1.send(()).unwrap();
            let _ = receiver.recv();
        }
    }
}

/// The same on two threads.
#[tokio::test(start_paused = true)]
async fn a_slow_thread_that_sets_the_timer_late_delays_no_waiter() {
    static HUNDRED: Limit = Limit::new("hundred", Quota::token_bucket(1, SECOND).capacity(100));
    let limiter = paused();
    let start = Instant::now();
    let paid = take(&limiter, &HUNDRED, 2);
    let other = take(&limiter, &HUNDRED, 98);
    let mut first = Box::pin(reserve(&limiter, &HUNDRED, 1).ready());
    let (open, gate) = std::sync::mpsc::channel();
    let (arrived, at_gate) = std::sync::mpsc::channel();
    let waker = Waker::from(Arc::new(Gate(Mutex::new(Some(gate)), arrived)));
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    // Due at 111 s.
    let second = tokio::spawn(waiter(&limiter, &HUNDRED, 110));
    settled().await;
    let handle = tokio::runtime::Handle::current();
    let slow = std::thread::spawn(move || {
        let _entered = handle.enter();
        at_once(paid.settle(1)).unwrap();
    });
    // The slow thread has released the lock and has not set the timer yet: the second waiter is due
    // in 110 s.
    at_gate.recv().unwrap();
    // 98 tokens come back: it is due in 12 s.
    at_once(other.settle(0)).unwrap();
    open.send(()).unwrap();
    slow.join().unwrap();
    let _permit = second.await.unwrap();
    assert_eq!(start.elapsed(), 12 * SECOND);
    drop(first);
}

/// The task of a queue ends with the queue.
#[tokio::test(start_paused = true)]
async fn queues_that_end_leave_no_task_behind() {
    static HOURLY: Limit = Limit::new("hourly", Quota::token_bucket(1, HOUR).capacity(0));
    let limiter = paused();
    for _ in 0..1_000 {
        let (first, second) = (waiter(&limiter, &HOURLY, 1), waiter(&limiter, &HOURLY, 1));
        settled().await;
        drop((second, first));
    }
    settled().await;
    assert_eq!(lines(&limiter), 0);
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert!(tasks <= 1, "{tasks} tasks");
}

/// A reservation of cost zero on a limit in shards.
#[tokio::test(start_paused = true)]
async fn a_reservation_of_cost_zero_moves_no_waiter_forward() {
    static SHARDS: Limit =
        Limit::new("shards", Quota::token_bucket(2, SECOND).capacity(0).shards(2));
    let limiter = paused();
    let start = Instant::now();
    let large = tokio::spawn(waiter(&limiter, &SHARDS, 20));
    settled().await;
    let small = tokio::spawn(waiter(&limiter, &SHARDS, 1));
    settled().await;
    let nothing = at_once(limiter.limit(&SHARDS).cost(0).reserve()).unwrap();
    assert_eq!(nothing.wait(), SECOND);
    let nothing = tokio::spawn(nothing.ready());
    let _permit = nothing.await.unwrap();
    let ran = start.elapsed();
    let _permit = small.await.unwrap();
    let _permit = large.await.unwrap();
    assert_eq!((ran, start.elapsed()), (SECOND, 20 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn a_reservation_of_cost_zero_that_is_dropped_leaves_all_its_queues() {
    static SHARDS: Limit =
        Limit::new("shards", Quota::token_bucket(2, SECOND).capacity(0).shards(2));
    // A forgotten queue entry shows only where the two buckets are in different shards of the
    // store, which depends on the key.
    for key in 0_u64..64 {
        let limiter = paused();
        let call = |cost| limiter.limit(&SHARDS).key(key).cost(cost).reserve();
        let _one = at_once(call(20)).unwrap();
        let _two = at_once(call(10)).unwrap();
        let before = limiter.peek(&SHARDS).key(key).waiting();
        drop(at_once(call(0)).unwrap());
        assert_eq!(limiter.peek(&SHARDS).key(key).waiting(), before, "key {key}");
    }
}

/// A cost of zero stores nothing, not even its quota.
#[tokio::test(start_paused = true)]
async fn a_reservation_of_cost_zero_under_another_quota_runs_when_promised() {
    let small = Limit::new("x", Quota::token_bucket(1, SECOND).capacity(0));
    let large = Limit::new("x", Quota::token_bucket(100, SECOND).capacity(0));
    let limiter = paused();
    let start = Instant::now();
    let _waiting: Vec<_> = (0..10).map(|_| tokio::spawn(waiter(&limiter, &small, 1))).collect();
    let nothing = at_once(limiter.limit(&large).cost(0).reserve()).unwrap();
    assert_eq!(nothing.wait(), ms(100));
    let permit = nothing.ready().await;
    assert_eq!(start.elapsed(), ms(100), "{permit:?}");
}

/// One call names a limit twice, with different quotas.
#[tokio::test(start_paused = true)]
async fn a_limit_that_is_named_twice_with_two_quotas_moves_no_waiter_forward() {
    let fine = Limit::new("x", Quota::token_bucket(1_000, SECOND).capacity(0));
    // A thousandth faster, and a token is worth a thousand times as many units.
    let coarse = Limit::new("x", Quota::token_bucket(1_001, SECOND).capacity(0));
    let limiter = paused();
    let start = Instant::now();
    let mut first = waiter(&limiter, &fine, 10_010);
    let twice = at_once(limiter.limit(&fine).cost(5).and(&coarse).cost(5).reserve()).unwrap();
    assert!(poll(&mut first).is_none(), "granted at once");
    let _permit = first.await;
    assert_eq!(start.elapsed(), 10 * SECOND);
    drop(twice);
}

/// The same reservation, dropped, gives back no more than it took.
#[tokio::test(start_paused = true)]
async fn a_limit_that_is_named_twice_with_two_quotas_gives_back_what_it_took() {
    let fine = Limit::new("x", Quota::token_bucket(1_000, SECOND).capacity(1_000));
    let coarse = Limit::new("x", Quota::token_bucket(1_001, SECOND).capacity(1_000));
    let limiter = paused();
    let _all = take(&limiter, &fine, 1_000);
    let twice = at_once(limiter.limit(&fine).cost(5).and(&coarse).cost(5).reserve()).unwrap();
    drop(twice);
    assert_eq!(tokens(&limiter, &coarse), 0.0);
}

/// A permit of the former, larger plan is settled while requests wait under the smaller one.
#[tokio::test(start_paused = true)]
async fn a_settlement_under_a_former_quota_grants_no_waiters_by_that_quota() {
    let large = Limit::new("plan", Quota::token_bucket(100, SECOND).capacity(100));
    let small = Limit::new("plan", Quota::token_bucket(1, SECOND).capacity(2));
    let limiter = paused();
    let start = Instant::now();
    let former = take(&limiter, &large, 2);
    // From here on all requests come under the small plan, of which 2 of 2 are used.
    let waiting: Vec<_> = (0..20).map(|_| waiter(&limiter, &small, 1)).collect();
    assert_eq!(limiter.peek(&small).longest_wait(), 20 * SECOND);
    at_once(former.settle(1)).unwrap();
    let mut ran = Vec::new();
    for one in waiting {
        let _permit = one.await;
        ran.push(start.elapsed());
    }
    let at_once = ran.iter().filter(|ran| ran.is_zero()).count();
    assert!(at_once <= 1, "{at_once} of 20 at once: {ran:?}");
}

#[tokio::test(start_paused = true)]
async fn kept_reservations_do_not_lift_the_bound_of_the_store() {
    static DAILY: Limit = Limit::new("daily", Quota::token_bucket(86_400, DAY).capacity(1_000));
    let memory = Arc::new(Memory::new().max_keys(8).clock(TokioClock::new()));
    let limiter = RateLimiter::new(Arc::clone(&memory));
    for key in 0_u64..1_000 {
        // One token short: its instant comes in a second.
        drop(at_once(limiter.limit(&DAILY).key(key).cost(1_001).reserve()).unwrap().keep());
    }
    let kept = memory.len();
    advance(MINUTE).await;
    // All reservations are granted by now.
    for key in 1_000_u64..2_000 {
        assert!(is_admitted(limiter.limit(&DAILY).key(key).cost(1_000)));
    }
    assert!(kept <= 8 && memory.len() <= 8, "{kept} and then {}", memory.len());
}

#[tokio::test(start_paused = true)]
async fn the_bound_holds_again_once_no_request_waits() {
    static DAILY: Limit = Limit::new("daily", Quota::token_bucket(86_400, DAY).capacity(1_000));
    let memory = Arc::new(Memory::new().max_keys(8).clock(TokioClock::new()));
    let limiter = RateLimiter::new(Arc::clone(&memory));
    let waiting: Vec<_> = (0_u64..1_000)
        .map(|key| {
            let call = limiter.limit(&DAILY).key(key).cost(1_001).reserve();
            Box::pin(at_once(call).unwrap().ready())
        })
        .collect();
    for one in waiting {
        let _permit = one.await;
    }
    assert_eq!(lines(&limiter), 0);
    for key in 1_000_u64..3_000 {
        assert!(is_admitted(limiter.limit(&DAILY).key(key).cost(1_000)));
    }
    assert!(memory.len() <= 8, "{}", memory.len());
}

#[tokio::test(start_paused = true)]
async fn a_reset_forgives_a_penalty_although_a_request_waits() {
    for waits in [false, true] {
        let limiter = paused();
        let _empty = take(&limiter, &FIVE, 5);
        let one = waits.then(|| waiter(&limiter, &FIVE, 1));
        at_once(limiter.penalize(&FIVE, 1_000)).unwrap();
        at_once(limiter.reset(&FIVE)).unwrap();
        let left = 5.0 - f64::from(u8::from(waits));
        assert_eq!(tokens(&limiter, &FIVE), left, "a request waits: {waits}");
        drop(one);
    }
}

/// Under the second quota, the costs of all waiters together are too large to be counted.
#[tokio::test(start_paused = true)]
async fn a_quota_under_which_the_waiters_cannot_be_counted_grants_none_of_them_early() {
    let fast = Limit::new("x", Quota::token_bucket(1, SECOND).capacity(1));
    let slow = Limit::new("x", Quota::token_bucket(1, 30 * DAY).capacity(1));
    let limiter = paused();
    let _one = take(&limiter, &fast, 1);
    let mut waiting: Vec<_> = (0..10_000).map(|_| waiter(&limiter, &fast, 1)).collect();
    let _ = at_once(limiter.penalize(&slow, 1));
    let granted = waiting.iter_mut().filter_map(poll).count();
    assert_eq!(granted, 0, "at once");
}

#[tokio::test(start_paused = true)]
async fn a_ban_and_a_changed_quota_grant_no_waiter_early() {
    let one = Limit::new("x", Quota::token_bucket(1, SECOND).capacity(1));
    let other = Limit::new("x", Quota::token_bucket(1, MINUTE).capacity(1));
    let limiter = paused();
    let _one = take(&limiter, &one, 1);
    let mut waiting: Vec<_> = (0..10).map(|_| waiter(&limiter, &one, 1)).collect();
    at_once(limiter.penalize(&one, u64::MAX)).unwrap();
    at_once(limiter.penalize(&other, 1)).unwrap();
    let granted = waiting.iter_mut().filter_map(poll).count();
    assert_eq!(granted, 0, "at once");
}

/// The store is full of buckets with waiters.
#[tokio::test(start_paused = true)]
async fn a_request_over_two_limits_waits_for_both_in_a_full_store() {
    static SLOW: Limit = Limit::new("slow", Quota::token_bucket(1, MINUTE).capacity(0));
    let memory = Arc::new(Memory::new().max_keys(4).clock(TokioClock::new()));
    let limiter = RateLimiter::new(Arc::clone(&memory));
    let _others: Vec<_> = (0_u64..4)
        .map(|key| at_once(limiter.limit(&FIVE).key(key).cost(500).reserve()).unwrap())
        .collect();
    let start = Instant::now();
    let both = at_once(limiter.limit(&SLOW).and(&SPACED).reserve()).unwrap();
    assert_eq!(both.wait(), MINUTE);
    let both = tokio::spawn(both.ready());
    settled().await;
    assert_eq!((limiter.peek(&SLOW).waiting(), limiter.peek(&SPACED).waiting()), (1, 1));
    advance(2 * SECOND).await;
    let _next = waiter(&limiter, &SPACED, 1);
    let _permit = both.await.unwrap();
    assert_eq!(start.elapsed(), MINUTE);
}

/// The same without other requests. In a former version, this one ran after two seconds instead of
/// a minute.
#[tokio::test(start_paused = true)]
async fn a_request_over_two_limits_runs_no_sooner_than_both_allow() {
    static SLOW: Limit = Limit::new("slow", Quota::token_bucket(1, MINUTE).capacity(0));
    let memory = Arc::new(Memory::new().max_keys(1).clock(TokioClock::new()));
    let limiter = RateLimiter::new(Arc::clone(&memory));
    let start = Instant::now();
    let both = at_once(limiter.limit(&SLOW).and(&SPACED).reserve()).unwrap();
    assert_eq!(both.wait(), MINUTE);
    let both = tokio::spawn(both.ready());
    let _next = tokio::spawn(waiter(&limiter, &SPACED, 1));
    let _permit = both.await.unwrap();
    assert_eq!(start.elapsed(), MINUTE);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_set_back_grants_no_burst_after_a_reset() {
    let clock = ManualClock::new(START);
    let limiter = RateLimiter::new(Memory::new().clock(clock.clone()));
    let mut waiting: Vec<_> = (0..20).map(|_| waiter(&limiter, &SPACED, 1)).collect();
    settled().await;
    clock.set(tollgate::Timestamp::from_micros(START.as_micros() - 10_000_000));
    at_once(limiter.reset(&SPACED)).unwrap();
    settled().await;
    // Lets timers fire that are already due.
    tokio::time::sleep(ms(1)).await;
    let granted = waiting.iter_mut().filter_map(poll).count();
    assert!(granted <= 1, "{granted} of 20 at once");
}

/// The penalties stay after the waiters have left.
#[tokio::test(start_paused = true)]
async fn banned_keys_can_be_evicted_once_no_request_waits() {
    let memory = Arc::new(Memory::new().max_keys(8).clock(TokioClock::new()));
    let limiter = RateLimiter::new(Arc::clone(&memory));
    for key in 0_u64..100 {
        let one = at_once(limiter.limit(&SPACED).key(key).reserve()).unwrap();
        at_once(limiter.penalize(&SPACED, 1_000_000).key(key)).unwrap();
        drop(one);
    }
    assert!(memory.len() <= 8, "{}", memory.len());
}

/// In whatever order the threads reserve and give back, the buckets are full in the end. Each thread
/// does 5,000 things at least, and 20,000 in CI.
#[test]
fn threads_that_give_all_back_leave_full_buckets() {
    let clock = ManualClock::new(START);
    let limiter = RateLimiter::new(Memory::new().clock(clock.clone()));
    let limits =
        ["a", "b", "c"].map(|name| Limit::new(name, Quota::token_bucket(1, SECOND).capacity(20)));
    let limits = &limits;
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let limiter = limiter.clone();
            scope.spawn(move || {
                let mut dice = tollgate_testing::dice::Dice(thread);
                let mut held: Vec<(Turn, Option<Permit<'static>>)> = Vec::new();
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_time()
                    .start_paused(true)
                    .build()
                    .unwrap();
                let _entered = runtime.enter();
                for _ in 0..times(20_000, 5_000) {
                    match dice.below(4) {
                        0 | 1 if held.len() < 30 => {
                            let (one, other) = (dice.nth(limits), dice.nth(limits));
                            let (cost, more) = (dice.below(8), dice.below(8));
                            let call = limiter.limit(&limits[one]).cost(cost);
                            let call = call.and(&limits[other]).cost(more);
                            held.push((Box::pin(at_once(call.reserve()).unwrap().ready()), None));
                        }
                        2 if !held.is_empty() => {
                            let nth = dice.nth(&held);
                            if held[nth].1.is_none() {
                                held[nth].1 = poll(&mut held[nth].0);
                            }
                        }
                        3 if !held.is_empty() => {
                            let nth = dice.nth(&held);
                            if let (_, Some(permit)) = held.swap_remove(nth) {
                                at_once(permit.refund()).unwrap();
                            }
                        }
                        _ => {}
                    }
                }
                for (_, permit) in held {
                    if let Some(permit) = permit {
                        at_once(permit.refund()).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(lines(&limiter), 0);
    for limit in limits {
        assert_eq!(tokens(&limiter, limit), 20.0);
        assert_eq!(limiter.peek(limit).waiting(), 0);
    }
}

/// Random histories with blocks, resets and changed quotas: no request runs later than promised,
/// none overtakes another, and nothing is left behind.
#[test]
fn whatever_happens_no_request_is_late_and_none_overtakes() {
    for seed in seeds(188) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(history(seed));
    }
}

async fn history(seed: u64) {
    let mut dice = tollgate_testing::dice::Dice(seed);
    let clock = TokioClock::new();
    let anchor = tollgate::clock::Clock::now(&clock);
    let memory = Arc::new(Memory::new().clock(clock));
    let limiter = RateLimiter::new(Arc::clone(&memory));
    let mut quotas = Vec::new();
    for _ in 0..3 {
        let (gain, capacity) = (1 + dice.below(5), dice.below(13));
        let quota = match dice.below(2) {
            0 => Quota::token_bucket(gain, ms([1, 7, 10][dice.nth(&[0; 3])])),
            _ => Quota::fixed_window(gain, ms([3, 10, 25][dice.nth(&[0; 3])])).start(anchor),
        };
        quotas.push(Limit::new("x", quota.capacity(capacity)));
    }
    let changes = dice.below(2) == 0;
    let mut now = 0;
    let ran: Arc<Mutex<Vec<(usize, i64, Permit<'static>)>>> = Arc::default();
    let (mut promised, mut tasks, mut open) = (Vec::new(), Vec::new(), Vec::new());
    let mut last = (i64::MIN, 0);
    let mut log = Vec::new();
    for _ in 0..60 {
        let limit = quotas[if changes { dice.nth(&quotas) } else { 0 }].clone();
        match dice.below(16) {
            0..6 => {
                let cost = dice.below(9).max(u64::from(changes));
                // A slower plan takes no place in the line while more is used than it holds.
                let reserved = at_once(limiter.limit(&limit).cost(cost).reserve());
                assert!(reserved.is_ok() || changes, "seed {seed}: {reserved:?}");
                let Ok(one) = reserved else { continue };
                let id = promised.len();
                log.push(format!(
                    "{now}: {id} reserves {cost} for {:?} by {:?}",
                    one.wait(),
                    limit.quota()
                ));
                promised.push((one.at().as_micros(), one.wait().is_zero()));
                let ran = Arc::clone(&ran);
                tasks.push(Some(tokio::spawn(async move {
                    let permit = one.ready().await;
                    let at = tollgate::clock::Clock::now(&clock).as_micros();
                    ran.lock().unwrap().push((id, at, permit));
                })));
            }
            6..9 if !tasks.is_empty() => {
                let id = dice.nth(&tasks);
                if let Some(task) = tasks[id].take() {
                    log.push(format!("{now}: {id} leaves"));
                    task.abort();
                    let _ = task.await;
                }
            }
            9 => {
                log.push(format!("{now}: reset"));
                at_once(limiter.reset(&limit)).unwrap();
            }
            10 => {
                let time = dice.below(40);
                log.push(format!("{now}: block {time} by {:?}", limit.quota()));
                at_once(limiter.block(&limit, ms(time))).unwrap();
            }
            11 => {
                let tokens = dice.below(9);
                log.push(format!("{now}: penalty {tokens}"));
                at_once(limiter.penalize(&limit, tokens)).unwrap();
            }
            12..14 if !open.is_empty() => {
                let nth = dice.nth(&open);
                let (id, permit): (usize, Permit<'static>) = open.swap_remove(nth);
                let actual = dice.below(7);
                log.push(format!("{now}: {id} settles at {actual}"));
                at_once(permit.settle(actual)).unwrap();
            }
            _ => {}
        }
        log.push(format!(
            "    longest {:?}, {:?}",
            limiter.peek(&limit).longest_wait(),
            at_once(limiter.peek(&limit).cost(0)).unwrap().state()
        ));
        let until = now + [0, 0, 1, 2, 9, 30][dice.nth(&[0; 6])];
        while {
            settled_shortly().await;
            for (id, at, permit) in std::mem::take(&mut *ran.lock().unwrap()) {
                let (promised, at_once) = promised[id];
                log.push(format!("{now}: {id} runs, granted at {:?}", permit.at()));
                // Timers are exact to a millisecond.
                assert!(
                    at < promised + 1_000 || at_once,
                    "seed {seed}: {id} is late by {}\n{}",
                    at - promised,
                    log.join("\n")
                );
                assert!(
                    permit.at().as_micros() <= promised,
                    "seed {seed}: {id}\n{}",
                    log.join("\n")
                );
                if !at_once {
                    let this = (permit.at().as_micros(), id);
                    assert!(this > last, "seed {seed}: {id} is overtaken\n{}", log.join("\n"));
                    last = this;
                }
                tasks[id] = None;
                open.push((id, permit));
            }
            now < until
        } {
            now += 1;
            advance(ms(1)).await;
        }
    }
    advance(DAY).await;
    settled_shortly().await;
    for (id, task) in tasks.into_iter().enumerate() {
        if let Some(task) = task {
            assert!(task.is_finished(), "seed {seed}: {id} still waits\n{}", log.join("\n"));
        }
    }
    memory.purge();
    assert_eq!((lines(&limiter), memory.len()), (0, 0), "seed {seed}\n{}", log.join("\n"));
}

async fn settled_shortly() {
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
}
