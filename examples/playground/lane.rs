//! A limited route, and what the page hears of its requests.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tollgate::algebra::Bucket;
use tollgate::fields::ExactWait;
use tollgate::middleware::Queue;
use tollgate::routes::remaining;
use tollgate::{Limit, RateLimiter};

use super::settings::{LaneKind, Settings};

/// How many requests of a visitor may wait at once.
const MAX_WAITERS: usize = 100;

/// The routes of one kind of limit.
#[derive(Clone)]
pub(crate) struct Lane {
    /// The route that is limited.
    pub(crate) work: Router,
    /// What is left.
    pub(crate) limits: Router,
    pub(crate) limit: Limit,
}

/// Looks at the requests of a lane from outside of the limit.
#[derive(Clone)]
struct Watch {
    kind: LaneKind,
    limit: Limit,
    limiter: RateLimiter,
    events: mpsc::Sender<Value>,
}

impl Lane {
    pub(crate) fn new(
        kind: LaneKind,
        settings: &Settings,
        limiter: &RateLimiter,
        events: mpsc::Sender<Value>,
    ) -> Result<Self, String> {
        let limit = settings.limit(kind)?;
        let layer = limiter.layer(&limit).cost(settings.cost);
        let layer = match settings.queue() {
            Some(longest) => {
                let queue = Queue::new(longest).max_waiters(MAX_WAITERS);
                layer.queue(queue.max_waiters_per_key(MAX_WAITERS))
            }
            None => layer,
        };
        let watch = Watch { kind, limit: limit.clone(), limiter: limiter.clone(), events };
        let work = Router::new().fallback(async || "done\n").layer(layer.clone());
        let work = work.layer(from_fn_with_state(watch, Watch::run));
        Ok(Self { work, limits: Router::new().fallback(remaining(&layer)), limit })
    }
}

impl Watch {
    /// Tells the page what was decided, at once, and when a request that had to wait has run.
    async fn run(State(watch): State<Self>, mut request: Request, next: Next) -> Response {
        let id = request.headers().get("x-id").and_then(|id| id.to_str().ok()?.parse::<u64>().ok());
        request.extensions_mut().insert(ExactWait::default());
        let mut response = pin!(next.run(request));
        // The store is in memory and the handler does not wait. So a request that is not answered
        // at once stands in the queue.
        match futures_util::poll!(&mut response) {
            Poll::Ready(response) => {
                let is_admitted = response.status() == StatusCode::OK;
                let verdict = if is_admitted { "admitted" } else { "refused" };
                watch.tell("decided", id, verdict, Some(Answer::new(&response))).await;
                response
            }
            Poll::Pending => {
                watch.tell("decided", id, "reserved", None).await;
                let response = response.await;
                watch.tell("ran", id, "reserved", Some(Answer::new(&response))).await;
                response
            }
        }
    }

    /// Tells an event, with the state of the bucket after it. Events are left out while a flood
    /// from elsewhere fills the channel.
    async fn tell(&self, event: &str, id: Option<u64>, verdict: &str, answer: Option<Answer>) {
        let Ok(snapshot) = self.limiter.peek(&self.limit).cost(0).await else { return };
        let state = snapshot.state();
        // In the units of the whole limit, as the route `limits` tells them.
        let whole = Bucket::new(self.limit.quota());
        let ratio = whole.map_or(1, |whole| self.limit.bucket().token() / whole.token());
        let value = state.value.div_euclid(i64::try_from(ratio).unwrap_or(1));
        let wait = match verdict {
            // A request that has just entered the queue is the last in it: it runs when nothing is
            // owed any more.
            "reserved" => snapshot.wait(),
            "refused" => answer.as_ref().and_then(|answer| answer.wait),
            _ => Some(Duration::ZERO),
        };
        let _ = self.events.try_send(json!({
            "event": event,
            "lane": self.kind.name(),
            "id": id,
            "verdict": verdict,
            "now": snapshot.at().as_micros(),
            "value": value,
            "ts": state.ts.as_micros(),
            // None if the request costs more than the limit ever grants.
            "wait": wait.map(|wait| wait.as_micros()),
            "status": answer.as_ref().map(|answer| answer.status),
            "fields": answer.map(|answer| answer.fields),
        }));
    }
}

/// What the page shows of a response.
struct Answer {
    status: u16,
    /// The fields that concern the limit.
    fields: Vec<(&'static str, String)>,
    /// The exact wait, if it is a refusal.
    wait: Option<Duration>,
}

impl Answer {
    fn new(response: &Response) -> Self {
        let value = |name| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
        let fields = ["RateLimit-Policy", "RateLimit", "Retry-After", "Server-Timing"];
        Self {
            status: response.status().as_u16(),
            fields: fields.into_iter().filter_map(|name| Some((name, value(name)?))).collect(),
            wait: response.extensions().get().map(ExactWait::wait),
        }
    }
}
