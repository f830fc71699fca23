//! Calls, and what they tell.

use tollgate_testing::journal::Journal;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::clock::ManualClock;
use tollgate::limiter::{Decision, Outcome};
use tollgate::{HOUR, Limit, MINUTE, Observer, Quota, RateLimiter, SECOND};
use tollgate_testing::START;
use tollgate_testing::shared::Shared;
use tollgate_testing::{at_once, limiter};

static TWO: Limit = Limit::new("two", Quota::token_bucket(2, MINUTE));
static HOURLY: Limit = Limit::new("hourly", Quota::token_bucket(100, HOUR));
static SHARDS: Limit = Limit::new("shards", Quota::token_bucket(40, HOUR).shards(2));
static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(1, SECOND).max_reserved(5));

fn observed() -> (Journal, RateLimiter) {
    Journal::of(&limiter(&ManualClock::new(START)))
}

#[test]
fn a_call_on_one_limit_is_told_once_with_its_outcome() {
    let (journal, limiter) = observed();
    assert!(at_once(limiter.limit(&TWO).key("alice").cost(2)).is_ok());
    assert_eq!(journal.take(), ["handler two admitted 2 *"]);
    assert!(at_once(limiter.limit(&TWO).key("alice")).is_err());
    assert_eq!(journal.take(), ["handler two refused 1 after 30s *"]);
    assert!(at_once(limiter.limit(&TWO).key("alice").cost(3)).is_err());
    assert_eq!(journal.take(), ["handler two too_large 3 *"]);
    assert!(at_once(limiter.limit(&SHARDS).cost(12)).is_ok());
    assert_eq!(journal.take(), ["handler shards admitted 12 *"]);
    // With jitter, a call takes another way.
    assert!(at_once(limiter.limit(&TWO).key("bob").jitter(SECOND)).is_ok());
    assert_eq!(journal.take(), ["handler two admitted 1 *"]);
}

#[test]
fn a_call_on_several_limits_is_told_for_each_of_them() {
    let (journal, limiter) = observed();
    let both = |cost| limiter.limit(&HOURLY).key("alice").and(&TWO).key("alice").cost(cost);
    assert!(at_once(both(2)).is_ok());
    assert_eq!(journal.take(), ["handler hourly admitted 1 *", "handler two admitted 2"]);
    assert!(at_once(both(1)).is_err());
    let refused = ["handler hourly not_taken 1", "handler two refused 1 after 30s *"];
    assert_eq!(journal.take(), refused);
    assert!(at_once(both(3)).is_err());
    assert_eq!(journal.take(), ["handler hourly not_taken 1", "handler two too_large 3 *"]);
    // Of two that refuse, the longer wait stands for the request.
    let call = limiter.limit(&TWO).key("alice").and(&HOURLY).key("alice").cost(100);
    assert!(at_once(call.and(&TWO).key("carol")).is_err());
    let refused = [
        "handler two refused 1 after 30s",
        "handler hourly refused 100 after 36s *",
        "handler two not_taken 1",
    ];
    assert_eq!(journal.take(), refused);
}

#[test]
fn of_two_demands_on_one_limit_the_one_that_is_short_has_refused() {
    let (journal, limiter) = observed();
    at_once(limiter.limit(&TWO).key("alice").cost(2)).unwrap();
    journal.take();
    at_once(limiter.limit(&TWO).key("carol").and(&TWO).key("alice")).unwrap_err();
    let refused = ["handler two not_taken 1", "handler two refused 1 after 30s *"];
    assert_eq!(journal.take(), refused);
    at_once(limiter.limit(&TWO).key("carol").and(&TWO).key("alice").cost(3)).unwrap_err();
    assert_eq!(journal.take(), ["handler two not_taken 1", "handler two too_large 3 *"]);
    // Those on one bucket cost too much together.
    let call = limiter.limit(&TWO).key("a").cost(2).and(&TWO).key("a").cost(1);
    at_once(call.and(&TWO).key("b").cost(2)).unwrap_err();
    let denied =
        ["handler two not_taken 2", "handler two too_large 1 *", "handler two not_taken 2"];
    assert_eq!(journal.take(), denied);
}

