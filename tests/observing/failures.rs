//! A store that fails, recovers, and takes time.

use crate::journal::Journal;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Request, Response};
use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BackendError, BucketId, Charge, CircuitBreaker, Fallback,
    Memory,
};
use tollgate::clock::TokioClock;
use tollgate::{Limit, MINUTE, OnFailure, Quota, RateLimiter, Rule, SECOND};
use tollgate_testing::broken::Broken;
use tollgate_testing::queue::ms;
use tower::{Layer, ServiceExt};

static TWO: Limit = Limit::new("two", Quota::token_bucket(2, MINUTE));
static OPEN: Limit =
    Limit::new("open", Quota::token_bucket(2, MINUTE)).on_failure(OnFailure::Admit);

/// A memory store behind a network of 5 ms, which can be cut.
#[derive(Clone, Debug)]
struct Distant {
    memory: Arc<Memory>,
    is_down: Arc<AtomicBool>,
}

impl Distant {
    fn new() -> Self {
        let memory = Arc::new(Memory::new().clock(TokioClock::new()));
        Self { memory, is_down: Arc::default() }
    }

    fn later<T: Send + 'static>(&self, answer: Answer<T>) -> Answer<T> {
        let is_down = self.is_down.load(Ordering::Relaxed);
        Answer::pending(async move {
            tokio::time::sleep(ms(5)).await;
            if is_down {
                return Err(BackendError::timeout("distant", ms(5)));
            }
            answer.wait().await
        })
    }
}

impl Backend for Distant {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        self.later(self.memory.apply(charges))
    }
    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        self.later(self.memory.adjust(adjustments))
    }
    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.later(self.memory.reset(ids))
    }
}

