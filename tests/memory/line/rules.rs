//! The queue of the memory store together with other limiters on the store, housekeeping, blocks,
//! resets, changed quotas, futures that are not polled, and runtimes that shut down.

use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::{Instant, advance, sleep};
use tollgate::backend::Memory;
use tollgate::clock::{ManualClock, TokioClock};
use tollgate::limiter::Permit;
use tollgate::{DAY, HOUR, Limit, Quota, RateLimiter, SECOND};

use tollgate_testing::queue::{lines, ms, paused, poll, reserve, settled, tokens, waiter};
use tollgate_testing::{START, at_once, is_admitted, remaining};

/// One a second, and nothing saved up.
static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(1, SECOND).capacity(0));
static FIVE: Limit = Limit::new("five", Quota::token_bucket(1, SECOND).capacity(5));

#[track_caller]
fn take(limiter: &RateLimiter, limit: &Limit, cost: u64) -> Permit<'static> {
    at_once(limiter.limit(limit).cost(cost)).unwrap().into_owned()
}

/// Forty requests at once. Their actual costs together fit into the bucket.
#[tokio::test(start_paused = true)]
async fn work_that_costs_less_than_it_paid_moves_all_waiters_forward() {
    static LLM: Limit = Limit::new("llm", Quota::token_bucket(10_000, SECOND));
    let (limiter, start) = (paused(), Instant::now());
    let work = (0..40).map(|_| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let reservation = limiter.limit(&LLM).cost(1_000).reserve().await.unwrap();
            let permit = reservation.ready().await;
            let ran = start.elapsed();
            sleep(ms(20)).await;
            permit.settle(200).await.unwrap();
            ran
        })
    });
    let work: Vec<_> = work.collect();
    let mut ran = Vec::new();
    for one in work {
        ran.push(one.await.unwrap());
    }
    assert!(ran.is_sorted(), "{ran:?}");
    assert!(ran[39] <= ms(140), "{ran:?}");
    advance(SECOND).await;
    assert_eq!((tokens(&limiter, &LLM), lines(&limiter)), (10_000.0, 0));
}

