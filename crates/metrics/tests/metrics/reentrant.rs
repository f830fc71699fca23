//! Observers, recorders of metrics and subscribers that use a limiter themselves, as one that limits
//! its own lines does: no lock is held while they run.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Once, OnceLock};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::Request;
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BackendError, BucketId, Charge, Memory,
};
use tollgate::clock::TokioClock;
use tollgate::limiter::{Decision, QueueChange, StoreHealth};
use tollgate::middleware::Queue;
use tollgate::observe::trace;
use tollgate::{HOUR, Limit, MINUTE, Observer, Quota, RateLimitExt, RateLimiter, SECOND};
use tollgate_metrics::Metrics;
use tower::ServiceExt;

static TWO: Limit = Limit::new("two", Quota::token_bucket(2, HOUR));
static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(1, SECOND).capacity(0));
/// What strangers ask while they are told.
static LINES: Limit = Limit::new("lines", Quota::token_bucket(1_000_000, HOUR));

/// Whether the work ends: it runs in a thread of its own, as a deadlock would stop the test.
#[track_caller]
fn ends(work: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    let running = thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    match is_done.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("a deadlock"),
        _ => running.join().unwrap(),
    }
}

/// Code of others that asks the limiter which calls it, in all the ways that there are.
#[derive(Clone, Default)]
struct Stranger {
    limiter: Arc<OnceLock<RateLimiter>>,
    /// A store that answers later is told what becomes of a reservation in a task of its own, which
    /// would have the stranger reserve again and again.
    reserves: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
}

/// Asks a store that may answer later, and does not wait.
fn poll_once(call: impl Future) {
    let _ = pin!(call).poll(&mut Context::from_waker(Waker::noop()));
}

impl Stranger {
    fn ask(&self) {
        let Some(limiter) = self.limiter.get() else { return };
        self.asked.fetch_add(1, Ordering::Relaxed);
        // A name that was not told before, too.
        let nth = self.asked.load(Ordering::Relaxed) % 8;
        let fresh = Limit::try_new(format!("lines {nth}"), *LINES.quota()).unwrap();
        for limit in [&LINES, &fresh, &TWO, &SPACED] {
            poll_once(limiter.limit(limit));
            if self.reserves.load(Ordering::Relaxed) {
                poll_once(limiter.limit(limit).reserve());
            }
            poll_once(limiter.peek(limit));
        }
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Observer for Stranger {
    fn on_decision(&self, _: &Decision<'_>) {
        self.ask();
    }
    fn on_queue(&self, _: &QueueChange<'_>) {
        self.ask();
    }
    fn on_store(&self, _: &StoreHealth<'_>) {
        self.ask();
    }
}

impl CounterFn for Stranger {
    fn increment(&self, _: u64) {
        self.ask();
    }
    fn absolute(&self, _: u64) {
        self.ask();
    }
}

impl GaugeFn for Stranger {
    fn increment(&self, _: f64) {
        self.ask();
    }
    fn decrement(&self, _: f64) {
        self.ask();
    }
    fn set(&self, _: f64) {
        self.ask();
    }
}

impl HistogramFn for Stranger {
    fn record(&self, _: f64) {
        self.ask();
    }
}

impl Recorder for Stranger {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        self.ask();
    }
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        self.ask();
    }
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        self.ask();
    }
    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        self.ask();
        Counter::from_arc(Arc::new(self.clone()))
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        self.ask();
        Gauge::from_arc(Arc::new(self.clone()))
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        self.ask();
        Histogram::from_arc(Arc::new(self.clone()))
    }
}

/// A subscriber of the log that asks the limiter about each line.
impl tracing::Subscriber for Stranger {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {
        self.ask();
    }
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        self.ask();
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// A memory store that answers later, and that can be cut off.
#[derive(Debug)]
struct Later(Arc<Memory>, Arc<AtomicBool>);

impl Later {
    fn later<T: Send + 'static>(&self, answer: Answer<T>) -> Answer<T> {
        if self.1.load(Ordering::Relaxed) {
            return Answer::Ready(Err(BackendError::timeout("later", SECOND)));
        }
        // Ready for the stranger, who asks in the middle of other work.
        Answer::pending(async move {
            tokio::task::yield_now().await;
            answer.wait().await
        })
    }
}

impl Backend for Later {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        self.later(self.0.apply(charges))
    }
    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        self.later(self.0.adjust(adjustments))
    }
    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.later(self.0.reset(ids))
    }
}

/// All that a limiter tells of: decisions of calls and layers, queues that are joined, served, left,
/// full and drained, costs that never fit, and a store that fails and recovers.
async fn everything(limiter: &RateLimiter, is_down: &AtomicBool) {
    for cost in [1, 1, 1, 3] {
        drop(limiter.limit(&TWO).cost(cost).await);
    }
    let queue = limiter.layer(&SPACED).queue(Queue::new(MINUTE).max_waiters(2));
    let app = Router::new()
        .route("/", get(async || "hello").rate_limit(limiter.layer(&TWO)))
        .route("/large", get(async || "hello").rate_limit(limiter.layer(&TWO).cost(5)))
        .route("/queue", get(async || "hello").rate_limit(queue));
    let send = |path: &str| {
        let request = Request::get(path).body(axum::body::Body::empty()).unwrap();
        let app = app.clone();
        tokio::spawn(async move { app.oneshot(request).await.unwrap().status() })
    };
    for (path, status) in [("/", 429), ("/large", 413), ("/", 429)] {
        assert_eq!(send(path).await.unwrap().as_u16(), status);
    }
    let waiting = [(); 4].map(|()| send("/queue"));
    tokio::time::sleep(SECOND * 2).await;
    waiting[0].abort();
    drop(limiter.limit(&SPACED).reserve().await);
    is_down.store(true, Ordering::Relaxed);
    drop(limiter.limit(&TWO).await);
    tokio::time::sleep(SECOND * 61).await;
    is_down.store(false, Ordering::Relaxed);
    drop(limiter.limit(&LINES).await);
    let reserved = send("/queue");
    tokio::task::yield_now().await;
    limiter.drain(Duration::ZERO);
    drop(reserved.await);
}

