//! The line of one key, and the requests that wait in it.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use http::{Request, Response};
use tollgate::middleware::{Queue, ResponseBody};
use tollgate::{Limit, Quota, RateLimiter, SECOND};
use tower::{Layer, Service, service_fn};

/// Requests that are let go in a second; one each 50 µs, which the store counts exactly.
pub const RATE: u64 = 20_000;

/// Nothing is saved up, so that the instant of every request is known beforehand.
static LIMIT: Limit =
    Limit::new("line", Quota::token_bucket(RATE, SECOND).capacity(0).max_reserved(100_000_000));

/// A request whose body is its number.
pub type Numbered = Request<u32>;

/// What waits in line.
pub trait Wait: Future<Output = Result<Response<ResponseBody<()>>, Infallible>> + Send {}

impl<F> Wait for F where F: Future<Output = Result<Response<ResponseBody<()>>, Infallible>> + Send {}

/// When each request was let go, in nanoseconds after the start.
#[derive(Clone)]
pub struct Turns {
    pub start: Instant,
    turns: Arc<[AtomicU64]>,
}

impl Turns {
    pub fn new(requests: u32) -> Self {
        let turns = (0..requests).map(|_| AtomicU64::new(u64::MAX)).collect();
        Self { start: Instant::now(), turns }
    }

    pub fn came(&self, number: u32) {
        let nanos = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if let Some(turn) = self.turns.get(number as usize) {
            turn.store(nanos, Ordering::Relaxed);
        }
    }

    /// How much later than `promised` each one was, in nanoseconds, the least late first.
    pub fn lateness(&self, promised: impl Fn(u32) -> Duration) -> Vec<i64> {
        let late = |(number, turn): (u32, &AtomicU64)| {
            let turn = turn.load(Ordering::Relaxed);
            assert_ne!(turn, u64::MAX, "request {number} was never let go");
            turn.cast_signed() - i64::try_from(promised(number).as_nanos()).unwrap_or(i64::MAX)
        };
        let mut lateness: Vec<_> = (0..).zip(self.turns.iter()).map(late).collect();
        lateness.sort_unstable();
        lateness
    }
}

/// A limiter with services around it, one for each cost, which share one line.
pub struct Line<S> {
    services: Vec<S>,
}

/// Makes a line in which the first turn comes `ahead` after now.
pub async fn line(
    costs: u64,
    ahead: Duration,
    turns: Turns,
) -> Line<impl Service<Numbered, Future = impl Wait + use<>>> {
    let limiter = RateLimiter::in_memory();
    let tokens = ahead.as_secs() * RATE;
    let reservation = limiter.limit(&LIMIT).cost(tokens).reserve().await;
    let reservation = reservation.expect("the debt is allowed");
    assert_ne!(reservation.wait(), Duration::ZERO, "nothing is saved up");
    drop(reservation.keep());
    let inner = service_fn(move |request: Numbered| -> Ready<Result<_, Infallible>> {
        turns.came(*request.body());
        ready(Ok(Response::new(())))
    });
    let queue = Queue::new(Duration::from_secs(86_400)).max_waiters(usize::MAX);
    let layer = |cost| limiter.layer(&LIMIT).queue(queue).cost(cost);
    Line { services: (1..=costs).map(|cost| layer(cost).layer(inner.clone())).collect() }
}

impl<S> Line<S>
where
    S: Service<Numbered>,
    S::Future: Wait,
{
    /// The response to a request at one of the costs at random.
    pub fn call(&mut self, number: u32, random: &mut Random) -> S::Future {
        let cost = random.below(self.services.len());
        self.services[cost].call(Request::new(number))
    }

    /// The response to such a request, which waits; boxed, so that a vector can hold it.
    pub fn enter(&mut self, number: u32, random: &mut Random) -> Pin<Box<S::Future>> {
        let mut response = Box::pin(self.call(number, random));
        let asked = response.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(asked.is_pending(), "no waiter's turn has come");
        response
    }
}

/// SplitMix64: the same numbers in every run.
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        // Not quite uniform, by less than one part in a billion.
        (self.next() % end.max(1) as u64) as usize
    }

    /// The numbers below `end` in any order.
    pub fn shuffled(&mut self, end: u32) -> Vec<usize> {
        let mut numbers: Vec<_> = (0..end as usize).collect();
        for last in (1..numbers.len()).rev() {
            numbers.swap(last, self.below(last + 1));
        }
        numbers
    }
}
