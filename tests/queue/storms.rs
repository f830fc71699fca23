//! Storms of reservations that come and go: on threads, in stores that answer at once and in stores
//! that answer later, and over a long time.
//!
//! The threads are real, and poll the futures that were woken. Time is that of a paused runtime,
//! and advances while they work.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use http::{Request, Response};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, advance, sleep, timeout};
use tollgate::algebra::check_history_with_returns;
use tollgate::backend::{Adjustment, Answer, Applied, Backend, BucketId, Charge, Memory};
use tollgate::clock::{Clock, TokioClock};
use tollgate::limiter::{Permit, Reservation};
use tollgate::{DAY, HOUR, Limit, Quota, RateLimiter, SECOND, Timestamp};
use tollgate_testing::at_once;
use tollgate_testing::cases::times;
use tollgate_testing::dice::Dice;
use tollgate_testing::queue::{lines, ms, paused, poll, reserve, tokens, waiter};
use tollgate_testing::threads::on_threads;
use tower::{Layer, ServiceExt, service_fn};

/// A store that answers some time later. It carries out an adjustment in the middle of that time.
#[derive(Debug)]
struct Lazy {
    memory: Arc<Memory>,
    asked: AtomicU64,
}

impl Lazy {
    fn pause(&self) -> impl Future<Output = ()> + Send + 'static {
        let time = Dice(self.asked.fetch_add(1, Ordering::Relaxed)).time(ms(4));
        async move { sleep(time).await }
    }
}

impl Backend for Lazy {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        let (pause, answer) = (self.pause(), self.memory.apply(charges));
        Answer::pending(async move {
            pause.await;
            answer.wait().await
        })
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        let [one] = adjustments else { panic!("of one bucket") };
        let (limit, key) = (one.id().limit().to_owned(), one.id().key().clone());
        let (bucket, change) = (*one.bucket(), one.change());
        let (memory, before, after) = (Arc::clone(&self.memory), self.pause(), self.pause());
        Answer::pending(async move {
            before.await;
            let answer =
                { memory.adjust(&[Adjustment::new(BucketId::new(&limit, &key), &bucket, change)]) };
            after.await;
            answer.wait().await
        })
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.memory.reset(ids)
    }
}

fn limiter(is_lazy: bool, seed: u64) -> RateLimiter {
    limiter_on(TokioClock::new(), is_lazy, seed)
}