/// In the first version, the bucket looked untouched after the two, and eight tokens ran at one
/// instant.
#[tokio::test(start_paused = true)]
async fn a_settlement_and_an_equal_charge_leave_nothing_to_be_undone() {
    let limiter = paused();
    let first = take(&limiter, &FIVE, 5);
    let gone = reserve(&limiter, &FIVE, 5);
    at_once(first.settle(2)).unwrap();
    let three = reserve(&limiter, &FIVE, 3);
    assert_eq!(three.wait(), 5 * SECOND);
    drop(gone);
    let last = at_once(limiter.limit(&FIVE).cost(5).reserve()).unwrap();
    // 5 came back in all, of which 3 are granted now.
    assert_eq!(at_once(three.ready()).at(), last.snapshot().at());
    assert_eq!(last.wait(), 5 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn limiters_on_one_store_share_its_queues() {
    let memory = Arc::new(Memory::new().clock(TokioClock::new()));
    let [one, other] = [(); 2].map(|()| RateLimiter::new(Arc::clone(&memory)));
    let first = waiter(&one, &SPACED, 3);
    let second = waiter(&other, &SPACED, 1);
    assert_eq!(one.peek(&SPACED).waiting(), 2);
    let start = Instant::now();
    drop(first);
    let _permit = second.await;
    assert_eq!(start.elapsed(), SECOND);
    assert_eq!(other.peek(&SPACED).waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn how_many_wait_and_for_how_long_can_be_read() {
    let limiter = paused();
    let peek = limiter.peek(&SPACED).key("alice");
    let stand = || (peek.waiting(), peek.longest_wait(), peek.left_early());
    assert_eq!(stand(), (0, Duration::ZERO, 0));
    let call = || limiter.limit(&SPACED).key("alice").cost(2).reserve();
    let [first, second, third] = [(); 3].map(|()| at_once(call()).unwrap());
    assert_eq!(stand(), (3, 6 * SECOND, 0));
    assert_eq!(limiter.peek(&SPACED).waiting(), 0, "that is another key");
    drop(second);
    assert_eq!(stand(), (2, 4 * SECOND, 1));
    drop(first.keep());
    assert_eq!(stand(), (1, 4 * SECOND, 1));
    advance(3 * SECOND).await;
    assert_eq!(stand(), (1, SECOND, 1));
    drop(third);
    assert_eq!(stand(), (0, Duration::ZERO, 0));
}

#[tokio::test(start_paused = true)]
async fn ten_waiters_in_a_row_that_are_never_polled_again_delay_no_other() {
    let (limiter, start) = (paused(), Instant::now());
    let paid = reserve(&limiter, &SPACED, 5).keep();
    let stuck: Vec<_> = (0..10).map(|_| waiter(&limiter, &SPACED, 1)).collect();
    let last = waiter(&limiter, &SPACED, 1);
    at_once(paid.settle(1)).unwrap();
    let _permit = last.await;
    assert_eq!(start.elapsed(), 12 * SECOND);
    drop(stuck);
}

#[tokio::test(start_paused = true)]
async fn waiters_from_before_a_block_keep_their_instants_and_later_ones_wait_for_its_end() {
    let (limiter, start) = (paused(), Instant::now());
    let first = waiter(&limiter, &SPACED, 2);
    let second = waiter(&limiter, &SPACED, 2);
    let gone = waiter(&limiter, &SPACED, 2);
    at_once(limiter.block(&SPACED, 10 * SECOND)).unwrap();
    let after = waiter(&limiter, &SPACED, 1);
    // Tokens that come back during the block do not open the bucket.
    drop(gone);
    assert!(!is_admitted(limiter.limit(&SPACED).cost(0)));
    for (one, at) in [(first, 2), (second, 4), (after, 11)] {
        let _permit = one.await;
        assert_eq!(start.elapsed(), at * SECOND);
    }
}

#[tokio::test(start_paused = true)]
async fn a_block_does_not_end_early_for_a_waiter_although_all_before_it_leave() {
    let limiter = paused();
    let _empty = take(&limiter, &FIVE, 5);
    let before: Vec<_> = (0..5).map(|_| waiter(&limiter, &FIVE, 4)).collect();
    at_once(limiter.block(&FIVE, 30 * SECOND)).unwrap();
    let start = Instant::now();
    let after = waiter(&limiter, &FIVE, 1);
    drop(before);
    assert!(!is_admitted(limiter.limit(&FIVE)));
    let _permit = after.await;
    assert!(start.elapsed() >= 30 * SECOND && start.elapsed() <= 31 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn after_a_reset_the_waiters_go_on_from_a_full_bucket() {
    let limiter = paused();
    let _empty = take(&limiter, &FIVE, 5);
    let mut line: Vec<_> = [3, 2, 1, 4].map(|cost| waiter(&limiter, &FIVE, cost)).into();
    at_once(limiter.reset(&FIVE)).unwrap();
    for granted in line.drain(..2) {
        let _permit = at_once(granted);
    }
    let start = Instant::now();
    for (one, at) in line.into_iter().zip([1, 5]) {
        let _permit = one.await;
        assert_eq!(start.elapsed(), at * SECOND);
    }
    at_once(limiter.reset(&FIVE)).unwrap();
    assert_eq!((tokens(&limiter, &FIVE), lines(&limiter)), (5.0, 0));
}

/// The head of the queue may have saved up more than the capacity.
#[tokio::test(start_paused = true)]
async fn a_reset_delays_no_waiter() {
    let limiter = paused();
    let start = Instant::now();
    let large = waiter(&limiter, &SPACED, 10);
    advance(9 * SECOND).await;
    at_once(limiter.reset(&SPACED)).unwrap();
    let _permit = large.await;
    assert_eq!(start.elapsed(), 10 * SECOND);
}

/// In a former version, a reset that forgave a kept reservation passed all that was saved up for it
/// on to the waiters behind: 9 tokens ran at one instant, where the capacity is 5.
#[tokio::test(start_paused = true)]
async fn a_reset_passes_on_no_more_than_the_capacity_of_what_was_saved_up_for_others() {
    let limiter = paused();
    let _empty = take(&limiter, &FIVE, 5);
    let _kept = reserve(&limiter, &FIVE, 10).keep();
    let mut line: Vec<_> = (0..9).map(|_| waiter(&limiter, &FIVE, 1)).collect();
    advance(9 * SECOND).await;
    at_once(limiter.reset(&FIVE)).unwrap();
    let granted = line.iter_mut().filter_map(poll).count();
    assert_eq!(granted, 5);
}

#[tokio::test(start_paused = true)]
async fn a_faster_plan_moves_the_waiters_forward_and_a_slower_one_delays_none() {
    let plan = |quota| Limit::new("plan", quota);
    let (small, large) = (
        plan(Quota::token_bucket(1, SECOND).capacity(2)),
        plan(Quota::token_bucket(10, SECOND).capacity(10)),
    );
    // It holds the 25 tokens that are used, so it may reserve, and the bucket counts in it.
    let slower = plan(Quota::token_bucket(1, SECOND).capacity(25));
    // Of the large plan, 17 of 10 are used then: the last waiter is granted when 7 have come in. The
    // slower plan has 15 left for the three.
    for (now, then, told, runs) in
        [(&small, &large, ms(15_000), ms(700)), (&large, &slower, ms(1_500), ms(0))]
    {
        let limiter = paused();
        let start = Instant::now();
        let _empty = take(&limiter, now, now.quota().get_capacity());
        let waiting: Vec<_> = (0..3).map(|_| waiter(&limiter, now, 5)).collect();
        // The first request under the other quota.
        let newcomer = at_once(limiter.limit(then).cost(1).reserve()).unwrap();
        assert!(newcomer.wait() >= ms(800), "{newcomer:?}");
        assert!(waiting.len() == 3 && limiter.peek(then).longest_wait() <= told);
        for one in waiting {
            let _permit = one.await;
        }
        assert_eq!(start.elapsed(), runs);
    }
    // One that does not hold them is refused, and the waiters run as they were told.
    let limiter = paused();
    let start = Instant::now();
    let _empty = take(&limiter, &large, 10);
    let waiting: Vec<_> = (0..3).map(|_| waiter(&limiter, &large, 5)).collect();
    let refused = at_once(limiter.limit(&small).cost(1).reserve()).unwrap_err();
    assert!(refused.is_refused(), "25 are used, and it holds 2");
    for one in waiting {
        let _permit = one.await;
    }
    assert_eq!(start.elapsed(), ms(1_500));
}

/// A store for 8 keys, and a limiter on it.
fn small_store() -> (Arc<Memory>, RateLimiter) {
    let memory = Arc::new(Memory::new().max_keys(8).clock(TokioClock::new()));
    (Arc::clone(&memory), RateLimiter::new(memory))
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_requests_wait_for_is_not_evicted() {
    static DAILY: Limit = Limit::new("daily", Quota::fixed_window(1_000, DAY));
    let (memory, limiter) = small_store();
    let first = waiter(&limiter, &SPACED, 1);
    let second = waiter(&limiter, &SPACED, 1);
    for key in 0_u64..100 {
        assert!(is_admitted(limiter.limit(&DAILY).key(key).cost(500)));
    }
    assert_eq!((tokens(&limiter, &SPACED), memory.len()), (-2.0, 8));
    let start = Instant::now();
    for one in [first, second] {
        let _permit = one.await;
    }
    assert_eq!(start.elapsed(), 2 * SECOND);
    // Without waiters, it is the bucket closest to full.
    for key in 100_u64..120 {
        assert!(is_admitted(limiter.limit(&DAILY).key(key).cost(500)));
    }
    assert_eq!(memory.len(), 8);
}

/// In a former version, the order of eviction ignored that the tokens had come back.
#[tokio::test(start_paused = true)]
async fn a_bucket_that_got_tokens_back_is_evicted_before_those_that_are_further_from_full() {
    static DAILY: Limit = Limit::new("daily", Quota::token_bucket(1_000, DAY));
    for seed in 0_u64..200 {
        let (_, limiter) = small_store();
        let permits: Vec<_> = (0_u64..8)
            .map(|key| {
                let call = limiter.limit(&DAILY).key(key).cost(500 + key * 10);
                at_once(call).unwrap().into_owned()
            })
            .collect();
        // One scan ranks the buckets; the first of them is evicted.
        assert!(is_admitted(limiter.limit(&DAILY).key("new").cost(900)));
        let refunded = usize::try_from(1 + seed % 7).unwrap();
        let permit = permits.into_iter().nth(refunded).unwrap();
        at_once(permit.settle(10)).unwrap();
        assert!(is_admitted(limiter.limit(&DAILY).key("newer").cost(900)));
        for key in 1_u64..8 {
            let is_evicted = remaining(&limiter, &DAILY, key) == 1_000;
            assert_eq!(is_evicted, key == refunded as u64, "{key} of {refunded}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn kept_reservations_are_cleared_away_after_their_instants() {
    let memory = Arc::new(Memory::new().clock(TokioClock::new()));
    let limiter = RateLimiter::new(Arc::clone(&memory));
    for key in 0_u64..100 {
        drop(at_once(limiter.limit(&FIVE).key(key).cost(7).reserve()).unwrap().keep());
    }
    assert_eq!((lines(&limiter), memory.len()), (100, 100));
    advance(HOUR).await;
    memory.purge();
    assert_eq!((lines(&limiter), memory.len()), (0, 0));
}

/// A waker that calls the limiter, as an executor that polls in place may do.
struct Meddler(RateLimiter);

impl Wake for Meddler {
    fn wake(self: Arc<Self>) {
        let _ = tokens(&self.0, &FIVE);
        drop(at_once(self.0.limit(&FIVE).cost(1).reserve()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_waker_may_call_the_limiter() {
    let limiter = paused();
    let paid = take(&limiter, &FIVE, 5);
    let mut first = waiter(&limiter, &FIVE, 4);
    let waker = Waker::from(Arc::new(Meddler(limiter.clone())));
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    at_once(paid.settle(1)).unwrap();
    assert!(poll(&mut first).is_some());
}

/// The timer of a queue runs in the runtime of one of its waiters.
#[test]
fn a_queue_survives_the_runtime_of_its_timer() {
    let runtime =
        || Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (here, there) = (runtime(), runtime());
    let limiter = RateLimiter::new(Memory::new().clock(ManualClock::new(START)));
    let (paid, first) = here.block_on(async {
        let paid = reserve(&limiter, &SPACED, 5).keep();
        let first = waiter(&limiter, &SPACED, 1);
        at_once(paid.settle(4)).unwrap();
        settled().await;
        ((), first)
    });
    there.block_on(async {
        let start = Instant::now();
        let second = tokio::spawn(waiter(&limiter, &SPACED, 1));
        settled().await;
        here.shutdown_background();
        let _permit = second.await.unwrap();
        assert_eq!(start.elapsed(), 6 * SECOND);
    });
    drop((paid, first));
}
