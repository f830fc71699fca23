//! A store that fails, recovers, and takes time.

use tollgate_testing::journal::Journal;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use http::{Request, Response};
use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BackendError, BucketId, Charge, CircuitBreaker, Fallback,
    Memory,
};
use tollgate::clock::TokioClock;
use tollgate::limiter::StoreHealth;
use tollgate::middleware::Admission;
use tollgate::{Limit, MINUTE, Observer, OnFailure, Quota, RateLimiter, Rule, SECOND};
use tollgate_testing::at_once;
use tollgate_testing::broken::Broken;
use tollgate_testing::queue::ms;
use tower::{Layer, ServiceExt};

static TWO: Limit = Limit::new("two", Quota::token_bucket(2, MINUTE));
static OPEN: Limit =
    Limit::new("open", Quota::token_bucket(2, MINUTE)).on_failure(OnFailure::Admit);

/// A memory store behind a network of 5 ms, or of no delay, which can be cut.
#[derive(Clone, Debug)]
struct Distant {
    memory: Arc<Memory>,
    is_down: Arc<AtomicBool>,
    is_near: bool,
}

impl Distant {
    fn new() -> Self {
        let memory = Arc::new(Memory::new().clock(TokioClock::new()));
        Self { memory, is_down: Arc::default(), is_near: false }
    }

