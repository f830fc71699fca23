//! Reservations: when they are ready, what happens to those that are dropped, and the bound.
//!
//! Time is tokio's paused clock; futures are polled by hand where the order matters.

use tollgate_testing::cases::seeds;
use tollgate_testing::dice::Dice;
use tollgate_testing::shared::Shared;

use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tokio::time::{Instant, advance};
use tollgate::algebra::{Bucket, check_history};
use tollgate::backend::Memory;
use tollgate::clock::{Clock, TokioClock};
use tollgate::limiter::{Permit, Reservation};
use tollgate::{HOUR, Limit, Quota, RateLimiter, SECOND, Timestamp};

use tollgate_testing::queue::{Late, Turn, poll, reserve, settled, waiter};
use tollgate_testing::{ask_and_drop, at_once, is_admitted};

const MILLI: Duration = Duration::from_millis(1);

/// One a second, and nothing saved up.
static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(1, SECOND).capacity(0));

fn limiter() -> RateLimiter {
    RateLimiter::new(Memory::new().clock(TokioClock::new()))
}

/// The tokens in the bucket, fraction and debt included.
fn held(limiter: &RateLimiter, limit: &Limit) -> String {
    at_once(limiter.peek(limit)).unwrap().tokens().to_string()
}

#[tokio::test(start_paused = true)]
async fn reserved_work_is_ready_at_its_instant_and_not_before() {
    let limiter = limiter();
    let start = Instant::now();
    let mut waiters: Vec<_> = (0..5).map(|_| waiter(&limiter, &SPACED, 1)).collect();
    for (nth, waiter) in (1..).zip(&mut waiters) {
        let due = start + nth * SECOND;
        advance(due - MILLI - Instant::now()).await;
        assert!(poll(waiter).is_none());
        advance(MILLI).await;
        let permit = poll(waiter).expect("its instant has come");
        assert_eq!(permit.at().since(permit.snapshot().at()), nth * SECOND);
    }
}

