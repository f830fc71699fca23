//! Waiting behind a wrapper around the memory store: in its lines, if the wrapper hands them on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::{Instant, sleep};
use tollgate::backend::{Adjustment, Answer, Applied, Backend, BucketId, Charge, Memory};
use tollgate::clock::TokioClock;
use tollgate::{Limit, Quota, RateLimiter, SECOND};
use tollgate_testing::queue::{ms, poll, reserve, settled, tokens, waiter};

const SLOW: Limit = Limit::new("slow", Quota::token_bucket(1, SECOND).max_reserved(20));

/// Counts the calls, and changes none.
#[derive(Clone, Debug)]
struct Counting {
    inner: Arc<dyn Backend>,
    calls: Arc<AtomicUsize>,
}

impl Counting {
    fn count(&self) -> &dyn Backend {
        self.calls.fetch_add(1, Ordering::Relaxed);
        &*self.inner
    }
}

impl Backend for Counting {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        self.count().apply(charges)
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        self.count().adjust(adjustments)
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.count().reset(ids)
    }

    fn lines(&self) -> Option<&Memory> {
        self.inner.lines()
    }
}

fn counting() -> (RateLimiter, Arc<AtomicUsize>) {
    let inner = Arc::new(Memory::new().clock(TokioClock::new()));
    let counting = Counting { inner, calls: Arc::default() };
    let calls = Arc::clone(&counting.calls);
    (RateLimiter::new(counting), calls)
}

/// A queue of the limiter itself would offer the two tokens of the one that leaves to the first that
/// they suffice for, and that is the last.
#[tokio::test(start_paused = true)]
async fn waiters_behind_a_wrapper_move_forward_in_their_order() {
    let (limiter, calls) = counting();
    assert!(limiter.limit(&SLOW).await.is_ok());
    let [first, mut second, mut third] = [2, 3, 1].map(|cost| waiter(&limiter, &SLOW, cost));
    assert_eq!((tokens(&limiter, &SLOW), limiter.peek(&SLOW).waiting()), (-6.0, 3));
    drop(first);
    assert_eq!((tokens(&limiter, &SLOW), limiter.peek(&SLOW).waiting()), (-4.0, 2));
    tokio::time::advance(ms(2_900)).await;
    settled().await;
    assert!(poll(&mut second).is_none() && poll(&mut third).is_none());
    tokio::time::advance(ms(150)).await;
    settled().await;
    assert!(poll(&mut second).is_some() && poll(&mut third).is_none());
    tokio::time::advance(SECOND).await;
    settled().await;
    assert!(poll(&mut third).is_some());
    // Reservations go to the lines, past the wrapper; all other calls come to it.
    assert_eq!(calls.load(Ordering::Relaxed), 3);
}

/// What a settlement returns goes to the first in line, and a reset empties no line.
#[tokio::test(start_paused = true)]
async fn tokens_that_come_back_through_a_wrapper_go_to_the_first_in_line() {
    let (limiter, calls) = counting();
    let permit = limiter.limit(&SLOW).await.unwrap();
    let held = reserve(&limiter, &SLOW, 1);
    let mut second = waiter(&limiter, &SLOW, 1);
    let before = calls.load(Ordering::Relaxed);
    permit.refund().await.unwrap();
    settled().await;
    assert_eq!(calls.load(Ordering::Relaxed), before + 1);
    assert!(poll(&mut second).is_none(), "the one that is held is before it");
    drop(held);
    assert!(poll(&mut second).is_some());
    assert_eq!(tokens(&limiter, &SLOW), 0.0);
}

/// The timer of a line went with the wrapper whose request had begun it.
#[tokio::test(start_paused = true)]
async fn waiters_are_served_in_time_when_the_wrapper_of_another_is_gone() {
    let inner: Arc<dyn Backend> = Arc::new(Memory::new().clock(TokioClock::new()));
    let limiter = RateLimiter::new(Arc::clone(&inner));
    let wrapped = RateLimiter::new(Counting { inner, calls: Arc::default() });
    assert!(limiter.limit(&SLOW).await.is_ok());
    let begun = Instant::now();
    let mut first = waiter(&wrapped, &SLOW, 1);
    let [second, third] = [1, 1].map(|cost| waiter(&limiter, &SLOW, cost));
    sleep(ms(1_001)).await;
    assert!(poll(&mut first).is_some());
    drop((first, wrapped));
    sleep(ms(300)).await;
    // The third moves forward to two seconds.
    drop(second);
    drop(third.await);
    assert_eq!(begun.elapsed().as_millis() / 100, 20);
}
