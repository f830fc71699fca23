//! Answers that come late, and store clocks that are set: waiters keep their order and their
//! instants, and are not polled without end.
//!
//! Time is the runtime's and stands still, so instants are exact whatever the machine does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep};
use tollgate::backend::{CircuitBreaker, Memory};
use tollgate::clock::{Clock, ManualClock, TokioClock};
use tollgate::limiter::Reservation;
use tollgate::{HOUR, Limit, Quota, RateLimiter, SECOND, Timestamp};
use tollgate_testing::queue::{
    Held, Late, Recorder, Turn, ms, poll, reserve, reserved, send, settled, tokens, waiter,
};
use tollgate_testing::{START, at_once, limiter};
use tower::Layer;

/// One a second, and nothing saved up.
static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(1, SECOND).capacity(0));

/// Asks for 20 tokens now. The answer comes when it is let go.
async fn late_reservation(store: &Late, limiter: &RateLimiter) -> (Held, JoinHandle<Reservation>) {
    let (held, limiter) = (store.close(), limiter.clone());
    let reservation = tokio::spawn(async move { reserved(&limiter, &SPACED, 20).await });
    settled().await;
    store.open();
    (held, reservation)
}

/// Waits in a task of its own, which fails if the waiter is woken again and again without a grant.
/// (Such a waiter would also keep the paused clock from advancing.)
fn at_rest(mut waiter: Turn) -> JoinHandle<usize> {
    tokio::spawn(async move {
        let polls = AtomicUsize::new(0);
        let _permit = std::future::poll_fn(|cx| {
            let before = polls.fetch_add(1, Ordering::Relaxed);
            assert!(before < 50, "the waiter is polled without end");
            waiter.as_mut().poll(cx)
        })
        .await;
        polls.into_inner()
    })
}

/// In a former version, the instant of the late reservation counted from its answer, and so came
/// after that of the waiter behind it, which waited for an instant that had passed.
#[tokio::test(start_paused = true)]
async fn a_waiter_behind_a_late_answer_comes_to_rest() {
    let (store, limiter, _) = Late::new();
    let start = Instant::now();
    let (held, late) = late_reservation(&store, &limiter).await;
    let behind = at_rest(Box::pin(reserved(&limiter, &SPACED, 1).await.ready()));
    sleep(5 * SECOND).await;
    held.let_go();
    let late = at_rest(Box::pin(late.await.unwrap().ready()));
    assert!(late.await.unwrap() < 10);
    assert_eq!(start.elapsed(), 20 * SECOND);
    assert!(behind.await.unwrap() < 10);
    assert_eq!(start.elapsed(), 21 * SECOND);
}

/// A store clock that jumps puts the instant of the second waiter before that of the first, which
/// is not polled.
#[tokio::test(start_paused = true)]
async fn a_store_clock_that_is_set_forward_makes_no_waiter_spin() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    let start = Instant::now();
    let first = waiter(&limiter, &SPACED, 20);
    clock.set(START + 10 * SECOND);
    let second = at_rest(waiter(&limiter, &SPACED, 1));
    let polls = second.await.unwrap();
    assert!(polls < 10, "{polls}");
    let passed_by = start.elapsed() - 11 * SECOND;
    assert!(passed_by <= ms(200), "{passed_by:?} late");
    drop(first);
}

/// In a former version, the slot that was given up counted from its late answer, and so came after
/// the slot of the waiter that took it.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_moves_up_to_the_slot_of_a_late_answer_is_not_late() {
    let (store, limiter, memory) = Late::new();
    let start = Instant::now();
    let (held, late) = late_reservation(&store, &limiter).await;
    let behind = reserved(&limiter, &SPACED, 20).await;
    assert_eq!(behind.wait(), 40 * SECOND);
    let mut behind = Box::pin(behind.ready());
    assert!(poll(&mut behind).is_none());
    advance(5 * SECOND).await;
    held.let_go();
    drop(late.await.unwrap());
    settled().await;
    assert_eq!(
        tokens(&memory, &SPACED),
        -15.0,
        "the waiter has moved up, and its own slot is undone"
    );
    let _permit = behind.await;
    assert_eq!(start.elapsed(), 20 * SECOND);
}

