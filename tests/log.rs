//! What an operator reads in the log.

mod support;

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};

use axum::response::IntoResponse;
use http::{Request, Response, StatusCode};
use support::{START, at_once, limiter};
use tollgate::backend::{
    Answer, Applied, Backend, BackendError, BucketId, Charge, Memory, Refund, Refunded,
};
use tollgate::clock::ManualClock;
use tollgate::key::{ClientIp, header};
use tollgate::middleware::MissingKey;
use tollgate::{Limit, MINUTE, Quota, RateLimiter};
use tower::{Layer, ServiceExt};

static TWO: Limit = Limit::new("two", Quota::token_bucket(2, MINUTE));

#[test]
fn a_store_that_fails_is_told_once_until_it_answers_again() {
    let store = Flaky::default();
    let down = Arc::clone(&store.down);
    let service = RateLimiter::new(store)
        .layer(Limit::new("l", Quota::token_bucket(100, MINUTE)))
        .layer(inner());
    let lines = logged(tracing::Level::INFO, || {
        for is_down in [false, true, true, true, false, false, true, true] {
            down.store(is_down, Ordering::Relaxed);
            let response = at_once(service.clone().oneshot(Request::new(()))).unwrap();
            assert_eq!(response.status(), if is_down { 503 } else { 200 });
        }
    });
    let told: Vec<_> = lines
        .iter()
        .map(|line| (line.contains("ERROR"), line.contains("decisions again")))
        .collect();
    assert_eq!(told, [(true, false), (false, true), (true, false)], "{lines:#?}");
    assert!(lines[0].contains("it is down"), "{lines:#?}");
}

#[test]
fn a_key_that_the_client_left_out_is_no_mistake_in_the_set_up() {
    let layer = limiter(&ManualClock::new(START)).layer(&TWO).key(header("x-user"));
    let service = layer.missing_key(MissingKey::Reject(StatusCode::UNAUTHORIZED)).layer(inner());
    let ask = || {
        at_once(service.clone().oneshot(Request::new(()))).unwrap();
    };
    let lines = logged(tracing::Level::DEBUG, ask);
    assert!(
        lines.len() == 1 && lines[0].contains("DEBUG") && lines[0].contains("status=401"),
        "{lines:#?}"
    );
}

#[test]
fn a_refusal_is_told_to_the_log() {
    let service = limiter(&ManualClock::new(START)).layer(&TWO).cost(2).layer(inner());
    let ask = || {
        at_once(service.clone().oneshot(Request::new(()))).unwrap();
    };
    assert!(logged(tracing::Level::DEBUG, ask).is_empty(), "admitted");
    let lines = logged(tracing::Level::DEBUG, ask);
    assert!(lines.len() == 1 && lines[0].contains("refused"), "{lines:#?}");
    assert!(
        lines[0].contains("limit=\"two\"") && lines[0].contains("retry_after=60s"),
        "{lines:#?}"
    );
}

#[test]
fn a_failure_that_a_handler_leaves_with_is_in_the_log() {
    let store = Flaky { down: Arc::new(true.into()), ..Flaky::default() };
    let error = at_once(RateLimiter::new(store).limit(&TWO)).unwrap_err();
    let lines = logged(tracing::Level::ERROR, || assert_eq!(error.into_response().status(), 503));
    assert!(
        lines.len() == 1 && lines[0].contains("limit=\"two\"") && lines[0].contains("it is down"),
        "{lines:#?}"
    );
}

#[test]
fn a_mistake_in_the_set_up_is_told_once_and_says_how_to_mend_it() {
    let layer = limiter(&ManualClock::new(START)).layer(&TWO).key(ClientIp::peer());
    let lines = logged(tracing::Level::ERROR, || {
        // However many routes the layer is put on.
        for service in [layer.layer(inner()), layer.layer(inner())] {
            for _ in 0..3 {
                let response = at_once(service.clone().oneshot(Request::new(()))).unwrap();
                assert_eq!(response.status(), 500);
            }
        }
    });
    assert_eq!(lines.len(), 1, "{lines:#?}");
    let hint = "into_make_service_with_connect_info::<SocketAddr>()";
    assert!(lines[0].contains(hint) && lines[0].contains("limit=\"two\""), "{lines:#?}");
}

/// The flag "told once" is shared by layers made from one.
#[test]
fn layers_made_from_one_each_tell_their_own_mistake() {
    let base = limiter(&ManualClock::new(START)).layer(&TWO);
    let a = base.clone().key(header("x-user")).layer(inner());
    let b = base.key(ClientIp::peer()).layer(inner());
    let lines = logged(tracing::Level::ERROR, || {
        at_once(a.oneshot(Request::new(()))).unwrap();
        at_once(b.oneshot(Request::new(()))).unwrap();
    });
    assert_eq!(lines.len(), 2, "{lines:#?}");
}

thread_local! {
    static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What this thread logs. One subscriber for all threads: beside scoped ones, an event that is first
/// met by a thread without one is switched off for all.
struct Log;

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.write(bytes))
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines that this thread logs meanwhile, from this level on.
fn logged(level: tracing::Level, work: impl FnOnce()) -> Vec<String> {
    static SUBSCRIBED: Once = Once::new();
    SUBSCRIBED.call_once(|| {
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_writer(|| Log)
            .finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
    LOG.take();
    work();
    let log = String::from_utf8(LOG.take()).unwrap();
    let level_of = |line: &str| line.split_whitespace().nth(1)?.parse().ok();
    log.lines()
        .filter(|line| level_of(line).is_some_and(|of: tracing::Level| of <= level))
        .map(str::to_owned)
        .collect()
}
fn inner()
-> impl tower::Service<Request<()>, Response = Response<()>, Error = Infallible, Future: Send> + Clone
{
    tower::service_fn(|_: Request<()>| std::future::ready(Ok::<_, Infallible>(Response::new(()))))
}
#[derive(Debug, Default)]
struct Flaky {
    memory: Memory,
    down: Arc<AtomicBool>,
}
impl Backend for Flaky {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        match self.down.load(Ordering::Relaxed) {
            true => Answer::Now(Err(BackendError::unavailable("flaky", "it is down"))),
            false => self.memory.apply(charges),
        }
    }
    fn refund(&self, refunds: &[Refund<'_>]) -> Answer<Refunded> {
        self.memory.refund(refunds)
    }
    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.memory.reset(ids)
    }
}
