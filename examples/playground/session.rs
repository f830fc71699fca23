//! The visitors: each tab of a browser has limits of its own, as long as its socket is open.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use serde_json::Value;
use tokio::sync::mpsc;
use tollgate::backend::Memory;
use tollgate::clock::Clock;
use tollgate::{RateLimiter, Timestamp};
use tower::ServiceExt;

use super::MAX_SESSIONS;
use super::lane::Lane;
use super::settings::{LaneKind, Settings};
use super::socket;

/// The sessions by their names.
#[derive(Clone)]
pub(crate) struct Sessions {
    clock: Arc<dyn Clock>,
    open: Arc<Mutex<HashMap<String, Arc<Session>>>>,
}

/// The limits of one tab.
pub(crate) struct Session {
    pub(crate) limiter: RateLimiter,
    lanes: Mutex<[Lane; 2]>,
    events: mpsc::Sender<Value>,
}

/// A session that ends when this is dropped.
pub(crate) struct OpenSession {
    pub(crate) name: String,
    pub(crate) session: Arc<Session>,
    /// When it was opened.
    pub(crate) now: Timestamp,
    sessions: Sessions,
}

pub(crate) fn routes(sessions: Sessions) -> Router {
    Router::new()
        .route("/socket", any(connect))
        .route("/{session}/{lane}", get(work))
        .route("/{session}/{lane}/limits", get(limits))
        .with_state(sessions)
}

async fn connect(State(sessions): State<Sessions>, socket: WebSocketUpgrade) -> Response {
    let (events, told) = mpsc::channel(1_000);
    match sessions.open(events) {
        Ok(session) => {
            socket.max_message_size(4_096).on_upgrade(|socket| socket::talk(socket, session, told))
        }
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error).into_response(),
    }
}

/// Runs a request through the limit.
async fn work(
    State(sessions): State<Sessions>,
    Path(path): Path<(String, String)>,
    request: Request,
) -> Response {
    match sessions.find(&path) {
        Some(lane) => send(lane.work, request).await,
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Tells what is left of the limit.
async fn limits(
    State(sessions): State<Sessions>,
    Path(path): Path<(String, String)>,
    request: Request,
) -> Response {
    match sessions.find(&path) {
        Some(lane) => send(lane.limits, request).await,
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

pub(crate) async fn send(route: Router, request: Request) -> Response {
    match route.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

impl Sessions {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, open: Arc::default() }
    }

    fn open(&self, events: mpsc::Sender<Value>) -> Result<OpenSession, String> {
        // Room for all shards of both limits.
        let limiter = RateLimiter::new(Memory::new().max_keys(64).clock(Arc::clone(&self.clock)));
        let lanes = lanes(&Settings::FIRST, &limiter, &events)?;
        let session = Arc::new(Session { limiter, lanes: Mutex::new(lanes), events });
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= MAX_SESSIONS {
            return Err(format!("{MAX_SESSIONS} tabs are open already (close one)\n"));
        }
        // The keys of each state are random.
        let name = format!("{:06x}", RandomState::new().hash_one(open.len()) & 0xff_ffff);
        open.insert(name.clone(), Arc::clone(&session));
        Ok(OpenSession { name, session, now: self.clock.now(), sessions: self.clone() })
    }

    fn find(&self, (name, lane): &(String, String)) -> Option<Lane> {
        let kind = LaneKind::from_name(lane)?;
        let session = {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(open.get(name)?)
        };
        Some(session.lane(kind))
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        let mut open = self.sessions.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.remove(&self.name);
    }
}

impl Session {
    pub(crate) fn lane(&self, kind: LaneKind) -> Lane {
        let [bucket, window] = &*self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        match kind {
            LaneKind::Bucket => bucket.clone(),
            LaneKind::Window => window.clone(),
        }
    }

    /// Changes the numbers. What was used of the limits stays used.
    pub(crate) async fn set(&self, settings: &Settings) -> Result<(), String> {
        let lanes = lanes(settings, &self.limiter, &self.events)?;
        for lane in &lanes {
            // A bucket gains by its old numbers until a request asks by the new ones: here, by one
            // that gives back what it takes. A store in memory does not fail.
            if let Ok(permit) = self.limiter.limit(&lane.limit).await {
                let _ = permit.refund().await;
            }
        }
        *self.lanes.lock().unwrap_or_else(PoisonError::into_inner) = lanes;
        Ok(())
    }
}

fn lanes(
    settings: &Settings,
    limiter: &RateLimiter,
    events: &mpsc::Sender<Value>,
) -> Result<[Lane; 2], String> {
    let lane = |kind| Lane::new(kind, settings, limiter, events.clone());
    Ok([lane(LaneKind::Bucket)?, lane(LaneKind::Window)?])
}