/// The same for a newcomer that finds the slot free.
#[tokio::test(start_paused = true)]
async fn the_free_slot_of_a_late_answer_makes_no_newcomer_late() {
    let (store, limiter, _) = Late::new();
    let start = Instant::now();
    let (held, late) = late_reservation(&store, &limiter).await;
    // Not in the queue, so that the slot before it stays free and cannot be undone.
    let planned = reserved(&limiter, &SPACED, 1).await;
    advance(5 * SECOND).await;
    held.let_go();
    drop(late.await.unwrap());
    settled().await;
    let newcomer = reserved(&limiter, &SPACED, 1).await;
    assert_eq!(newcomer.wait(), 17 * SECOND);
    let _permit = newcomer.ready().await;
    assert_eq!(start.elapsed(), 20 * SECOND);
    drop(planned);
}

/// In a former version, the waiters behind a late answer were held until its late instant, and ran
/// all at once.
#[tokio::test(start_paused = true)]
async fn one_late_answer_bunches_no_waiters() {
    static QUICK: Limit = Limit::new("quick", Quota::token_bucket(100, SECOND).capacity(0));
    let (store, limiter, _) = Late::new();
    let inner = Recorder::new();
    let layer = limiter.layer(&QUICK).queue(HOUR);
    let service =
        layer.cost_with(|head| *head.extensions().get::<u64>().unwrap()).layer(inner.clone());
    let request = |number: u64, cost: u64| {
        let mut request = Request::new(number);
        request.extensions_mut().insert(cost);
        request
    };
    let held = store.close();
    let mut answers = vec![send(&service, request(0, 20)).await];
    store.open();
    for number in 1..=5 {
        answers.push(send(&service, request(number, 1)).await);
    }
    sleep(ms(50)).await;
    held.let_go();
    for answer in answers {
        answer.await.unwrap();
    }
    let turns = (0..=5).map(|number| (number, ms(200 + 10 * number)));
    assert_eq!(inner.ran(), turns.collect::<Vec<_>>());
}

/// The clock of a runtime may show an earlier time than when the limiter was made.
#[test]
fn a_limiter_may_be_made_at_a_later_time_than_the_clock_of_the_runtime_shows() {
    static QUICK: Limit = Limit::new("quick", Quota::token_bucket(50, SECOND).capacity(0));
    let paused = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().start_paused(true).build().unwrap()
    };
    let (behind, ahead) = (paused(), paused());
    let store = behind.block_on(async { Arc::new(Memory::new().clock(TokioClock::new())) });
    let limiter = ahead.block_on(async {
        advance(HOUR).await;
        RateLimiter::new(store)
    });
    behind.block_on(async {
        let start = Instant::now();
        let reservations = (0..10).map(|_| reserve(&limiter, &QUICK, 1));
        let mut line: Vec<_> = reservations.map(|one| tokio::spawn(one.ready())).collect();
        settled().await;
        line.remove(3).abort();
        for (nth, one) in (1..).zip(line) {
            let _permit = one.await.unwrap();
            assert_eq!(start.elapsed(), ms(20 * nth));
        }
    });
    assert_eq!(tollgate_testing::queue::lines(&limiter), 0);
}

/// Five saved up, and one a second.
static FIVE: Limit = Limit::new("five", Quota::token_bucket(1, SECOND).capacity(5));

/// Ten seconds before the tests begin.
const EARLIER: Timestamp = Timestamp::from_micros(START.as_micros() - 10_000_000);

/// A limiter in memory, and one for which the same buckets are those of a shared store.
fn of_both_kinds(clock: &ManualClock) -> [RateLimiter; 2] {
    let memory = || Memory::new().clock(clock.clone());
    [RateLimiter::new(memory()), RateLimiter::new(CircuitBreaker::new(memory()))]
}

/// In memory, the bucket was left one unit in debt, as if it were blocked.
#[tokio::test(start_paused = true)]
async fn a_reservation_that_leaves_takes_nothing_though_the_clock_was_set_back() {
    for (kind, is_set_before) in [(0, false), (0, true), (1, false), (1, true)] {
        let clock = ManualClock::new(START);
        let limiter = &of_both_kinds(&clock)[kind];
        let _all = at_once(limiter.limit(&FIVE).cost(5)).unwrap();
        let set_back = || clock.set(EARLIER);
        if is_set_before {
            set_back();
        }
        let [first, second] = [1, 7].map(|cost| reserve(limiter, &FIVE, cost));
        set_back();
        drop(second);
        assert_eq!(tokens(limiter, &FIVE), -1.0, "kind {kind}, set before: {is_set_before}");
        drop(first);
        assert_eq!(tokens(limiter, &FIVE), 0.0, "kind {kind}, set before: {is_set_before}");
        clock.set(START + SECOND);
        assert_eq!(tokens(limiter, &FIVE), 1.0);
    }
}