fn service(
    limiter: &RateLimiter,
    rule: impl Into<Rule>,
) -> impl tower::Service<Request<()>, Response: Sized, Error = Infallible, Future: Send> + Clone {
    let inner = |_: Request<()>| std::future::ready(Ok::<_, Infallible>(Response::new(())));
    limiter.layer(rule).layer(tower::service_fn(inner))
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_with_each_call_and_what_became_of_it() {
    for later in [false, true] {
        let (journal, limiter) = Journal::of(&RateLimiter::new(Broken { later }));
        assert!(limiter.peek(&TWO).await.is_err());
        assert_eq!(journal.take(), ["store failed: two unavailable Refuse first"]);
        // A store that answers later is timed as well.
        let told = |limit: &str, then: &str, decision: &str, source: &str| {
            let timed = later.then(|| "store failed in 0ns".to_owned());
            let failure = format!("store failed: {limit} unavailable {then}");
            let decision = format!("{source} {limit} {decision} 1 *");
            timed.into_iter().chain([failure, decision]).collect::<Vec<_>>()
        };
        assert!(limiter.limit(&TWO).await.is_err());
        assert_eq!(journal.take(), told("two", "Refuse", "unavailable", "handler"));
        assert!(!limiter.limit(&OPEN).await.unwrap().is_decided());
        assert_eq!(journal.take(), told("open", "Admit", "uncounted", "handler"));
        for (limit, then, decision) in
            [(&TWO, "Refuse", "unavailable"), (&OPEN, "Admit", "uncounted")]
        {
            drop(limiter.limit(limit).reserve().await);
            assert_eq!(
                sorted(journal.take()),
                sorted(told(limit.name(), then, decision, "handler"))
            );
            drop(service(&limiter, limit).oneshot(Request::new(())).await.unwrap());
            assert_eq!(journal.take(), told(limit.name(), then, decision, "layer"));
        }
        // A shadow passes in any case.
        let shadow = Rule::new(&TWO).shadow();
        drop(service(&limiter, shadow).oneshot(Request::new(())).await.unwrap());
        assert_eq!(journal.take(), told("two", "Admit", "uncounted", "shadow"));
        // What decides nothing can still fail.
        assert!(limiter.peek(&TWO).await.is_err());
        assert!(limiter.reset(&TWO).await.is_err());
        assert!(limiter.penalize(&TWO, 1).await.is_err());
        assert_eq!(journal.take(), ["store failed: two unavailable Refuse"; 3]);
    }
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

#[tokio::test(start_paused = true)]
async fn a_call_on_several_limits_fails_for_each_of_them() {
    let (journal, limiter) = Journal::of(&RateLimiter::new(Broken { later: false }));
    assert!(limiter.limit(&OPEN).and(&TWO).cost(2).await.is_err());
    let told = [
        "store failed: open unavailable Refuse first",
        "handler open unavailable 1 *",
        "handler two unavailable 2",
    ];
    assert_eq!(journal.take(), told);
}

#[tokio::test(start_paused = true)]
async fn the_store_is_timed_where_its_answer_is_awaited() {
    let (journal, limiter) = Journal::of(&RateLimiter::new(Distant::new()));
    assert!(limiter.limit(&TWO).await.is_ok());
    assert_eq!(journal.take(), ["store decided in 5ms", "handler two admitted 1 *"]);
    assert!(limiter.limit(&OPEN).and(&TWO).await.is_ok());
    let told = ["store decided in 5ms", "handler open admitted 1 *", "handler two admitted 1"];
    assert_eq!(journal.take(), told);
    drop(limiter.limit(&OPEN).reserve().await.unwrap());
    assert_eq!(journal.take(), ["store decided in 5ms", "handler open admitted 1 *"]);
    drop(service(&limiter, &TWO).oneshot(Request::new(())).await.unwrap());
    assert_eq!(journal.take(), ["store decided in 5ms", "layer two refused 1 after 29.985s *"]);
    drop(service(&limiter, Rule::new(&TWO).shadow()).oneshot(Request::new(())).await.unwrap());
    assert_eq!(journal.take(), ["store decided in 5ms", "shadow two refused 1 after 29.98s *"]);
    // Settlements and peeks are not timed.
    assert!(limiter.peek(&TWO).await.is_ok());
    assert_eq!(journal.take(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_before_its_answer_is_not_told() {
    let (journal, limiter) = Journal::of(&RateLimiter::new(Distant::new()));
    tollgate_testing::ask_and_drop(limiter.limit(&TWO));
    tollgate_testing::ask_and_drop(service(&limiter, &TWO).oneshot(Request::new(())));
    tokio::time::sleep(SECOND).await;
    assert_eq!(journal.take(), [""; 0]);
    // A reservation is: a task awaits the answer and gives it back.
    tollgate_testing::ask_and_drop(limiter.limit(&OPEN).reserve());
    tokio::time::sleep(SECOND).await;
    assert_eq!(journal.take(), ["store decided in 5ms", "handler open admitted 1 *"]);
}

#[tokio::test(start_paused = true)]
async fn a_recovery_is_told_once_a_minute_after_the_last_failure() {
    let store = Distant::new();
    let (journal, limiter) = Journal::of(&RateLimiter::new(store.clone()));
    let decide = async |is_down: bool| {
        store.is_down.store(is_down, Ordering::Relaxed);
        drop(limiter.limit(&TWO).await);
        let told = journal.take();
        told.into_iter().filter(|line| line.contains("ed: two")).collect::<Vec<_>>()
    };
    assert_eq!(decide(false).await, [""; 0]);
    assert_eq!(decide(true).await, ["store failed: two timeout Refuse first"]);
    assert_eq!(decide(true).await, ["store failed: two timeout Refuse"]);
    assert_eq!(decide(false).await, [""; 0], "too soon");
    tokio::time::advance(MINUTE).await;
    assert_eq!(decide(false).await, ["store recovered: two, 0 admitted, 2 refused"]);
    assert_eq!(decide(false).await, [""; 0]);
}

/// Observers heard nothing of an outage in which a fallback decides, nor that the store is back.
#[tokio::test(start_paused = true)]
async fn an_outage_behind_a_fallback_is_told_as_any_other() {
    let store = Distant::new();
    let local = Memory::new().clock(TokioClock::new());
    let (journal, limiter) =
        Journal::of(&RateLimiter::new(Fallback::new(store.clone(), local).nodes(2)));
    let told = || {
        let told = journal.take().into_iter();
        told.filter(|line| line.starts_with("store failed:") || line.contains("recovered"))
            .collect::<Vec<_>>()
    };
    let failed = |then: &str| [format!("store failed: two timeout {then}")];
    store.is_down.store(true, Ordering::Relaxed);
    assert!(limiter.limit(&TWO).await.is_ok());
    assert_eq!(told(), failed("Fallback first"));
    assert!(limiter.limit(&TWO).await.unwrap_err().is_refused());
    assert_eq!(told(), failed("Fallback"));
    assert!(limiter.limit(&TWO).reserve().await.unwrap_err().is_refused());
    assert_eq!(told(), failed("Fallback"));
    drop(service(&limiter, &TWO).oneshot(Request::new(())).await.unwrap());
    assert_eq!(told(), failed("Fallback"));
    // A shadow concerns no request.
    drop(service(&limiter, Rule::new(&TWO).shadow()).oneshot(Request::new(())).await.unwrap());
    assert_eq!(told(), failed("Fallback"));
    assert!(!limiter.limit(&OPEN).await.unwrap().is_decided());
    assert_eq!(told(), ["store failed: open timeout Admit"]);
    store.is_down.store(false, Ordering::Relaxed);
    tokio::time::advance(MINUTE).await;
    assert!(limiter.limit(&TWO).await.is_ok());
    assert_eq!(told(), ["store recovered: two, 2 admitted, 3 refused"]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_has_the_kind_of_its_error() {
    let store = Distant::new();
    store.is_down.store(true, Ordering::Relaxed);
    let limiter = RateLimiter::new(CircuitBreaker::new(store));
    let (journal, limiter) = Journal::of(&limiter);
    for _ in 0..7 {
        drop(limiter.limit(&TWO).await);
    }
    let kinds = journal.take().into_iter().filter(|line| line.starts_with("store failed: "));
    let kinds: Vec<_> = kinds.map(|line| line.split(' ').nth(3).unwrap().to_owned()).collect();
    let [five @ .., open, still] = kinds.as_slice() else { panic!("{kinds:?}") };
    assert_eq!(five, ["timeout"; 5]);
    assert_eq!([open, still], ["circuit_open"; 2]);

    let full = || Answer::Ready(Err(BackendError::full("fixed", "no room")));
    let undecidable = || Answer::Ready(Err(BackendError::undecidable("fixed", "no name")));
    // What a client can cause has no end that could be told, and so no beginning.
    for (fails, kind, first) in [
        (Fixed(Box::new(full)), "full", " first"),
        (Fixed(Box::new(undecidable)), "undecidable", ""),
    ] {
        let (journal, limiter) = Journal::of(&RateLimiter::new(fails));
        drop(limiter.limit(&OPEN).await);
        // Not an outage, so the request does not pass.
        let told = [
            format!("store failed: open {kind} Refuse{first}"),
            "handler open unavailable 1 *".into(),
        ];
        assert_eq!(journal.take(), told);
    }
}

/// A store that always answers this.
struct Fixed(Box<dyn Fn() -> Answer<Applied> + Send + Sync>);

impl std::fmt::Debug for Fixed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fixed")
    }
}

impl Backend for Fixed {
    fn apply(&self, _: &[Charge<'_>]) -> Answer<Applied> {
        (self.0)()
    }
    fn adjust(&self, _: &[Adjustment<'_>]) -> Answer<Applied> {
        (self.0)()
    }
    fn reset(&self, _: &[BucketId<'_>]) -> Answer<()> {
        Answer::Ready(Ok(()))
    }
}