#[tokio::test(start_paused = true)]
async fn a_capacity_of_zero_spaces_work_evenly() {
    static CALLS: Limit = Limit::new("calls", Quota::token_bucket(8, SECOND).capacity(0));
    let limiter = limiter();
    let start = Instant::now();
    for nth in 1..=40 {
        let _permit = limiter.limit(&CALLS).reserve().await.unwrap().ready().await;
        assert_eq!(start.elapsed(), nth * SECOND / 8);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_would_wait_too_long_is_refused_at_once_and_takes_nothing() {
    let limiter = limiter();
    let within = |wait| at_once(limiter.limit(&SPACED).reserve_within(wait));
    let first = within(SECOND).unwrap();
    assert_eq!(first.wait(), SECOND, "{first:?}");
    let second = within(2 * SECOND - MILLI).unwrap_err();
    assert_eq!(second.retry_after(), Some(2 * SECOND), "{second:?}");
    assert_eq!(held(&limiter, &SPACED), "-1");
}

#[tokio::test(start_paused = true)]
async fn max_reserved_bounds_the_debt() {
    static FEW: Limit =
        Limit::new("few", Quota::token_bucket(1, SECOND).capacity(1).max_reserved(2));
    let limiter = limiter();
    let first = at_once(limiter.limit(&FEW).reserve()).unwrap();
    assert_eq!(first.wait(), Duration::ZERO);
    let _kept = [1, 1].map(|cost| reserve(&limiter, &FEW, cost));
    let fourth = at_once(limiter.limit(&FEW).reserve()).unwrap_err();
    assert!(fourth.is_refused(), "{fourth:?}");
    let error = at_once(limiter.limit(&FEW).cost(4).reserve()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cost of 4 can never fit limit `few` (it holds at most 1 and reserves at most 2: ask for \
         less, wait for longer, or raise these)"
    );
    // A full bucket would need three seconds for the fourth token.
    static MORE: Limit = Limit::new("more", Quota::token_bucket(1, SECOND).capacity(1));
    let within = |wait| at_once(limiter.limit(&MORE).cost(4).reserve_within(wait));
    assert!(within(3 * SECOND - MILLI).unwrap_err().is_too_large());
    assert_eq!(within(3 * SECOND).unwrap().wait(), 3 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn the_last_reservation_is_undone_exactly() {
    let limiter = limiter();
    let _first = reserve(&limiter, &SPACED, 1);
    for given_up in [true, false] {
        let last = reserve(&limiter, &SPACED, 3);
        assert_eq!(held(&limiter, &SPACED), "-4");
        if given_up {
            drop(last);
        } else {
            drop(last.ready());
        }
        assert_eq!(held(&limiter, &SPACED), "-1");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_given_up_moves_all_waiters_behind_it_forward() {
    let limiter = limiter();
    let start = Instant::now();
    let mut line: Vec<_> = (0..4).map(|_| waiter(&limiter, &SPACED, 1)).collect();
    drop(line.remove(1));
    // The last slot was undone, so a newcomer gets it.
    assert_eq!(held(&limiter, &SPACED), "-3");
    line.push(waiter(&limiter, &SPACED, 1));
    for (nth, waiter) in (1..).zip(line) {
        let _permit = waiter.await;
        assert_eq!(start.elapsed(), nth * SECOND);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_is_not_polled_is_in_the_queue_and_keeps_its_instant() {
    let limiter = limiter();
    let start = Instant::now();
    let first = waiter(&limiter, &SPACED, 1);
    let planned = reserve(&limiter, &SPACED, 1);
    let last = waiter(&limiter, &SPACED, 1);
    let at = planned.at();
    drop(first);
    assert_eq!(planned.at(), at);
    let _permit = last.await;
    assert_eq!(start.elapsed(), 2 * SECOND);
    let permit = at_once(planned.ready());
    assert_eq!(at.since(permit.at()), SECOND, "it was granted a second earlier");
}

#[tokio::test(start_paused = true)]
async fn a_kept_reservation_is_not_given_up() {
    let limiter = limiter();
    let permit = reserve(&limiter, &SPACED, 2).keep();
    assert_eq!(permit.at().since(permit.snapshot().at()), 2 * SECOND);
    drop(permit);
    assert_eq!(held(&limiter, &SPACED), "-2");
    // It can be settled like any other permit.
    at_once(reserve(&limiter, &SPACED, 2).keep().refund()).unwrap();
    assert_eq!(held(&limiter, &SPACED), "-2");
}

static FIVE: Limit = Limit::new("five", Quota::token_bucket(1, SECOND).capacity(5));

#[tokio::test(start_paused = true)]
async fn a_reservation_that_need_not_wait_is_ready_now_and_gives_its_tokens_back_when_dropped() {
    let limiter = limiter();
    let now = || at_once(limiter.limit(&FIVE).cost(3).reserve_within(Duration::ZERO)).unwrap();
    let reservation = now();
    assert_eq!(reservation.wait(), Duration::ZERO);
    assert_eq!(reservation.at(), reservation.snapshot().at());
    assert!(reservation.snapshot().fits() && reservation.snapshot().remaining() == 2);
    assert_eq!(held(&limiter, &FIVE), "2");
    drop(reservation);
    assert_eq!(held(&limiter, &FIVE), "5");
    drop(now().ready());
    assert_eq!(held(&limiter, &FIVE), "5");
    // Tokens that were refilled meanwhile are not given back a second time.
    let reservation = now();
    advance(2 * SECOND).await;
    drop(reservation);
    assert_eq!(held(&limiter, &FIVE), "5");

    // A call on several limits that need not wait gives back to each of them, also to one that is
    // named twice.
    let call = limiter.limit(&FIVE).cost(2).and(&FIVE).key("other").cost(4).and(&FIVE);
    let all = at_once(call.reserve()).unwrap();
    let left: Vec<_> = all.snapshots().map(|snapshot| snapshot.remaining()).collect();
    assert_eq!((all.wait(), left), (Duration::ZERO, vec![2, 1, 2]));
    drop(all);
    assert_eq!(held(&limiter, &FIVE), "5");
    assert_eq!(at_once(limiter.peek(&FIVE).key("other")).unwrap().remaining(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_need_not_wait_keeps_its_tokens_once_it_is_kept_or_ready() {
    let limiter = limiter();
    let reservation = at_once(limiter.limit(&FIVE).cost(2).reserve()).unwrap();
    let made = reservation.at();
    advance(SECOND).await;
    // It is ready at the first poll.
    let permit = at_once(reservation.ready());
    assert_eq!(permit.at(), made);
    drop(permit);
    assert_eq!(held(&limiter, &FIVE), "4");
    let permit = at_once(limiter.limit(&FIVE).cost(2).reserve()).unwrap().keep();
    assert_eq!((permit.at(), permit.remaining()), (made + SECOND, 2));
    drop(permit);
    assert_eq!(held(&limiter, &FIVE), "2");
    let permit = at_once(limiter.limit(&FIVE).cost(2).reserve()).unwrap().keep();
    assert_eq!(at_once(permit.refund()).unwrap().remaining(), 2);
}

/// In a former version, its tokens came back as a refund, and later reservations ran together with
/// newcomers: ten tokens at one instant, of a limit that holds five.
#[tokio::test(start_paused = true)]
async fn what_a_reservation_gives_back_goes_to_the_waiters() {
    let limiter = limiter();
    let first = at_once(limiter.limit(&FIVE).cost(5).reserve()).unwrap();
    let second = reserve(&limiter, &FIVE, 5);
    assert_eq!(second.wait(), 5 * SECOND);
    drop(first);
    assert!(!is_admitted(limiter.limit(&FIVE)));
    let _permit = at_once(second.ready());
    advance(4 * SECOND).await;
    assert!(!is_admitted(limiter.limit(&FIVE).cost(5)));
    advance(SECOND).await;
    assert!(is_admitted(limiter.limit(&FIVE).cost(5)));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_later_gets_the_tokens_of_dropped_reservations_back() {
    let (late, limiter, past) = Late::new();
    let reservation = limiter.limit(&FIVE).cost(2).reserve().await.unwrap();
    assert_eq!((reservation.wait(), held(&past, &FIVE).as_str()), (Duration::ZERO, "3"));
    let undone = late.close();
    drop(reservation);
    settled().await;
    assert_eq!(held(&past, &FIVE), "3");
    undone.let_go();
    settled().await;
    assert_eq!(held(&past, &FIVE), "5");

    // A call that is dropped before its answer loses nothing either.
    let answer = late.close();
    let mut call = Box::pin(limiter.limit(&FIVE).cost(2).reserve());
    assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(held(&past, &FIVE), "3");
    drop(call);
    answer.let_go();
    settled().await;
    assert_eq!(held(&past, &FIVE), "5");
}

/// They were undone only if no other request had charged the bucket since: a client that left a busy
/// service took a place from all until it counted as lost.
#[tokio::test(start_paused = true)]
async fn what_a_dropped_reservation_has_in_flight_comes_back_in_any_case() {
    static TEN: Limit = Limit::new("ten", Quota::in_flight(10).lost_after(HOUR));
    let left = |limiter: &RateLimiter| [&TEN, &FIVE].map(|limit| held(limiter, limit));
    let (late, limiter, other) = Late::new();
    let call = || limiter.limit(&TEN).cost(2).and(&FIVE).cost(2).reserve().into_future();
    let reservation = call().await.unwrap();
    let _runs = other.limit(&TEN).and(&FIVE).await.unwrap().in_flight();
    assert_eq!(left(&other), ["7", "2"]);
    drop(reservation);
    settled().await;
    // What has a rate stays taken, since the other request was decided by it.
    assert_eq!(left(&other), ["9", "2"]);
    // The call is dropped before its answer.
    let answer = late.close();
    ask_and_drop(call());
    let _runs = other.limit(&TEN).await.unwrap().in_flight();
    answer.let_go();
    settled().await;
    assert_eq!(left(&other), ["8", "2"]);
    // It is used.
    late.open();
    let guard = limiter.limit(&TEN).reserve().await.unwrap().ready().await.in_flight();
    settled().await;
    assert_eq!(held(&other, &TEN), "7");
    drop(guard);
    settled().await;
    assert_eq!(held(&other, &TEN), "8");
}

/// What no waiter uses any more was spent like a slot: it was missing until it counted as lost.
#[tokio::test(start_paused = true)]
async fn what_a_waiter_for_work_in_flight_does_not_use_comes_back_in_any_case() {
    static TWO: Limit = Limit::new("two", Quota::in_flight(2).lost_after(HOUR));
    let store = Shared::new();
    let (here, there) = (store.limiter(), store.limiter());
    let runs = at_once(here.limit(&TWO)).unwrap().in_flight();
    let _runs = at_once(here.limit(&TWO)).unwrap().in_flight();
    let [mut first, mut second] = [1, 1].map(|cost| waiter(&here, &TWO, cost));
    let [large, other] = [(&here, 2), (&there, 1)].map(|(by, cost)| reserve(by, &TWO, cost));
    assert!(poll(&mut first).is_none() && poll(&mut second).is_none());
    assert_eq!(held(&there, &TWO), "-5");
    // One is not awaited, one waits, and one runs by what another request gives back.
    drop(large);
    assert_eq!(held(&there, &TWO), "-3");
    drop(second);
    assert_eq!(held(&there, &TWO), "-2");
    drop(runs);
    let _runs = poll(&mut first).unwrap().in_flight();
    assert_eq!(held(&there, &TWO), "-1");
    drop(other);
    assert_eq!(held(&there, &TWO), "0");
}

/// A slot for a rate as well, which another process has charged since.
#[tokio::test(start_paused = true)]
async fn a_slot_that_is_spent_gives_back_what_it_has_in_flight() {
    static TWO: Limit = Limit::new("two", Quota::in_flight(2).lost_after(HOUR));
    let left = |limiter: &RateLimiter| [&SPACED, &TWO].map(|limit| held(limiter, limit));
    let (_late, limiter, other) = Late::new();
    for is_awaited in [false, true] {
        let reservation = limiter.limit(&SPACED).and(&TWO).reserve().await.unwrap();
        let mut turn = Box::pin(reservation.ready());
        if is_awaited {
            assert!(poll(&mut turn).is_none());
        }
        let _later = other.limit(&SPACED).reserve().await.unwrap().keep();
        let _runs = other.limit(&TWO).await.unwrap().in_flight();
        assert_eq!(left(&other), ["-2", "0"]);
        drop(turn);
        settled().await;
        settled().await;
        assert_eq!(left(&other), ["-2", "1"], "awaited: {is_awaited}");
        advance(2 * SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn all_waiters_behind_one_that_leaves_move_forward_whatever_they_cost() {
    let limiter = limiter();
    let start = Instant::now();
    let large = waiter(&limiter, &SPACED, 3);
    let larger = waiter(&limiter, &SPACED, 5);
    let small = waiter(&limiter, &SPACED, 2);
    let smaller = waiter(&limiter, &SPACED, 1);
    drop(large);
    assert_eq!(held(&limiter, &SPACED), "-8");
    let _permit = larger.await;
    assert_eq!(start.elapsed(), 5 * SECOND);
    let _permit = small.await;
    assert_eq!(start.elapsed(), 7 * SECOND);
    let _permit = smaller.await;
    assert_eq!(start.elapsed(), 8 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_not_polled_delays_no_other_and_is_granted_later() {
    let limiter = limiter();
    let mut idle = waiter(&limiter, &SPACED, 1);
    let next = waiter(&limiter, &SPACED, 1);
    let start = Instant::now();
    let _permit = next.await;
    assert_eq!(start.elapsed(), 2 * SECOND);
    assert!(poll(&mut idle).is_some());
}

/// A former version sorted waiters by the instants that they were promised first: a newcomer in a
/// slot that had been undone came before all that had moved forward.
#[tokio::test(start_paused = true)]
async fn newcomers_are_queued_behind_waiters_that_have_moved_forward() {
    let limiter = limiter();
    let mut line: Vec<_> = (0..4).map(|_| waiter(&limiter, &SPACED, 1)).collect();
    // The two that stay run at 1 s and 2 s now, and a newcomer at 3 s.
    line.drain(..2);
    line.push(waiter(&limiter, &SPACED, 1));
    for _ in 0..3 {
        advance(SECOND).await;
        for later in line[1..].iter_mut().rev() {
            assert!(poll(later).is_none());
        }
        assert!(poll(&mut line.remove(0)).is_some());
    }
}

/// What is given back moves the waiters forward, and no newcomer before them.
#[tokio::test(start_paused = true)]
async fn a_newcomer_after_a_settlement_comes_after_the_waiters() {
    let limiter = limiter();
    let start = Instant::now();
    let first = reserve(&limiter, &SPACED, 4).keep();
    let old = waiter(&limiter, &SPACED, 1);
    at_once(first.settle(1)).unwrap();
    let new = waiter(&limiter, &SPACED, 1);
    let _permit = old.await;
    assert_eq!(start.elapsed(), 2 * SECOND);
    let _permit = new.await;
    assert_eq!(start.elapsed(), 3 * SECOND);
}

/// In a former version, a waiter with the same instant took the slot, gained nothing, and made the
/// slot smaller.
#[tokio::test(start_paused = true)]
async fn a_slot_is_not_reassigned_to_a_waiter_with_the_same_instant() {
    let clock = TokioClock::new();
    let quota = Quota::fixed_window(4, SECOND).capacity(0).start(clock.now());
    let limit = Limit::new("windows", quota);
    let limiter = RateLimiter::new(Memory::new().clock(clock));
    let [large, small] = [3, 1].map(|cost| waiter(&limiter, &limit, cost));
    let mut next = waiter(&limiter, &limit, 3);
    drop(large);
    advance(SECOND).await;
    let _permit = small.await;
    assert!(poll(&mut next).is_some());
}

/// In a former version, each waiter that was not polled delayed the others by a tenth of a second
/// of its own.
#[tokio::test(start_paused = true)]
async fn many_waiters_that_are_not_polled_delay_the_others_no_longer_than_one() {
    let limiter = limiter();
    static FAST: Limit = Limit::new("fast", Quota::token_bucket(1_000, SECOND).capacity(0));
    let idle: Vec<_> = (0..50).map(|_| waiter(&limiter, &FAST, 1)).collect();
    let last = waiter(&limiter, &FAST, 1);
    let start = Instant::now();
    let _permit = last.await;
    assert!(start.elapsed() <= 251 * MILLI, "{:?}", start.elapsed());
    drop(idle);
}

/// In a former version, only its own timer would have woken it, which was set before it moved
/// forward.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_has_moved_forward_is_on_time_though_the_one_before_it_is_not_polled() {
    let limiter = limiter();
    let start = Instant::now();
    let mut line: Vec<_> = (0..52).map(|_| waiter(&limiter, &SPACED, 1)).collect();
    let last = tokio::spawn(line.remove(51));
    tokio::task::yield_now().await;
    line.drain(..50);
    let _permit = last.await.unwrap();
    assert_eq!(start.elapsed(), 2 * SECOND);
}

/// A slot that was reassigned to a smaller waiter is undone as a whole, once those behind it are.
#[tokio::test(start_paused = true)]
async fn waiters_that_leave_in_any_order_leave_nothing_of_a_queue_behind() {
    for order in [[0, 0, 0, 0, 0], [4, 3, 2, 1, 0], [2, 3, 0, 1, 0], [1, 0, 2, 0, 0]] {
        let limiter = limiter();
        let costs = [5, 4, 3, 2, 1];
        let mut line: Vec<_> = costs.map(|cost| waiter(&limiter, &SPACED, cost)).into();
        assert_eq!(held(&limiter, &SPACED), "-15");
        for leaves in order {
            drop(line.remove(leaves));
        }
        assert_eq!(held(&limiter, &SPACED), "0", "{order:?}");
    }
}

/// In a former version, a waker was dropped while its queue was locked, and the waiter that it
/// owned tried to leave that queue.
#[tokio::test(start_paused = true)]
async fn a_waker_may_own_another_waiter_of_its_queue() {
    struct Owner(#[expect(dead_code, reason = "dropped with the waker")] Mutex<Turn>);

    impl Wake for Owner {
        fn wake(self: Arc<Self>) {}
    }

    for leaves in [false, true] {
        let limiter = limiter();
        let owned = waiter(&limiter, &SPACED, 1);
        let mut own = Box::pin(reserve(&limiter, &SPACED, 1).ready());
        let owner = Waker::from(Arc::new(Owner(Mutex::new(owned))));
        assert!(own.as_mut().poll(&mut Context::from_waker(&owner)).is_pending());
        drop(owner);
        // The timer drops its clone of the waker.
        advance(3 * SECOND).await;
        tokio::task::yield_now().await;
        if !leaves {
            let _permit = poll(&mut own);
        }
        drop(own);
    }
}

#[tokio::test(start_paused = true)]
async fn settling_gives_back_and_takes_more_into_debt() {
    static LLM: Limit = Limit::new("llm", Quota::token_bucket(100, HOUR));
    let limiter = limiter();
    let take = |cost| at_once(limiter.limit(&LLM).cost(cost)).unwrap();
    let snapshot = at_once(take(60).settle(10)).unwrap();
    assert_eq!((snapshot.remaining(), snapshot.limit().name()), (90, "llm"));
    assert_eq!(at_once(take(90).settle(130)).unwrap().tokens().to_string(), "-40");
    assert!(!is_admitted(limiter.limit(&LLM)));
    limiter.reset(&LLM).await.unwrap();
    // The settlement is complete although its future is dropped.
    drop(take(70).into_owned().settle(0));
    assert_eq!(held(&limiter, &LLM), "100");
    assert!(at_once(take(1).settle(u64::MAX)).unwrap().tokens().to_string().starts_with('-'));
    // A permit that is dropped gives nothing back.
    limiter.reset(&LLM).await.unwrap();
    drop(take(5));
    assert_eq!(held(&limiter, &LLM), "95");
}

#[tokio::test(start_paused = true)]
async fn jitter_only_makes_waits_longer_and_is_the_same_for_the_same_seed() {
    let spread = 100 * MILLI;
    let run = || {
        let limiter = limiter().seed(7);
        let call = |limit| limiter.limit(limit).jitter(spread);
        let mut waits = Vec::new();
        for nth in 1..=50 {
            let reservation = at_once(call(&SPACED).reserve()).unwrap();
            let late = reservation.wait().checked_sub(nth * SECOND).expect("never earlier");
            assert!(late <= spread);
            waits.push(late);
            drop(reservation.keep());
            let refused = at_once(call(&SPACED)).unwrap_err();
            assert!(refused.is_too_large());
        }
        static ONE: Limit = Limit::new("one", Quota::token_bucket(1, SECOND));
        let _ = at_once(limiter.limit(&ONE)).unwrap();
        for _ in 0..50 {
            let promised = at_once(call(&ONE)).unwrap_err().retry_after().unwrap();
            let late = promised.checked_sub(SECOND).expect("never earlier");
            assert!(late <= spread);
            waits.push(late);
        }
        // Jitter does not decide whether a reservation is made.
        let exact = at_once(call(&ONE).reserve_within(SECOND)).unwrap();
        assert_eq!(exact.wait(), SECOND, "{exact:?}");
        waits
    };
    let waits = run();
    assert_eq!(waits, run());
    assert!(waits.iter().any(|late| *late > spread / 2), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn jitter_delays_the_work_by_as_much_as_was_promised() {
    let limiter = limiter().seed(1);
    let start = Instant::now();
    let call = limiter.limit(&SPACED).jitter(500 * MILLI).reserve();
    let reservation = call.await.unwrap();
    let promised = reservation.wait();
    let _permit = reservation.ready().await;
    assert!(start.elapsed() >= promised && start.elapsed() <= promised + MILLI, "{promised:?}");
}

/// What ran at which promised instant, and what was given back when.
#[derive(Debug, Default)]
struct Record {
    ran: Vec<(Timestamp, u64)>,
    given: Vec<(Timestamp, u64)>,
}

/// Sixty steps on one key: reservations, waiting, drops and plain requests, and settlements if
/// `settles`. The store is one that other processes charge as well. (`tests/memory/line` has the
/// histories of the memory store.)
async fn history(seed: u64, quota: &Quota, settles: bool) -> Record {
    let mut dice = Dice(seed);
    let limit = Limit::try_new("history", *quota).unwrap();
    let store = Shared::new();
    let limiter = store.limiter();
    let mut ran = Vec::new();
    let mut waiting: Vec<(u64, Turn)> = Vec::new();
    let mut planned: Vec<(u64, Reservation)> = Vec::new();
    let mut permits: Vec<(u64, Permit<'static>)> = Vec::new();
    let mut given = Vec::new();

    let serve = |waiting: &mut Vec<(u64, Turn)>,
                 ran: &mut Vec<(Timestamp, u64)>,
                 permits: &mut Vec<(u64, Permit<'static>)>| {
        waiting.retain_mut(|(cost, waiter)| {
            let Some(permit) = poll(waiter) else { return true };
            assert!(permit.at() <= store.now(), "early, seed {seed}");
            ran.push((permit.at(), *cost));
            permits.push((*cost, permit));
            false
        });
    };

    for _ in 0..60 {
        advance([0, 0, 1, 2, 5, 30][dice.below(6) as usize] * MILLI).await;
        // Some are not polled when their instant has come, and dropped later.
        if dice.below(4) > 0 {
            serve(&mut waiting, &mut ran, &mut permits);
        }
        let cost = 1 + dice.below(6);
        match dice.below(10) {
            0..4 => match at_once(limiter.limit(&limit).cost(cost).reserve()) {
                Ok(reservation) if dice.below(4) == 0 => planned.push((cost, reservation)),
                Ok(reservation) => {
                    waiting.push((cost, Box::pin(reservation.ready())));
                    serve(&mut waiting, &mut ran, &mut permits);
                }
                Err(error) => assert!(!error.is_unavailable(), "{error}"),
            },
            4..7 if !waiting.is_empty() => {
                let nth = dice.below(waiting.len() as u64) as usize;
                drop(waiting.remove(nth));
            }
            7 if !planned.is_empty() => {
                let nth = dice.below(planned.len() as u64) as usize;
                let (cost, reservation) = planned.remove(nth);
                match dice.below(3) {
                    0 => drop(reservation),
                    1 => waiting.push((cost, Box::pin(reservation.ready()))),
                    _ => ran.push((reservation.keep().at(), cost)),
                }
            }
            8 if settles && !permits.is_empty() => {
                let nth = dice.below(permits.len() as u64) as usize;
                let (cost, permit) = permits.swap_remove(nth);
                let actual = dice.below(cost + 1);
                at_once(permit.settle(actual)).unwrap();
                given.push((store.now(), cost - actual));
            }
            _ => {
                if let Ok(permit) = at_once(limiter.limit(&limit).cost(cost)) {
                    ran.push((permit.at(), cost));
                }
            }
        }
    }
    for (cost, reservation) in planned {
        ran.push((reservation.keep().at(), cost));
    }
    let mut rounds = 0;
    while !waiting.is_empty() {
        advance(60 * SECOND).await;
        serve(&mut waiting, &mut ran, &mut permits);
        rounds += 1;
        assert!(rounds < 1_000, "a reservation is never ready, seed {seed}");
    }
    Record { ran, given }
}

/// The first window that exceeds its bound. What was given back up to the end of a window may be
/// used again in it.
fn net_violation(quota: &Quota, record: &Record) -> Option<(Timestamp, Timestamp)> {
    let bucket = Bucket::new(quota).unwrap();
    let tokens = |units: u64| units.div_ceil(bucket.token());
    let mut ran = record.ran.clone();
    ran.sort_unstable();
    ran.iter().enumerate().find_map(|(first, &(from, _))| {
        let (mut used, mut largest) = (0, quota.get_capacity());
        ran[first..].iter().find_map(|&(to, cost)| {
            used += cost;
            largest = largest.max(cost);
            let steps = u64::try_from(to.since(from).as_micros()).unwrap() / bucket.step() + 1;
            let spared = record.given.iter().filter(|(at, _)| *at <= to);
            let spared: u64 = spared.map(|(_, tokens)| tokens).sum();
            (used > largest + tokens(steps * bucket.gain()) + spared).then_some((from, to))
        })
    })
}

async fn histories(seeds: std::ops::Range<u64>, quota: impl Fn(u64, Duration) -> Quota) {
    for seed in seeds {
        let mut dice = Dice(seed ^ 0xabcd);
        let (rate, period) = (1 + dice.below(7), (1 + dice.below(20)) as u32 * MILLI);
        let quota = quota(rate, period).capacity(dice.below(11));
        let Record { ran, .. } = history(seed, &quota, false).await;
        let violation = check_history(&quota, &ran).unwrap();
        assert_eq!(violation, None, "seed {seed}, {quota}: {ran:?}");
        if seed % 4 == 0 {
            let record = history(seed, &quota, true).await;
            assert_eq!(net_violation(&quota, &record), None, "seed {seed}, {quota}: {record:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn histories_of_token_buckets_are_within_the_bound() {
    histories(seeds(625), Quota::token_bucket).await;
}

#[tokio::test(start_paused = true)]
async fn histories_of_fixed_windows_are_within_the_bound() {
    histories(seeds(625), Quota::fixed_window).await;
}