/// Plays everything on a memory store and on one that answers later, with a stranger that is asked to
/// `watch` the limiter. It asks the limiter each time that it is called.
#[track_caller]
fn play(watch: fn(&Stranger, RateLimiter) -> RateLimiter, reads_log: bool) {
    for later in [false, true] {
        ends(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().start_paused(true).build().unwrap();
            let stranger = Stranger::default();
            stranger.reserves.store(!later, Ordering::Relaxed);
            let play = || {
                runtime.block_on(async {
                    let memory = Memory::new().clock(TokioClock::new());
                    let is_down = Arc::<AtomicBool>::default();
                    let plain = match later {
                        true => RateLimiter::new(Later(Arc::new(memory), Arc::clone(&is_down))),
                        false => RateLimiter::new(memory),
                    };
                    let limiter = watch(&stranger, plain);
                    stranger.limiter.set(limiter.clone()).unwrap();
                    everything(&limiter, &is_down).await;
                });
            };
            match reads_log {
                true => tracing::subscriber::with_default(stranger.clone(), play),
                false => play(),
            }
            assert!(stranger.asked() > 5, "asked {} times", stranger.asked());
        });
    }
}

#[test]
fn an_observer_may_ask_the_limiter_that_it_observes() {
    play(|stranger, limiter| limiter.observe(stranger.clone()), false);
}

/// A recorder that logs by way of a limiter stood still at its first metric.
#[test]
fn a_recorder_of_metrics_may_ask_the_limiter_that_it_records() {
    play(|stranger, limiter| limiter.observe(Metrics::new().recorder(stranger.clone())), false);
}

#[test]
fn a_subscriber_of_the_log_may_ask_the_limiter_that_writes_the_lines() {
    // With a single subscriber, and a scoped one at that, an event that a thread without one meets
    // first is switched off for all threads.
    static ANOTHER: Once = Once::new();
    ANOTHER.call_once(|| {
        tracing::subscriber::set_global_default(tracing::subscriber::NoSubscriber::new()).unwrap();
    });
    play(|_, limiter| limiter.observe(trace()), true);
}

/// It would otherwise be told of itself without end.
#[test]
fn what_an_observer_asks_is_decided_and_told_to_others_alone() {
    #[derive(Default)]
    struct Counts(AtomicU64);

    impl Observer for Counts {
        fn on_decision(&self, _: &Decision<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Asks another handle of the same store, and that handle's observers are told.
    struct Charges(RateLimiter);

    impl Observer for Charges {
        fn on_decision(&self, _: &Decision<'_>) {
            assert!(tollgate_testing::at_once(self.0.limit(&LINES)).is_ok());
        }
    }

    let (of_lines, of_all) = <(Arc<Counts>, Arc<Counts>)>::default();
    let plain = RateLimiter::in_memory();
    let lines = plain.clone().observe(Arc::clone(&of_lines));
    let all = plain.clone().observe(Charges(lines)).observe(Arc::clone(&of_all));
    for _ in 0..3 {
        drop(tollgate_testing::at_once(all.limit(&TWO)));
    }
    assert_eq!([&of_lines, &of_all].map(|counts| counts.0.load(Ordering::Relaxed)), [3, 3]);

    let stranger = Stranger::default();
    let limiter = plain.observe(stranger.clone());
    stranger.limiter.set(limiter.clone()).unwrap();
    drop(tollgate_testing::at_once(limiter.limit(&LINES)));
    assert_eq!(stranger.asked(), 1);
    drop(tollgate_testing::at_once(limiter.limit(&LINES)));
    assert_eq!(stranger.asked(), 2, "it is told of the next decision");
}

/// Each line that was left out in a flood cost a lock and an allocation.
#[test]
fn a_refusal_in_a_flood_allocates_nothing_for_those_who_watch() {
    /// An observer that does nothing, so that both limiters take the same way.
    struct Deaf;

    impl Observer for Deaf {}

    let requests = |limiter: RateLimiter| {
        let layer = limiter.layer(&SPACED).queue(Queue::new(MINUTE).max_waiters(0));
        let inner = tower::service_fn(async |_: Request<()>| {
            Ok::<_, std::convert::Infallible>(http::Response::new(()))
        });
        let service = tower::Layer::layer(&layer, inner);
        let ask = || {
            let request = service.clone().oneshot(Request::new(()));
            assert_eq!(tollgate_testing::at_once(request).unwrap().status(), 503);
            assert!(tollgate_testing::at_once(limiter.limit(&TWO).cost(3)).is_err());
            assert!(tollgate_testing::at_once(limiter.limit(&TWO).cost(2)).is_err());
        };
        drop(tollgate_testing::at_once(limiter.limit(&TWO)));
        ask();
        allocation_counter::measure(|| (0..100).for_each(|_| ask())).count_total
    };
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let watched = RateLimiter::in_memory();
    let watched = watched.observe(trace()).observe(Metrics::new().recorder(recorder));
    assert_eq!(requests(watched), requests(RateLimiter::in_memory().observe(Deaf)));
}