fn limiter_on(clock: TokioClock, is_lazy: bool, seed: u64) -> RateLimiter {
    let memory = Arc::new(Memory::new().clock(clock));
    match is_lazy {
        true => RateLimiter::new(Lazy { memory, asked: AtomicU64::new(seed << 20) }),
        false => RateLimiter::new(memory),
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// What ran, and what may have come back: a request that is dropped may have been granted already.
#[derive(Clone, Debug)]
struct Record {
    clock: TokioClock,
    ran: Arc<Mutex<Vec<(Timestamp, u64)>>>,
    returned: Arc<Mutex<Vec<(Timestamp, u64)>>>,
}

/// Reserves three times. Each time it waits to the end, waits for a while, keeps the reservation or
/// drops it.
async fn client(limiter: RateLimiter, limit: Limit, mut dice: Dice, record: Record) {
    for _ in 0..3 {
        sleep(dice.time(ms(150))).await;
        let cost = 1 + dice.below(50);
        let log = |permit: Permit<'_>, promised: Timestamp| {
            assert!(permit.at() <= promised, "later than promised");
            record.ran.lock().unwrap().push((permit.at(), cost));
        };
        // Other threads may let time pass meanwhile.
        let gone = |drop: &mut dyn FnMut()| {
            let before = record.clock.now();
            drop();
            let mut times = vec![before, record.clock.now()];
            times.dedup();
            record.returned.lock().unwrap().extend(times.into_iter().map(|at| (at, cost)));
        };
        let reservation = limiter.limit(&limit).cost(cost).reserve().await.unwrap();
        let promised = reservation.at();
        match dice.below(10) {
            give_up @ 0..2 => {
                sleep(u32::from(give_up == 1) * dice.time(ms(50))).await;
                let mut reservation = Some(reservation);
                gone(&mut || drop(reservation.take()));
            }
            // A kept reservation may have been granted before its promised instant.
            2 => drop(reservation.keep()),
            3..6 => {
                let mut ready = Some(Box::pin(reservation.ready()));
                let waits = timeout(dice.time(ms(300)), ready.as_mut().unwrap()).await;
                match waits {
                    Ok(permit) => log(permit, promised),
                    Err(_) => gone(&mut || drop(ready.take())),
                }
            }
            _ => log(reservation.ready().await, promised),
        }
    }
}

fn storm(is_lazy: bool) {
    for seed in 0..times(2, 1) {
        for quota in [
            Quota::token_bucket(20_000, SECOND).capacity(0),
            Quota::token_bucket(20_000, SECOND).capacity(60),
            Quota::fixed_window(700, ms(35)).capacity(0),
            Quota::fixed_window(700, ms(35)),
        ] {
            let runtime = runtime();
            let clock = runtime.block_on(async { TokioClock::new() });
            let limiter = limiter_on(clock, is_lazy, seed);
            let (ran, returned) = Default::default();
            let record = Record { clock, ran, returned };
            let clients = (0..200).map(|number| {
                let dice = Dice(seed * 1_000_003 + number);
                client(limiter.clone(), Limit::new("storm", quota), dice, record.clone())
            });
            on_threads(&runtime, clients, |_| ());
            let ran = record.ran.lock().unwrap();
            // A store that answers late gets nothing back that was granted.
            let returned =
                if is_lazy { Vec::new() } else { record.returned.lock().unwrap().clone() };
            let violation = check_history_with_returns(&quota, &ran, &returned).unwrap();
            assert_eq!(violation, None, "seed {seed}, {quota}: {ran:?}");
            // Up to 600 free slots are undone one after another, each in up to 8 ms.
            runtime.block_on(async { sleep(5 * SECOND).await });
            assert_eq!(lines(&limiter), 0, "seed {seed}, {quota}");
        }
    }
}

#[test]
fn on_threads_no_more_runs_than_the_bound() {
    storm(false);
}

#[test]
fn on_threads_no_more_runs_than_the_bound_in_a_store_that_answers_late() {
    storm(true);
}

/// The drain leaves 20 ms to the waiters. The rest of the 100 ms is for a store that answers late.
#[test]
fn a_shutdown_in_a_storm_answers_every_request_in_time() {
    for seed in 0..6 {
        for is_lazy in [false, true] {
            let runtime = runtime();
            let limiter = runtime.block_on(async { limiter(is_lazy, seed) });
            // All requests would take some seconds to run.
            let limit = Limit::new("storm", Quota::token_bucket(1_000, SECOND).capacity(0));
            let layer = limiter.layer(limit).queue(HOUR).jitter(ms(seed % 3 * 10));
            let cost = move |number: u64| 1 + Dice(seed * 1_000 + number).below(50);
            let service = layer
                .cost_with(move |head| cost(*head.extensions().get::<u64>().unwrap()))
                .layer(service_fn(async |_| Ok::<_, Infallible>(Response::new(()))));
            let clients = (0..300).map(|number| {
                let (service, mut dice) = (service.clone(), Dice(seed * 1_000 + number));
                async move {
                    sleep(dice.time(ms(30))).await;
                    let mut request = Request::new(number);
                    request.extensions_mut().insert(number);
                    let call = service.oneshot(request);
                    if dice.below(4) == 0 {
                        let _ = timeout(dice.time(ms(30)), call).await;
                    } else {
                        call.await.unwrap();
                    }
                }
            });
            let end = u32::try_from(Dice(seed).below(30)).unwrap();
            let rounds = on_threads(&runtime, clients, |round| {
                if round == end {
                    limiter.drain(ms(20));
                }
            });
            assert!(rounds <= 100, "{rounds} ms, seed {seed}, lazy: {is_lazy}");
            // Up to 300 free slots, as above.
            runtime.block_on(async { sleep(5 * SECOND).await });
            assert_eq!(lines(&limiter), 0, "seed {seed}, lazy: {is_lazy}");
        }
    }
}

/// The last slot is undone and then the one before it, whichever thread is first.
#[test]
fn reservations_that_two_threads_drop_at_once_are_given_back() {
    const ROUNDS: u32 = 1_000;
    static DAILY: Limit = Limit::new("daily", Quota::token_bucket(1, DAY).capacity(0));
    let limiter = RateLimiter::in_memory();
    let (barrier, given) = (Barrier::new(2), Mutex::new(None::<Reservation>));
    let lost = std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                barrier.wait();
                let last = given.lock().unwrap().take();
                drop(last);
                barrier.wait();
            }
        });
        let mut lost = 0;
        for _ in 0..ROUNDS {
            at_once(limiter.reset(&DAILY)).unwrap();
            let first = reserve(&limiter, &DAILY, 1);
            *given.lock().unwrap() = Some(reserve(&limiter, &DAILY, 1));
            barrier.wait();
            drop(first);
            barrier.wait();
            lost += u32::from(tokens(&limiter, &DAILY) < -0.5);
        }
        lost
    });
    assert_eq!((lost, lines(&limiter)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn aborted_requests_do_not_change_the_order_of_the_others() {
    // Twelve have each quota with each capacity twice.
    for seed in 0..times(60, 12) {
        let mut dice = Dice(seed);
        let capacity = seed % 3 * 10;
        let quota = match seed % 2 {
            0 => Quota::token_bucket(1_000, SECOND).capacity(capacity),
            _ => Quota::fixed_window(60, ms(60)).capacity(capacity),
        };
        let limit = Limit::new("equals", quota);
        let limiter = paused();
        let ran = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for number in 0..150 {
            sleep(ms(dice.below(8))).await;
            let cost = [1, 7, 20, 50][dice.nth(&[(); 4])];
            let own = at_once(limiter.limit(&limit).cost(cost).reserve()).unwrap();
            if own.wait().is_zero() {
                let _permit = own.keep();
            } else {
                let (promised, ran) = (own.at(), Arc::clone(&ran));
                tasks.push(tokio::spawn(async move {
                    let at = own.ready().await.at();
                    assert!(at <= promised, "later than promised");
                    ran.lock().unwrap().push((cost, number, at));
                }));
                tokio::task::yield_now().await;
            }
            if dice.below(3) == 0 && !tasks.is_empty() {
                tasks.swap_remove(dice.nth(&tasks)).abort();
            }
        }
        for task in tasks {
            task.await.unwrap();
        }
        // All others ran in the order in which they came, whatever they cost.
        let ran = ran.lock().unwrap();
        let in_order = ran.windows(2).all(|two| two[0].1 < two[1].1 && two[0].2 <= two[1].2);
        assert!(in_order, "seed {seed}: {ran:?}");
        assert_eq!(lines(&limiter), 0, "seed {seed}");
    }
}

/// Measures the memory of the limiter by its `Debug` text, which holds no reservation that is over.
#[tokio::test(start_paused = true)]
async fn a_queue_that_is_never_empty_does_not_grow() {
    let limit = Limit::new("long", Quota::token_bucket(1_000, SECOND).capacity(0));
    let (limiter, mut dice) = (paused(), Dice(5));
    let (mut line, mut sizes) = (Vec::new(), Vec::new());
    for step in 0..6_000 {
        advance(ms(3)).await;
        line.retain_mut(|one| poll(one).is_none());
        if line.len() < 60 {
            line.push(waiter(&limiter, &limit, 1 + dice.below(5)));
        }
        if dice.below(3) == 0 && line.len() > 1 {
            drop(line.swap_remove(dice.nth(&line)));
        }
        if step % 1_000 == 999 {
            sizes.push(format!("{limiter:?}").len());
        }
    }
    assert!(sizes.iter().all(|size| (1..60_000).contains(size)), "{sizes:?}");
}

/// How many of the allowed tokens run if a third of the requests is aborted.
#[tokio::test(start_paused = true)]
async fn with_mixed_costs_nearly_all_of_the_allowed_tokens_run() {
    for (costs, least) in [(1, 99), (5, 94), (50, 92)] {
        let (mut used, mut allowed) = (0, 0);
        for seed in 0..10 {
            let mut dice = Dice(seed);
            let limit = Limit::new("use", Quota::token_bucket(1_000, SECOND).capacity(0));
            let (limiter, start) = (paused(), Instant::now());
            let ran = Arc::new(AtomicU64::new(0));
            let mut tasks = Vec::new();
            for _ in 0..400 {
                sleep(ms(dice.below(costs + 1))).await;
                let cost = 1 + dice.below(costs);
                let (own, ran) = (reserve(&limiter, &limit, cost), Arc::clone(&ran));
                tasks.push(tokio::spawn(async move {
                    let _permit = own.ready().await;
                    ran.fetch_add(cost, Ordering::Relaxed);
                }));
                tokio::task::yield_now().await;
                if dice.below(10) < 3 {
                    tasks.swap_remove(dice.nth(&tasks)).abort();
                }
            }
            for task in tasks {
                task.await.unwrap();
            }
            used += ran.load(Ordering::Relaxed);
            allowed += u64::try_from(start.elapsed().as_millis()).unwrap();
        }
        assert!(used * 100 >= allowed * least, "costs up to {costs}: {used} of {allowed}");
    }
}