    fn later<T: Send + 'static>(&self, answer: Answer<T>) -> Answer<T> {
        let is_down = self.is_down.load(Ordering::Relaxed);
        if self.is_near {
            return match is_down {
                true => Answer::Ready(Err(BackendError::timeout("near", ms(5)))),
                false => answer,
            };
        }
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
        assert_eq!(journal.take(), told("two", "None", "uncounted", "shadow"));
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

/// In an outage as well: no work has passed.
#[tokio::test(start_paused = true)]
async fn a_reservation_that_is_dropped_before_an_outage_is_known_passes_nothing() {
    let distant = Distant::new();
    distant.is_down.store(true, Ordering::Relaxed);
    let (journal, limiter) = Journal::of(&RateLimiter::new(distant));
    tollgate_testing::ask_and_drop(limiter.limit(&OPEN).reserve());
    tokio::time::sleep(SECOND).await;
    assert_eq!(limiter.passed_uncounted(), 0);
    assert_eq!(journal.take(), ["store failed in 5ms"]);
    drop(limiter.limit(&OPEN).reserve().await.unwrap());
    assert_eq!(limiter.passed_uncounted(), 1);
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
    assert_eq!(told(), failed("None first"));
    assert!(limiter.limit(&TWO).await.unwrap_err().is_refused());
    assert_eq!(told(), failed("None"));
    assert!(limiter.limit(&TWO).reserve().await.unwrap_err().is_refused());
    assert_eq!(told(), failed("None"));
    drop(service(&limiter, &TWO).oneshot(Request::new(())).await.unwrap());
    assert_eq!(told(), failed("None"));
    // A shadow concerns no request.
    drop(service(&limiter, Rule::new(&TWO).shadow()).oneshot(Request::new(())).await.unwrap());
    assert_eq!(told(), failed("None"));
    assert!(!limiter.limit(&OPEN).await.unwrap().is_decided());
    assert_eq!(told(), ["store failed: open timeout Admit"]);
    store.is_down.store(false, Ordering::Relaxed);
    tokio::time::advance(MINUTE).await;
    assert!(limiter.limit(&TWO).await.is_ok());
    assert_eq!(told(), ["store recovered: two, 2 admitted, 3 refused"]);
}

/// The outages that an observer has heard of, by their numbers.
#[derive(Clone, Debug, Default)]
struct Outages {
    begun: Arc<AtomicU64>,
    ended: Arc<AtomicU64>,
    is_last_told_the_end: Arc<AtomicBool>,
}

impl Observer for Outages {
    fn on_store(&self, health: &StoreHealth<'_>) {
        match *health {
            StoreHealth::Failure { outage, is_first, .. } => {
                if is_first {
                    self.begun.fetch_max(outage.unwrap(), Ordering::Relaxed);
                }
                self.is_last_told_the_end.store(false, Ordering::Relaxed);
            }
            StoreHealth::Recovery { outage, .. } => {
                self.ended.fetch_max(outage, Ordering::Relaxed);
                self.is_last_told_the_end.store(true, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

/// Begins the next outage before observers after it are told the end of the first.
struct Relapse(RateLimiter, Distant);

impl Observer for Relapse {
    fn on_store(&self, health: &StoreHealth<'_>) {
        if let StoreHealth::Recovery { .. } = health {
            self.1.is_down.store(true, Ordering::Relaxed);
            at_once(self.0.limit(&TWO)).unwrap_err();
        }
    }
}

/// What an observer heard last was taken for how the store is, and could be an older end.
#[tokio::test(start_paused = true)]
async fn an_end_that_is_told_after_the_next_outage_has_begun_is_known_by_its_number() {
    let store = Distant { is_near: true, ..Distant::new() };
    let (outages, limiter) = (Outages::default(), RateLimiter::new(store.clone()));
    let observed = limiter.clone().observe(outages.clone());
    let limiter = limiter.observe(Relapse(observed, store.clone())).observe(outages.clone());
    let told = || [&outages.begun, &outages.ended].map(|number| number.load(Ordering::Relaxed));
    store.is_down.store(true, Ordering::Relaxed);
    limiter.limit(&TWO).await.unwrap_err();
    assert_eq!(told(), [1, 0]);
    store.is_down.store(false, Ordering::Relaxed);
    tokio::time::advance(MINUTE).await;
    limiter.limit(&TWO).await.unwrap();
    assert!(outages.is_last_told_the_end.load(Ordering::Relaxed));
    assert_eq!(told(), [2, 1], "the second lasts");
}

/// What a handler charges is a decision of its own, as its calls are.
#[tokio::test(start_paused = true)]
async fn what_a_handler_charges_in_an_outage_counts_as_its_calls_do() {
    static WIDE: Limit = Limit::new("wide", Quota::token_bucket(4, MINUTE));
    let store = Distant::new();
    let local = Memory::new().clock(TokioClock::new());
    let (journal, limiter) = Journal::of(&RateLimiter::new(Fallback::new(store.clone(), local)));
    let inner = async |request: Request<()>| {
        let admission = request.extensions().get::<Admission>().unwrap();
        admission.charge(1).await.unwrap();
        assert!(admission.charge(3).await.unwrap_err().is_refused());
        Ok::<_, Infallible>(Response::new(()))
    };
    let service = limiter.layer(&WIDE).expose().layer(tower::service_fn(inner));
    store.is_down.store(true, Ordering::Relaxed);
    service.oneshot(Request::new(())).await.unwrap();
    store.is_down.store(false, Ordering::Relaxed);
    tokio::time::advance(MINUTE).await;
    limiter.limit(&WIDE).await.unwrap();
    let told = journal.take();
    assert!(told.contains(&"store recovered: wide, 2 admitted, 1 refused".into()), "{told:#?}");
}

/// A store that leaves out all buckets but the first.
#[derive(Debug)]
struct Short(Memory);

impl Backend for Short {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        self.0.apply(&charges[..1])
    }
    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        self.0.adjust(adjustments)
    }
    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.0.reset(ids)
    }
}

/// It was counted as admitted, and then as refused.
#[tokio::test(start_paused = true)]
async fn an_incomplete_answer_of_a_fallback_is_counted_once() {
    let store = Distant::new();
    let local = Short(Memory::new().clock(TokioClock::new()));
    let (journal, limiter) = Journal::of(&RateLimiter::new(Fallback::new(store.clone(), local)));
    store.is_down.store(true, Ordering::Relaxed);
    limiter.limit(&TWO).await.unwrap();
    limiter.limit(&TWO).and(&OPEN).await.unwrap_err();
    limiter.limit(&TWO).and(&OPEN).reserve().await.unwrap_err();
    store.is_down.store(false, Ordering::Relaxed);
    tokio::time::advance(MINUTE).await;
    limiter.limit(&TWO).await.unwrap();
    let told = journal.take();
    assert!(told.contains(&"store recovered: two, 1 admitted, 2 refused".into()), "{told:#?}");
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
