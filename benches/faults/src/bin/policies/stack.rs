//! A layer with the wrappers of a policy, and the requests that it gets.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::header::RETRY_AFTER;
use http::{Request, Response, StatusCode};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::backend::{Backend, CircuitBreaker, Fallback, Memory};
use tollgate::{Limit, OnFailure, Quota, RateLimiter, SECOND};
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};

pub const POLICIES: [&str; 3] = ["closed", "open", "fallback"];

pub const DEADLINE: Duration = Duration::from_millis(50);

/// What the limit admits: so many at once, and so many a second.
pub const RATE: u64 = 100;
const LIMIT: Limit = Limit::new("api", Quota::token_bucket(RATE, SECOND));

/// The nodes that share the limit; this is one of them.
const NODES: u32 = 4;

/// Requests at a time, and the pause after each.
const TASKS: usize = 8;
const PAUSE: Duration = Duration::from_millis(4);

/// One request.
#[derive(Clone, Debug)]
pub struct Call {
    pub begun: Instant,
    pub ended: Instant,
    pub status: StatusCode,
    pub retry_after: Option<u64>,
    /// Whether the circuit was open when it came.
    pub found_open: bool,
}

/// What a stack has answered.
#[derive(Debug)]
pub struct Log {
    pub policy: &'static str,
    pub calls: Vec<Call>,
    /// How many passed without being charged to anything.
    pub uncounted: u64,
}

type Service = BoxCloneSyncService<Request<()>, Response<()>, Infallible>;

pub struct Stack {
    policy: &'static str,
    service: Service,
    limiter: RateLimiter,
    breaker: Arc<CircuitBreaker<Arc<dyn Backend>>>,
    over: Arc<AtomicBool>,
    calls: Arc<Mutex<Vec<Call>>>,
    tasks: Mutex<JoinSet<()>>,
}

impl Stack {
    pub fn new(policy: &'static str, store: Arc<dyn Backend>) -> Self {
        let breaker = Arc::new(CircuitBreaker::new(store));
        let limiter = match policy {
            "fallback" => {
                let fallback = Fallback::new(Arc::clone(&breaker), Memory::new());
                RateLimiter::new(fallback.nodes(NODES))
            }
            _ => RateLimiter::new(Arc::clone(&breaker)),
        };
        let limit = if policy == "open" { LIMIT.on_failure(OnFailure::Admit) } else { LIMIT };
        let inner = service_fn(|_| async { Ok::<_, Infallible>(Response::new(())) });
        let service = limiter.layer(limit).layer(inner);
        let service = service.map_response(|response| response.map(|_| ()));
        let service = BoxCloneSyncService::new(service);
        let (over, calls, tasks) = Default::default();
        Self { policy, service, limiter, breaker, over, calls, tasks }
    }

    /// Waits until the store decides.
    pub async fn until_decided(&self) {
        while ask(self.service.clone(), &self.breaker).await.status != StatusCode::OK
            || !self.breaker.is_closed()
        {
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn begin(&self) {
        for _ in 0..TASKS {
            let (service, breaker) = (self.service.clone(), Arc::clone(&self.breaker));
            let (over, calls) = (Arc::clone(&self.over), Arc::clone(&self.calls));
            self.tasks.lock().expect("no panic").spawn(async move {
                while !over.load(Ordering::Acquire) {
                    let call = ask(service.clone(), &breaker).await;
                    calls.lock().expect("no panic").push(call);
                    sleep(PAUSE).await;
                }
            });
        }
    }

    /// How long after `ended` the store was used by all requests again.
    pub async fn until_recovered(&self, ended: Instant) -> Duration {
        loop {
            let answered =
                self.calls.lock().expect("no panic").iter().rev().take(TASKS).any(|call| {
                    call.begun > ended && call.status != StatusCode::SERVICE_UNAVAILABLE
                });
            if answered && self.breaker.is_closed() {
                return ended.elapsed();
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    pub async fn end(self) -> Log {
        self.over.store(true, Ordering::Release);
        let mut tasks = self.tasks.into_inner().expect("no panic");
        while tasks.join_next().await.is_some() {}
        let calls = self.calls.lock().expect("no panic").clone();
        Log { policy: self.policy, calls, uncounted: self.limiter.passed_uncounted() }
    }
}

async fn ask(service: Service, breaker: &CircuitBreaker<Arc<dyn Backend>>) -> Call {
    let found_open = breaker.is_open();
    let begun = Instant::now();
    let answer = service.oneshot(Request::new(())).await;
    let ended = Instant::now();
    let response = match answer {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let retry_after = response.headers().get(RETRY_AFTER);
    let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
    Call { begun, ended, status: response.status(), retry_after, found_open }
}
