//! Requests that wait: in the queue of a layer, and by reservations.

use tollgate_testing::journal::Journal;

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tollgate::middleware::Queue;
use tollgate::{Limit, Quota, RateLimitLayer, RateLimiter, SECOND};
use tollgate_testing::queue::{ms, paused};
use tollgate_testing::shared::Shared;
use tower::{Layer, Service, ServiceExt};

/// One token every 100 ms, and none in advance.
static TENTHS: Limit = Limit::new("tenths", Quota::token_bucket(10, SECOND).capacity(0));
static HALVES: Limit = Limit::new("halves", Quota::token_bucket(2, SECOND).capacity(0));

/// Both kinds of queue: in lines of the memory store, and by slots of a store that others use.
fn stores() -> [RateLimiter; 2] {
    [paused(), Shared::new().limiter()]
}

fn inner()
-> impl Service<Request<()>, Response = Response<()>, Error = Infallible, Future: Send> + Clone {
    tower::service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(()))))
}

/// Sends a request through the layer, and lets it come to its first wait.
async fn enter<N>(layer: &RateLimitLayer<N>) -> JoinHandle<StatusCode> {
    let service = layer.layer(inner());
    let request = tokio::spawn(async move {
        let Ok(response) = service.oneshot(Request::new(())).await;
        response.status()
    });
    tokio::task::yield_now().await;
    request
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_is_told_from_its_entry_to_its_turn() {
    for limiter in stores() {
        let (journal, limiter) = Journal::of(&limiter);
        let layer = limiter.layer(&TENTHS).queue(SECOND);
        let (first, second) = (enter(&layer).await, enter(&layer).await);
        let told = [
            "layer tenths reserved 1 after 100ms *",
            "layer tenths joined after 0ns",
            "layer tenths reserved 1 after 200ms *",
            "layer tenths joined after 0ns",
        ];
        assert_eq!(journal.take(), told);
        assert_eq!(first.await.unwrap(), 200);
        assert_eq!(journal.take(), ["layer tenths served after 100ms, 0ns late"]);
        assert_eq!(second.await.unwrap(), 200);
        assert_eq!(journal.take(), ["layer tenths served after 200ms, 0ns late"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_leaves_is_told_once() {
    for limiter in stores() {
        let (journal, limiter) = Journal::of(&limiter);
        let layer = limiter.layer(&TENTHS).queue(SECOND);
        let (first, second) = (enter(&layer).await, enter(&layer).await);
        journal.take();
        tokio::time::advance(ms(30)).await;
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        assert_eq!(journal.take(), ["layer tenths left after 30ms"]);
        // The one behind it moves forward, and is served earlier than it was told.
        assert_eq!(second.await.unwrap(), 200);
        assert_eq!(journal.take(), ["layer tenths served after 100ms, 0ns late"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_stays_in_vain_is_told_once() {
    for limiter in stores() {
        let (journal, limiter) = Journal::of(&limiter);
        let layer = limiter.layer(&TENTHS).queue(Queue::new(ms(150)).stay());
        let (first, second) = (enter(&layer).await, enter(&layer).await);
        journal.take();
        assert_eq!(first.await.unwrap(), 200);
        assert_eq!(journal.take(), ["layer tenths served after 100ms, 0ns late"]);
        assert_eq!(second.await.unwrap(), 429);
        assert_eq!(journal.take(), ["layer tenths expired after 150ms"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_service_panics_when_it_is_called_has_been_served() {
    for limiter in stores() {
        let (journal, limiter) = Journal::of(&limiter);
        let layer = limiter.layer(&TENTHS).queue(SECOND);
        let service = layer.layer(tower::service_fn(|_: Request<()>| {
            panic!("before there is a future");
            #[expect(unreachable_code, reason = "its type is that of the future")]
            ready(Ok::<_, Infallible>(Response::new(())))
        }));
        tokio::spawn(service.oneshot(Request::new(()))).await.unwrap_err();
        let told = journal.take();
        assert!(told.last().unwrap().contains("served"), "{told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_drained_request_is_told_once_and_none_of_those_in_time() {
    for limiter in stores() {
        let (journal, limiter) = Journal::of(&limiter);
        let layer = limiter.layer(&TENTHS).queue(SECOND);
        let (first, second) = (enter(&layer).await, enter(&layer).await);
        journal.take();
        limiter.drain(ms(150));
        assert_eq!(second.await.unwrap(), 503);
        assert_eq!(journal.take(), ["layer tenths drained after 0ns"]);
        assert_eq!(first.await.unwrap(), 200);
        assert_eq!(journal.take(), ["layer tenths served after 100ms, 0ns late"]);
        // One that comes now would have to wait longer than the drain allows.
        let late = enter(&limiter.layer(&HALVES).queue(SECOND)).await;
        assert_eq!(late.await.unwrap(), 503);
        assert_eq!(journal.take(), ["layer halves refused 1 after 500ms *"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_finds_the_queue_full_is_told_as_such() {
    for limiter in stores() {
        let (journal, limiter) = Journal::of(&limiter);
        let layer = limiter.layer(&TENTHS).queue(Queue::new(SECOND).max_waiters(1));
        let first = enter(&layer).await;
        journal.take();
        assert_eq!(enter(&layer).await.await.unwrap(), 503);
        assert_eq!(journal.take(), ["layer tenths queue_full 1 after 200ms *"]);
        assert_eq!(first.await.unwrap(), 200);
        journal.take();
        // A wait that is too long for the queue is a refusal by the limit.
        let short = limiter.layer(&HALVES).queue(ms(600));
        let _first = enter(&short).await;
        journal.take();
        assert_eq!(enter(&short).await.await.unwrap(), 429);
        assert_eq!(journal.take(), ["layer halves refused 1 after 1s *"]);
    }
}

/// It waits for the slower one. Tokens of both are taken.
#[tokio::test(start_paused = true)]
async fn a_request_over_several_limits_waits_for_the_slowest() {
    for limiter in stores() {
        let (journal, limiter) = Journal::of(&limiter);
        let layer = limiter.layer(&TENTHS).and(&HALVES).queue(SECOND);
        assert_eq!(enter(&layer).await.await.unwrap(), 200);
        let told = [
            "layer tenths reserved 1 after 100ms",
            "layer halves reserved 1 after 500ms *",
            "layer halves joined after 0ns",
            "layer halves served after 500ms, 0ns late",
        ];
        assert_eq!(journal.take(), told);
    }
}

/// A service that is not ready, or a runtime that is busy, makes work run late.
#[tokio::test(start_paused = true)]
async fn work_that_runs_late_is_told_by_how_much() {
    for limiter in stores() {
        let (journal, limiter) = Journal::of(&limiter);
        let service = limiter.layer(&TENTHS).queue(SECOND).layer(SlowClones::new(ms(70)));
        let Ok(response) = service.oneshot(Request::new(())).await;
        assert_eq!(response.status(), 200);
        let told = journal.take();
        assert_eq!(told.last().unwrap(), "layer tenths served after 170ms, 70ms late");

        // A reservation that is polled too late.
        let reserved = limiter.limit(&TENTHS).reserve().await.unwrap();
        let wait = reserved.wait();
        let mut ready = Box::pin(reserved.ready());
        assert!(futures_util::poll!(&mut ready).is_pending());
        journal.take();
        tokio::time::advance(wait + ms(40)).await;
        ready.await;
        let told = journal.take();
        let served = format!("handler tenths served after {:?}, 40ms late", wait + ms(40));
        assert_eq!(told, [served]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reservation_is_told_from_when_it_is_made() {
    for limiter in stores() {
        let (journal, limiter) = Journal::of(&limiter);
        let reserved = limiter.limit(&TENTHS).reserve().await.unwrap();
        journal.take();
        tokio::time::advance(ms(20)).await;
        drop(reserved.ready().await);
        assert_eq!(journal.take(), ["handler tenths served after 100ms, 0ns late"]);
        // Dropped before it is awaited, and while it is.
        let unused = limiter.limit(&TENTHS).reserve().await.unwrap();
        let waiting = limiter.limit(&TENTHS).reserve().await.unwrap();
        let mut waiting = Box::pin(waiting.ready());
        assert!(futures_util::poll!(&mut waiting).is_pending());
        journal.take();
        tokio::time::advance(ms(10)).await;
        drop(unused);
        drop(waiting);
        assert_eq!(journal.take(), ["handler tenths left after 10ms"; 2]);
        let kept = limiter.limit(&TENTHS).reserve().await.unwrap();
        journal.take();
        drop(kept.keep());
        assert_eq!(journal.take(), ["handler tenths kept after 0ns"]);
    }
}

/// The jitter of a turn is a part of what was promised.
#[tokio::test(start_paused = true)]
async fn jitter_makes_no_work_late() {
    for limiter in stores() {
        let (journal, limiter) = Journal::of(&limiter.seed(7));
        let layer = limiter.layer(&TENTHS).queue(SECOND).jitter(ms(500));
        assert_eq!(enter(&layer).await.await.unwrap(), 200);
        let reserved = limiter.limit(&TENTHS).reserve().jitter(ms(500)).await.unwrap();
        drop(reserved.ready().await);
        let told = journal.take();
        let served: Vec<_> = told.iter().filter(|line| line.contains(" served ")).collect();
        assert_eq!(served.len(), 2, "{told:?}");
        // The runtime's timer counts whole milliseconds.
        let is_in_time = |line: &&String| line.ends_with("µs late") || line.ends_with("0ns late");
        assert!(served.iter().all(is_in_time), "{told:?}");
    }
}

/// Is ready at once; its clones, which requests have that wait, are so some time after their turn.
struct SlowClones {
    delay: Duration,
    is_clone: bool,
    until: Option<Instant>,
}

impl SlowClones {
    const fn new(delay: Duration) -> Self {
        Self { delay, is_clone: false, until: None }
    }
}

impl Clone for SlowClones {
    fn clone(&self) -> Self {
        Self { delay: self.delay, is_clone: true, until: None }
    }
}

impl Service<Request<()>> for SlowClones {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Ready<Result<Response<()>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        let until = *self.until.get_or_insert_with(|| Instant::now() + self.delay);
        if !self.is_clone || until <= Instant::now() {
            return Poll::Ready(Ok(()));
        }
        let waker = cx.waker().clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(until).await;
            waker.wake();
        });
        Poll::Pending
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(())))
    }
}
