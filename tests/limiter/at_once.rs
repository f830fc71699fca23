//! Calls in code that is not async: `now` takes what awaiting would take, where the store answers at
//! once, and elsewhere says so and takes nothing.

use std::error::Error;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::get;
use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BucketId, Charge, CircuitBreaker, DenyCache, Fallback,
    Memory,
};
use tollgate::clock::ManualClock;
use tollgate::{HOUR, Limit, MINUTE, OnFailure, Quota, RateLimiter};
use tollgate_testing::journal::Journal;
use tollgate_testing::queue::Late;
use tollgate_testing::{START, at_once, limiter};

const TWO: Limit = Limit::new("two", Quota::token_bucket(2, MINUTE));
const NINE: Limit = Limit::new("nine", Quota::token_bucket(9, HOUR));

fn fixed() -> RateLimiter {
    limiter(&ManualClock::new(START))
}

/// Items as long as the limit grants them, and one for its end.
struct Items(RateLimiter, Arc<Mutex<Vec<&'static str>>>);

impl Iterator for Items {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0.limit(&TWO).key("items").now().ok().map(|permit| permit.remaining())
    }
}

impl Drop for Items {
    fn drop(&mut self) {
        if self.0.limit(&NINE).cost(9).now().is_ok() {
            self.1.lock().unwrap().push("cleaned up");
        }
    }
}

#[test]
fn iterators_and_drops_take_tokens_outside_of_any_runtime() {
    let (limiter, told) = (fixed(), Arc::default());
    let items = || Items(limiter.clone(), Arc::clone(&told));
    assert_eq!(items().collect::<Vec<_>>(), [1, 0]);
    assert_eq!(items().collect::<Vec<_>>(), [0; 0]);
    assert_eq!(*told.lock().unwrap(), ["cleaned up"], "the second one was refused");
    assert_eq!(at_once(limiter.peek(&TWO).key("items")).unwrap().remaining(), 0);
}

#[test]
fn a_call_now_is_answered_as_one_that_is_awaited() {
    let (limiter, other) = (fixed(), fixed());
    let (seen, limiter) = Journal::of(&limiter);
    let (awaited, other) = Journal::of(&other);
    for cost in [1, 10, 0, 2, 1] {
        let call = |limiter: &RateLimiter, now: bool| {
            let call = limiter.limit(&TWO).cost(cost).and(&NINE).key("k");
            let answer = if now { call.now() } else { at_once(call) };
            answer.map(|permit| permit.remaining()).map_err(|error| error.to_string())
        };
        assert_eq!(call(&limiter, true), call(&other, false), "{cost}");
    }
    let told = seen.take();
    assert!(!told.is_empty());
    assert_eq!(told, awaited.take());
    // The numbers in force, a permit that is settled, and a limiter that is off.
    limiter.replace(&TWO, Quota::token_bucket(50, MINUTE)).unwrap();
    let permit = limiter.limit(&TWO).key("new").cost(40).now().unwrap().into_owned();
    assert_eq!(permit.remaining(), 10);
    drop(permit.refund());
    assert_eq!(limiter.limit(&TWO).key("new").now().unwrap().remaining(), 49);
    assert!(!limiter.enabled(false).limit(&TWO).cost(99).now().unwrap().is_decided());
}

/// A task of a server, which has no `await` there.
#[tokio::test]
async fn a_handler_takes_tokens_in_an_iterator() {
    let limiter = fixed();
    let items = {
        let limiter = limiter.clone();
        async move || format!("{}", Items(limiter.clone(), Arc::default()).count())
    };
    let to = tollgate_testing::web::serve(Router::new().route("/", get(items))).await;
    assert_eq!(tollgate_testing::web::get(to, "/").await.body, "2");
    assert_eq!(tollgate_testing::web::get(to, "/").await.body, "0");
    assert_eq!(limiter.limit(&NINE).now().unwrap_err().retry_after(), Some(HOUR / 9));
}

/// `Redis` would need a runtime to be asked at all, so it is not.
#[tokio::test]
async fn a_store_that_answers_later_is_not_asked() {
    let (_, late, memory) = Late::new();
    for late in [late.clone(), late.clone().on_failure(OnFailure::Admit)] {
        let error = late.limit(&TWO).now().unwrap_err();
        assert!(error.is_unavailable() && !error.is_outage() && !error.is_timeout());
        let cause = error.source().unwrap().to_string();
        assert!(cause.contains("answers later") && cause.contains("await the call"), "{cause}");
    }
    assert_eq!(memory.peek(&TWO).await.unwrap().remaining(), 2);
    assert_eq!(late.limit(&TWO).await.unwrap().remaining(), 1);
    assert!(late.enabled(false).limit(&TWO).now().is_ok(), "no store is asked");
}

/// A store of one's own, which says whether it answers at once.
#[derive(Debug)]
struct Own(Memory, bool);

impl Backend for Own {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        self.0.apply(charges)
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        self.0.adjust(adjustments)
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.0.reset(ids)
    }

    fn answers_at_once(&self) -> bool {
        self.1
    }
}

#[test]
fn wrappers_answer_at_once_if_what_is_inside_does() {
    let own = |at_once| Own(Memory::new(), at_once);
    for at_once in [true, false] {
        let limiters = [
            RateLimiter::new(own(at_once)),
            RateLimiter::new(Arc::new(own(at_once))),
            RateLimiter::new(CircuitBreaker::new(own(at_once))),
            RateLimiter::new(DenyCache::new(own(at_once))),
            RateLimiter::new(Fallback::new(own(at_once), Memory::new())),
            RateLimiter::new(Fallback::new(Memory::new(), own(at_once))),
        ];
        for (nth, limiter) in limiters.iter().enumerate() {
            let answer = limiter.limit(&NINE).now();
            assert_eq!(answer.map(|permit| permit.remaining()).ok(), at_once.then_some(8), "{nth}");
        }
    }
}

/// One that says so, and answers later nevertheless.
#[derive(Debug)]
struct Wrong(Late);

impl Backend for Wrong {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        self.0.apply(charges)
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        self.0.adjust(adjustments)
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.0.reset(ids)
    }

    fn answers_at_once(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn an_answer_that_comes_later_nevertheless_is_an_error() {
    let (late, ..) = Late::new();
    let _held = late.close();
    let error = RateLimiter::new(Wrong(late)).limit(&TWO).now().unwrap_err();
    assert!(error.is_unavailable() && !error.is_outage(), "{error:?}");
}