/// In memory, a refund was cut to one unit of debt, and the waiter went away empty.
#[tokio::test(start_paused = true)]
async fn what_comes_back_serves_the_waiters_though_the_clock_was_set_back() {
    for kind in 0..2 {
        let clock = ManualClock::new(START);
        let limiter = &of_both_kinds(&clock)[kind];
        let all = at_once(limiter.limit(&FIVE).cost(5)).unwrap();
        let mut waits = waiter(limiter, &FIVE, 1);
        let mut unused = waiter(limiter, &FIVE, 1);
        clock.set(EARLIER);
        at_once(all.refund()).unwrap();
        settled().await;
        assert!(poll(&mut waits).is_some(), "kind {kind}");
        assert_eq!(tokens(limiter, &FIVE), 3.0, "kind {kind}");
        assert!(poll(&mut unused).is_some(), "kind {kind}");
        assert_eq!(tokens(limiter, &FIVE), 3.0, "kind {kind}");
    }
    // One that was granted and has not run gives its token back. What the bucket had gained for it
    // is not there: no time has passed.
    let clock = ManualClock::new(START);
    let [limiter, _] = of_both_kinds(&clock);
    let _all = at_once(limiter.limit(&FIVE).cost(5)).unwrap();
    let [granted, mut next] = [1, 4].map(|cost| waiter(&limiter, &FIVE, cost));
    clock.set(START + SECOND);
    assert!(poll(&mut next).is_none());
    clock.set(EARLIER);
    drop(granted);
    assert!(poll(&mut next).is_none());
    assert_eq!(tokens(&limiter, &FIVE), -4.0);
    drop(next);
    assert_eq!(tokens(&limiter, &FIVE), 0.0);
}

/// A block holds also if the clock was set back before it, further than the block lasts.
#[tokio::test(start_paused = true)]
async fn a_block_after_the_clock_was_set_back_is_not_opened_by_those_who_leave() {
    let clock = ManualClock::new(START);
    let [limiter, _] = of_both_kinds(&clock);
    let paid = at_once(limiter.limit(&FIVE).cost(5)).unwrap();
    let [first, second] = [1, 2].map(|cost| reserve(&limiter, &FIVE, cost));
    clock.set(EARLIER);
    drop(first);
    assert_eq!(tokens(&limiter, &FIVE), -2.0);
    at_once(limiter.block(&FIVE, 5 * SECOND)).unwrap();
    drop(second);
    at_once(paid.refund()).unwrap();
    for at in [EARLIER, EARLIER + 4 * SECOND] {
        clock.set(at);
        assert!(at_once(limiter.limit(&FIVE).cost(0)).is_err(), "the block holds");
    }
}

/// A clock of a store that is a hundredth slower than that of this process.
#[derive(Debug)]
struct Slow(Instant);

impl Clock for Slow {
    fn now(&self) -> Timestamp {
        START + self.0.elapsed() * 99 / 100
    }
}

/// In a former version, the offset between the two clocks was that of hours before, so a turn came
/// early by all that they had drifted apart.
#[tokio::test(start_paused = true)]
async fn a_turn_after_hours_of_silence_is_not_early_by_the_drift_of_the_clocks() {
    let start = Instant::now();
    let store = Memory::new().clock(Slow(start));
    let limiter = RateLimiter::new(CircuitBreaker::new(store));
    // Keeps the queue for these hours.
    let _held = reserve(&limiter, &SPACED, 1);
    for _ in 0..3 {
        advance(HOUR).await;
        let own = reserve(&limiter, &SPACED, 10);
        let promised = own.at();
        let early = promised.since(own.ready().await.at());
        assert_eq!(early, Duration::ZERO);
        let early = promised.since(Slow(start).now());
        assert!(early <= ms(200), "{early:?} early by the clock of the store");
    }
}
