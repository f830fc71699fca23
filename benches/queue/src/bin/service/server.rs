//! The service: one route, as in front of a language model.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use axum::{BoxError, Router};
use http::HeaderMap;
use http_body::Frame;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, sleep};
use tollgate::middleware::{ActualCost, Meter, Queue};
use tollgate::{Limit, RateLimitExt, RateLimiter};

use crate::history::{Arrival, History};
use crate::scenario::{CHUNK_EVERY, CHUNKS, Scenario, Settled};

/// The header fields in which a request tells its number, its estimate and what it will really cost.
pub const NUMBER: &str = "x-number";
pub const COST: &str = "x-cost";
pub const ACTUAL: &str = "x-actual";

/// Longer than anything waits here.
const MAX_WAIT: Duration = Duration::from_secs(100);

/// Records what happens in the service.
#[derive(Clone)]
pub struct Log {
    start: Arc<OnceLock<Instant>>,
    history: Arc<Mutex<History>>,
    limiter: RateLimiter,
    limit: Arc<Limit>,
}

/// Starts the service of a scenario; it ends when the task is aborted.
pub async fn start(scenario: &Scenario) -> (Log, SocketAddr, JoinHandle<()>) {
    let limit = scenario.limit();
    let limiter = RateLimiter::in_memory();
    let layer = limiter.layer(&limit).queue(Queue::new(MAX_WAIT));
    let costs = || scenario.requests.iter().map(|job| job.cost);
    let layer = match costs().next() {
        Some(cost) if costs().all(|other| other == cost) => layer.cost(cost),
        _ => layer.cost_with(|head| number(head.headers(), COST)),
    };
    let (settled, work) = (scenario.settled, scenario.work);
    let layer = if settled == Settled::Never { layer } else { layer.settle() };

    let (history, start) = (Arc::default(), Arc::default());
    let log = Log { start, history, limiter, limit: Arc::new(limit) };
    let run = async move |State(log): State<Log>, headers: HeaderMap| {
        log.runs(number(&headers, NUMBER));
        answer(number(&headers, ACTUAL), settled, work).await
    };
    let routes = Router::new().route("/chat", get(run).rate_limit(layer));
    let app = routes.layer(from_fn_with_state(log.clone(), arrive)).with_state(log.clone());

    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port on this machine");
    let address = listener.local_addr().expect("a bound socket has an address");
    let server = tokio::spawn(async move {
        axum::serve(listener, app).await.expect("axum's server does not fail");
    });
    (log, address, server)
}

/// Records each request on its way to the layer. Nothing runs in between on a runtime of one thread,
/// so this is the order in which the limiter decides.
async fn arrive(State(log): State<Log>, request: Request, next: Next) -> Response {
    let number = number(request.headers(), NUMBER);
    let snapshot = log.limiter.peek(&log.limit).await.expect("the store is in memory");
    let arrival = Arrival { number, at: log.now(), tokens: snapshot.remaining() };
    log.history().arrivals.push(arrival);
    next.run(request).await
}

/// Stands for the model, which takes its time before its answer or between the chunks of it.
async fn answer(actual: u64, settled: Settled, work: Duration) -> Response {
    if settled == Settled::ByMeter {
        let (cost, meter) = ActualCost::metered();
        let mut response = Response::new(Body::new(Stream::new(actual, meter)));
        response.extensions_mut().insert(cost);
        return response;
    }
    sleep(work).await;
    let mut response = Response::new(Body::from("forty-two"));
    response.extensions_mut().insert(ActualCost::new(actual));
    response
}

fn number<N: std::str::FromStr>(headers: &HeaderMap, name: &str) -> N {
    let field = headers.get(name).and_then(|field| field.to_str().ok()?.parse().ok());
    field.expect("the clients of this program send these numbers")
}

impl Log {
    /// The start of the scenario is now.
    pub fn start(&self) -> Instant {
        *self.start.get_or_init(Instant::now)
    }

    pub fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().expect("nothing panics while it writes")
    }

    /// All that has happened.
    pub fn finish(&self) -> History {
        let mut history = std::mem::take(&mut *self.history());
        // The service learns late of a connection that was closed: the work may have started by then.
        let runs = history.runs.clone();
        history.left.retain(|leaver| runs.iter().all(|run| run.0 != *leaver));
        history
    }

    fn now(&self) -> Duration {
        self.start().elapsed()
    }

    fn runs(&self, number: usize) {
        let now = self.now();
        self.history().runs.push((number, now));
    }
}

/// A body of some chunks, which settles what was sent when it is dropped: when it has ended, and
/// also if the client goes away before.
struct Stream {
    sent: u32,
    next: Pin<Box<Sleep>>,
    actual: u64,
    meter: Option<Meter>,
}

impl Stream {
    fn new(actual: u64, meter: Meter) -> Self {
        Self { sent: 0, next: Box::pin(sleep(CHUNK_EVERY)), actual, meter: Some(meter) }
    }
}

impl HttpBody for Stream {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.sent == CHUNKS {
            return Poll::Ready(None);
        }
        ready!(self.next.as_mut().poll(cx));
        self.sent += 1;
        self.next = Box::pin(sleep(CHUNK_EVERY));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"forty-two ")))))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(meter) = self.meter.take() {
            meter.settle(self.actual * u64::from(self.sent) / u64::from(CHUNKS));
        }
    }
}
