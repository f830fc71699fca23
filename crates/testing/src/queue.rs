//! Requests that wait for their turn, on a clock that moves only when all of them do.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BucketId, Charge, Memory, OwnedAdjustment,
};
use tollgate::clock::TokioClock;
use tollgate::limiter::{Permit, Reservation};
use tollgate::{Limit, RateLimiter};
use tower::{Service, ServiceExt};

use super::at_once;

/// So many milliseconds.
pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A limiter in memory, on the clock of the runtime.
pub fn paused() -> RateLimiter {
    RateLimiter::new(Memory::new().clock(TokioClock::new()))
}

/// The exact tokens in the bucket that all callers share.
#[track_caller]
pub fn tokens(limiter: &RateLimiter, limit: &Limit) -> f64 {
    at_once(limiter.peek(limit)).unwrap().tokens().to_f64()
}

/// How many queues the limiter and its store keep.
pub fn lines(limiter: &RateLimiter) -> usize {
    let shown = format!("{limiter:?}");
    let number = |name| {
        let rest = shown.split(name).nth(1)?;
        let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
        number.parse::<usize>().ok()
    };
    let shared = number("QueueIndex { queues: ").expect("every limiter has an index of queues");
    number("lines: ").unwrap_or(0) + shared
}

/// A reservation for later in the bucket that all callers share.
#[track_caller]
pub fn reserve(limiter: &RateLimiter, limit: &Limit, cost: u64) -> Reservation {
    later(at_once(limiter.limit(limit).cost(cost).reserve()).unwrap())
}

/// A reservation that waits for its turn.
pub type Turn = Pin<Box<dyn Future<Output = Permit<'static>> + Send>>;

/// A reservation in the queue.
#[track_caller]
pub fn waiter(limiter: &RateLimiter, limit: &Limit, cost: u64) -> Turn {
    let mut waiter = Box::pin(reserve(limiter, limit, cost).ready());
    assert!(poll(&mut waiter).is_none(), "its instant has not come");
    waiter
}

/// Polls a waiter. It wakes no task.
pub fn poll<F: Future + Unpin>(waiter: &mut F) -> Option<F::Output> {
    match Pin::new(waiter).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

/// A reservation in a store that answers later.
pub async fn reserved(limiter: &RateLimiter, limit: &Limit, cost: u64) -> Reservation {
    later(limiter.limit(limit).cost(cost).reserve().await.unwrap())
}

/// A reservation for an instant in the future.
#[track_caller]
fn later(reservation: Reservation) -> Reservation {
    assert!(reservation.wait() > Duration::ZERO, "the tokens were there: {reservation:?}");
    reservation
}

/// Runs every task that can run before the clock advances.
pub async fn settled() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// An inner service that records which request it was called with, and when.
#[derive(Clone, Debug)]
pub struct Recorder {
    start: Instant,
    takes: Duration,
    ran: Arc<Mutex<Vec<(u64, Duration)>>>,
}

impl Recorder {
    /// Counts the time from here on.
    pub fn new() -> Self {
        Self { start: Instant::now(), takes: Duration::ZERO, ran: Arc::default() }
    }

    /// Takes this long for each request.
    pub fn takes(mut self, time: Duration) -> Self {
        self.takes = time;
        self
    }

    /// The requests that it was called with, and when, in this order.
    pub fn ran(&self) -> Vec<(u64, Duration)> {
        self.ran.lock().unwrap().clone()
    }

    fn record(&self, request: u64) {
        self.ran.lock().unwrap().push((request, self.start.elapsed()));
    }
}

/// The answer of a boxed service.
pub type Running<T, E = Infallible> = Pin<Box<dyn Future<Output = Result<Response<T>, E>> + Send>>;

impl Service<Request<u64>> for Recorder {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Running<()>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<u64>) -> Self::Future {
        self.record(request.into_body());
        let takes = self.takes;
        Box::pin(async move {
            if !takes.is_zero() {
                tokio::time::sleep(takes).await;
            }
            Ok(Response::new(()))
        })
    }
}

/// Sends a request now; its answer comes in a task of its own.
pub async fn send<S>(service: &S, request: Request<u64>) -> JoinHandle<S::Response>
where
    S: Service<Request<u64>, Error: std::fmt::Debug> + Clone,
    S::Future: Send + 'static,
    S::Response: Send + 'static,
    S::Error: Send,
{
    let mut service = service.clone();
    let call = service.ready().await.unwrap().call(request);
    let answer = tokio::spawn(async move { call.await.unwrap() });
    // Then the request is waiting when this function returns.
    tokio::task::yield_now().await;
    answer
}

/// A memory store that holds its answers back while its gate is closed. It takes tokens before it
/// holds the answer back, and returns tokens only afterwards.
#[derive(Clone, Debug)]
pub struct Late {
    memory: Arc<Memory>,
    gate: Arc<Mutex<watch::Receiver<bool>>>,
    /// How often it was asked to give something back.
    adjusted: Arc<AtomicU64>,
}

/// Holds back the answers to calls that came between closing and opening the gate.
#[derive(Debug)]
pub struct Held(watch::Sender<bool>);

impl Held {
    /// Lets these answers go.
    pub fn let_go(&self) {
        self.0.send_replace(true);
    }
}

impl Late {
    /// The store, with its gate open; a limiter on it, and one that looks past the gate.
    pub fn new() -> (Self, RateLimiter, RateLimiter) {
        let memory = Arc::new(Memory::new().clock(TokioClock::new()));
        let gate = Arc::new(Mutex::new(watch::channel(true).1));
        let late = Self { memory: Arc::clone(&memory), gate, adjusted: Arc::default() };
        (late.clone(), RateLimiter::new(late), RateLimiter::new(memory))
    }

    /// How often it was asked to give something back since this was last read.
    pub fn take_adjusted(&self) -> u64 {
        self.adjusted.swap(0, Ordering::Relaxed)
    }

    /// Holds back the answers to what is asked from here on.
    pub fn close(&self) -> Held {
        let (held, gate) = watch::channel(false);
        *self.gate.lock().unwrap() = gate;
        Held(held)
    }

    /// Answers what is asked from here on, but not what is held.
    pub fn open(&self) {
        *self.gate.lock().unwrap() = watch::channel(true).1;
    }

    fn gate(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut gate = self.gate.lock().unwrap().clone();
        async move {
            gate.wait_for(|open| *open).await.expect("the gate stays closed for ever");
        }
    }
}

impl Backend for Late {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        let (gate, answer) = (self.gate(), self.memory.apply(charges));
        Answer::pending(async move {
            gate.await;
            answer.wait().await
        })
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        self.adjusted.fetch_add(1, Ordering::Relaxed);
        let owned: Vec<_> = adjustments.iter().map(|one| one.into_owned()).collect();
        let (gate, memory) = (self.gate(), Arc::clone(&self.memory));
        Answer::pending(async move {
            gate.await;
            // One list, as the caller passed it: either all of it is adjusted or nothing is.
            let adjustments: Vec<_> = owned.iter().map(OwnedAdjustment::as_adjustment).collect();
            memory.adjust(&adjustments).wait().await
        })
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.memory.reset(ids)
    }
}