/// A store that the limiter does not know as memory takes another way through the code.
#[tokio::test(start_paused = true)]
async fn calls_on_other_stores_are_told_alike() {
    let (journal, limiter) = Journal::of(&Shared::new().limiter());
    assert!(limiter.limit(&TWO).key("alice").cost(2).await.is_ok());
    assert!(limiter.limit(&TWO).key("alice").await.is_err());
    assert!(limiter.limit(&HOURLY).and(&TWO).key("alice").await.is_err());
    assert!(limiter.limit(&SHARDS).cost(12).await.is_ok());
    let told = [
        "handler two admitted 2 *",
        "handler two refused 1 after 30s *",
        "handler hourly not_taken 1",
        "handler two refused 1 after 30s *",
        "handler shards admitted 12 *",
    ];
    assert_eq!(journal.take(), told);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_is_told_as_admitted_reserved_or_refused() {
    for limiter in [tollgate_testing::queue::paused(), Shared::new().limiter()] {
        let (journal, limiter) = Journal::of(&limiter);
        let now = limiter.limit(&SPACED).reserve().await.unwrap();
        assert_eq!(journal.take(), ["handler spaced admitted 1 *"]);
        let later = limiter.limit(&HOURLY).and(&SPACED).cost(2).reserve().await.unwrap();
        let told = [
            "handler hourly admitted 1",
            "handler spaced reserved 2 after 2s *",
            "handler spaced joined after 0ns",
        ];
        assert_eq!(journal.take(), told);
        assert!(limiter.limit(&SPACED).reserve_within(SECOND).await.unwrap_err().is_refused());
        assert_eq!(journal.take(), ["handler spaced refused 1 after 3s *"]);
        assert!(limiter.limit(&SPACED).cost(7).reserve().await.unwrap_err().is_too_large());
        assert_eq!(journal.take(), ["handler spaced too_large 7 *"]);
        drop((now.keep(), later.keep()));
        assert_eq!(journal.take(), ["handler spaced kept after 0ns"]);
    }
}

/// `Limit::replace` gives other numbers; the name and the cost stay.
#[test]
fn a_limit_with_replaced_numbers_is_told_with_them() {
    #[derive(Default)]
    struct Capacity(AtomicU64);
    impl Observer for Capacity {
        fn on_decision(&self, decision: &Decision<'_>) {
            self.0.store(decision.limit().quota().get_capacity(), Ordering::Relaxed);
        }
    }
    let capacity = Arc::new(Capacity::default());
    let limiter = limiter(&ManualClock::new(START)).observe(Arc::clone(&capacity));
    assert!(at_once(limiter.limit(&TWO)).is_ok());
    assert_eq!(capacity.0.load(Ordering::Relaxed), 2);
    limiter.replace(&TWO, Quota::token_bucket(9, MINUTE)).unwrap();
    assert!(at_once(limiter.limit(&TWO)).is_ok());
    assert_eq!(capacity.0.load(Ordering::Relaxed), 9);
}

#[test]
fn what_decides_nothing_is_not_told() {
    let (journal, limiter) = observed();
    let permit = at_once(limiter.limit(&HOURLY).cost(10)).unwrap();
    journal.take();
    assert!(at_once(permit.settle(4)).is_ok());
    assert!(at_once(limiter.peek(&HOURLY).cost(1_000)).is_ok());
    assert!(at_once(limiter.penalize(&HOURLY, 20)).is_ok());
    assert!(at_once(limiter.block(&HOURLY, MINUTE)).is_ok());
    assert!(at_once(limiter.reset(&HOURLY)).is_ok());
    drop(limiter.limit(&HOURLY)); // never polled
    assert_eq!(limiter.peek(&HOURLY).waiting(), 0);
    limiter.drain(SECOND);
    assert_eq!(journal.take(), [""; 0]);
}

#[test]
fn a_limiter_that_is_switched_off_tells_nothing() {
    let (journal, limiter) = observed();
    let off = limiter.clone().enabled(false).observe(journal.clone());
    assert!(!at_once(off.limit(&TWO).cost(100)).unwrap().is_decided());
    assert!(at_once(off.limit(&TWO).reserve()).is_ok());
    assert_eq!(journal.take(), [""; 0]);
    assert!(at_once(limiter.limit(&TWO)).is_ok());
    assert_eq!(journal.take().len(), 1);
}

#[test]
fn observers_belong_to_a_handle_and_its_later_clones() {
    let plain = limiter(&ManualClock::new(START));
    let (journal, observed) = Journal::of(&plain);
    let (second, both) = Journal::of(&observed);
    let elsewhere = observed.with_backend(tollgate::backend::Memory::new());
    for (limiter, told) in
        [(&plain, [0, 0]), (&observed, [1, 0]), (&both, [1, 1]), (&both.clone(), [1, 1])]
    {
        drop(at_once(limiter.limit(&HOURLY)));
        assert_eq!([journal.take().len(), second.take().len()], told);
    }
    // They share the bucket.
    assert_eq!(at_once(plain.peek(&HOURLY)).unwrap().remaining(), 96);
    drop(at_once(elsewhere.limit(&HOURLY)));
    assert_eq!([journal.take().len(), second.take().len()], [1, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_throttled_stream_counts_as_a_handler() {
    use futures_util::StreamExt;

    let (journal, limiter) = Journal::of(&tollgate_testing::queue::paused());
    let items = futures_util::stream::iter([1, 2]);
    let throttled = limiter.throttle(&SPACED).stream(items);
    assert_eq!(throttled.count().await, 2);
    let told = [
        "handler spaced admitted 1 *",
        "handler spaced reserved 1 after 1s *",
        "handler spaced joined after 0ns",
        "handler spaced served after 1s, 0ns late",
    ];
    assert_eq!(journal.take(), told);
}

/// A panic must neither break a decision nor keep other observers, or later events, from being
/// told.
#[tokio::test(start_paused = true)]
async fn a_panic_of_an_observer_ends_in_the_limiter() {
    struct Panics;
    impl Observer for Panics {
        fn on_decision(&self, _: &Decision<'_>) {
            panic!("an observer is broken");
        }
        fn on_queue(&self, _: &tollgate::limiter::QueueChange<'_>) {
            panic!("an observer is broken");
        }
    }
    let plain = tollgate_testing::queue::paused();
    let (journal, limiter) = Journal::of(&plain.clone().observe(Panics));
    for admitted in [true, true, false] {
        assert_eq!(limiter.limit(&TWO).await.is_ok(), admitted);
    }
    assert_eq!(journal.take().len(), 3);
    drop(limiter.limit(&SPACED).await);
    let reserved = limiter.limit(&SPACED).reserve().await.unwrap();
    assert_eq!(reserved.ready().await.remaining(), 0);
    drop(limiter.limit(&SPACED).reserve().await.unwrap());
    let (served, left) = ("served after 1s, 0ns late", "left after 0ns");
    let told = journal.take();
    assert_eq!(told.iter().filter(|line| line.ends_with(served)).count(), 1, "{told:#?}");
    assert_eq!(told.iter().filter(|line| line.ends_with(left)).count(), 1, "{told:#?}");
    // Nothing is poisoned for others.
    assert!(plain.limit(&HOURLY).await.is_ok());
}

/// A reservation that is dropped by a panic is told while the stack unwinds. A second panic there
/// would end the process.
#[tokio::test(start_paused = true)]
async fn a_panic_of_an_observer_in_a_destructor_ends_in_the_limiter() {
    struct Panics;
    impl Observer for Panics {
        fn on_queue(&self, _: &tollgate::limiter::QueueChange<'_>) {
            panic!("an observer is broken");
        }
    }
    let (journal, limiter) = Journal::of(&tollgate_testing::queue::paused().observe(Panics));
    drop(limiter.limit(&SPACED).await);
    let reserved = limiter.limit(&SPACED).reserve().await.unwrap();
    let work = std::panic::AssertUnwindSafe(|| {
        let _reserved = reserved;
        panic!("the work fails");
    });
    let panicked = std::panic::catch_unwind(work).unwrap_err();
    assert_eq!(panicked.downcast_ref::<&str>(), Some(&"the work fails"));
    assert_eq!(journal.take().last().unwrap(), "handler spaced left after 0ns");
    assert_eq!(limiter.peek(&SPACED).waiting(), 0);
}

/// The names are labels.
#[test]
fn the_outcome_of_a_decision_has_its_own_name() {
    let all = [
        Outcome::Admitted,
        Outcome::Reserved,
        Outcome::Refused,
        Outcome::NotTaken,
        Outcome::TooLarge,
        Outcome::QueueFull,
        Outcome::Uncounted,
        Outcome::Unavailable,
        Outcome::NoKey,
        Outcome::Exempt,
    ];
    let names: std::collections::BTreeSet<_> = all.iter().map(|one| one.name()).collect();
    assert_eq!(names.len(), all.len());
    assert_eq!(all.iter().filter(|one| one.is_taken()).count(), 2);
}
