//! The observer that speaks to `tracing`: the fields of a span, and lines that nothing else writes.

use tollgate_testing::log::logged;

use std::convert::Infallible;
use std::future::ready;

use http::{Request, Response};
use tokio::runtime::Builder;
use tollgate::clock::ManualClock;
use tollgate::key::{global, header};
use tollgate::limiter::Decision;
use tollgate::middleware::Queue;
use tollgate::observe::trace;
use tollgate::{HOUR, Limit, MINUTE, Observer, Quota, RateLimiter, Rule, SECOND};
use tollgate_testing::queue::{ms, paused};
use tollgate_testing::{START, at_once, limiter};
use tower::{Layer, Service, ServiceExt};
use tracing::Level;
use tracing::field::Empty;

static TWO: Limit = Limit::new("two", Quota::token_bucket(2, MINUTE));
static HOURLY: Limit = Limit::new("hourly", Quota::token_bucket(9, HOUR));
static TENTHS: Limit = Limit::new("tenths", Quota::token_bucket(10, SECOND).capacity(0));

fn traced() -> RateLimiter {
    limiter(&ManualClock::new(START)).observe(trace())
}

fn inner()
-> impl Service<Request<()>, Response = Response<()>, Error = Infallible, Future: Send> + Clone {
    tower::service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(()))))
}

/// The fields of a span around this work, as a line in it shows them.
fn span_of(work: impl FnOnce()) -> String {
    let lines = logged(Level::INFO, || {
        let span = tracing::info_span!(
            "request",
            tollgate.limit = Empty,
            tollgate.outcome = Empty,
            tollgate.wait = Empty,
            tollgate.shadow = Empty,
        );
        span.in_scope(|| {
            work();
            tracing::info!("answered");
        });
    });
    let [line] = lines.as_slice() else { panic!("{lines:#?}") };
    let (_, rest) = line.split_once("request").unwrap();
    let (fields, _) = rest.split_once(": ").unwrap();
    fields.trim_matches(['{', '}']).to_owned()
}

#[test]
fn the_span_of_a_request_has_the_decision() {
    let limiter = traced();
    let both = || limiter.limit(&HOURLY).and(&TWO).cost(2);
    let admitted = span_of(|| assert!(at_once(both()).is_ok()));
    assert_eq!(admitted, "tollgate.limit=\"hourly\" tollgate.outcome=\"admitted\"");
    // The limit that refused stands for the request.
    let refused = span_of(|| assert!(at_once(both()).is_err()));
    let wanted = "tollgate.limit=\"two\" tollgate.outcome=\"refused\" tollgate.wait=60.0";
    assert_eq!(refused, wanted);
}

#[test]
fn the_span_of_a_request_has_the_decision_of_its_layer_and_its_shadow() {
    let limiter = traced();
    let rules = limiter.layer(&HOURLY).and(Rule::new(&TWO).cost(3).shadow());
    let service = rules.layer(inner());
    let fields = span_of(|| drop(at_once(service.oneshot(Request::new(()))).unwrap()));
    let wanted = "tollgate.limit=\"hourly\" tollgate.outcome=\"admitted\" tollgate.shadow=\"two\"";
    assert_eq!(fields, wanted);
    let keyed = limiter.layer(&TWO).key(header("x-user")).layer(inner());
    let lines = logged(Level::INFO, || {
        let span = tracing::info_span!("request", tollgate.outcome = Empty);
        span.in_scope(|| {
            drop(at_once(keyed.oneshot(Request::new(()))).unwrap());
            tracing::info!("answered");
        });
    });
    assert!(lines.last().unwrap().contains("tollgate.outcome=\"no_key\""), "{lines:#?}");
    assert!(!lines.last().unwrap().contains("tollgate.limit"), "not declared: {lines:#?}");
}

/// The layer logs its refusals by itself, so that the observer must not.
#[test]
fn a_refusal_is_logged_once_by_the_layer_or_by_the_observer() {
    let limiter = traced();
    let service = limiter.layer(&TWO).key(global()).cost(2).layer(inner());
    let shadow = limiter.layer(&TWO).shadow().layer(inner());
    let lines = logged(Level::DEBUG, || {
        for _ in 0..2 {
            drop(at_once(service.clone().oneshot(Request::new(()))).unwrap());
        }
        assert!(at_once(limiter.limit(&TWO)).is_err());
        drop(at_once(shadow.oneshot(Request::new(()))).unwrap());
    });
    let told: Vec<_> = lines.iter().map(|line| line.split("DEBUG ").nth(1).unwrap()).collect();
    let of_layer = "tollgate::middleware::log: refused limit=\"two\" retry_after=60s";
    let of_call = "tollgate::observe::trace: call refused limit=\"two\" retry_after=30s";
    let of_shadow = "tollgate::middleware::log: would be refused limit=\"two\" retry_after=30s";
    assert_eq!(told, [of_layer, of_call, of_shadow]);
}

/// Trouble is a warning once a minute for each cause and limit, however many requests meet it.
#[test]
fn trouble_is_a_warning_once_in_an_interval() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let lines = logged(Level::WARN, || {
        runtime.block_on(async {
            let limiter = paused().observe(trace());
            let layer = limiter.layer(&TENTHS).key(global());
            let layer = layer.queue(Queue::new(SECOND).max_waiters(1));
            for pause in [0, 0, 59, 1, 0] {
                tokio::time::advance(SECOND * pause).await;
                let ask = || layer.layer(inner()).oneshot(Request::new(()));
                let (one, other) = tokio::join!(ask(), ask());
                assert_eq!([one, other].map(|one| one.unwrap().status().as_u16()), [200, 503]);
                let late = limiter.limit(&TENTHS).reserve().await.unwrap();
                let mut late = Box::pin(late.ready());
                assert!(futures_util::poll!(&mut late).is_pending());
                tokio::time::advance(ms(1_100)).await;
                drop(late.await);
            }
        });
    });
    let causes = [
        ("the queue is full, and requests that would wait are refused", 2),
        ("work runs later than promised: the runtime or the service is busy", 2),
    ];
    for (cause, times) in causes {
        let count = lines.iter().filter(|line| line.contains(cause)).count();
        assert_eq!(count, times, "{cause}: {lines:#?}");
    }
    assert_eq!(lines.len(), 4, "{lines:#?}");
    assert!(lines.iter().all(|line| line.contains("WARN")), "{lines:#?}");
}

#[test]
fn a_request_that_leaves_a_queue_is_logged_at_debug() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let lines = logged(Level::DEBUG, || {
        runtime.block_on(async {
            let limiter = paused().observe(trace());
            let reserved = limiter.limit(&TENTHS).reserve().await.unwrap();
            tokio::time::advance(ms(30)).await;
            drop(reserved);
        });
    });
    let [line] = lines.as_slice() else { panic!("{lines:#?}") };
    assert!(line.contains("left the queue limit=\"tenths\" waited=30ms"), "{line}");
}

#[test]
fn a_panic_of_an_observer_is_logged_once() {
    struct Panics;
    impl Observer for Panics {
        fn on_decision(&self, _: &Decision<'_>) {
            panic!("an observer is broken");
        }
    }
    let limiter = limiter(&ManualClock::new(START)).observe(Panics);
    let lines = logged(Level::INFO, || {
        for _ in 0..3 {
            assert!(at_once(limiter.limit(&HOURLY)).is_ok());
        }
    });
    let [line] = lines.as_slice() else { panic!("{lines:#?}") };
    assert!(line.contains("ERROR") && line.contains("an observer panicked"), "{line}");
    assert!(line.contains("which changes no decision (logged once)"), "{line}");
}
