//! The socket of a tab: it changes the numbers, sends requests, and hears what becomes of them.
//!
//! A browser opens six connections to a server, so it cannot let ten requests wait. The requests of
//! the page come over its socket instead, and are run here, through the routes that `curl` reaches
//! as well.

use axum::body::Body;
use axum::extract::Request;
use axum::extract::ws::{Message, WebSocket};
use axum::response::Response;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::session::{OpenSession, send};
use super::settings::{LaneKind, Settings};

/// What the page says.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Order {
    /// Other numbers from now on.
    Settings(Settings),
    /// Full buckets again.
    Reset,
    /// Requests with these numbers, one after another.
    Send { lane: String, ids: Vec<u64> },
}

/// How many requests of a tab may run or wait at once.
const MAX_REQUESTS: usize = 250;

pub(crate) async fn talk(
    mut socket: WebSocket,
    session: OpenSession,
    mut events: mpsc::Receiver<Value>,
) {
    let now = session.now.as_micros();
    let first = json!({ "event": "session", "name": session.name, "now": now });
    if socket.send(text(&first)).await.is_err() {
        return;
    }
    let mut running = FuturesUnordered::new();
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            Some(_) = running.next(), if !running.is_empty() => continue,
            message = socket.recv() => match message {
                Some(Ok(Message::Text(order))) => obey(&session, &order, &mut running).await,
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                // The tab is closed. What still waits is dropped with it.
                _ => return,
            },
        };
        if let Some(event) = event
            && socket.send(text(&event)).await.is_err()
        {
            return;
        }
    }
}

type Running = FuturesUnordered<BoxFuture<'static, Response>>;

/// Does what the page says, and returns what to tell it.
async fn obey(session: &OpenSession, order: &str, running: &mut Running) -> Option<Value> {
    let problem = |text: String| Some(json!({ "event": "problem", "text": text }));
    match serde_json::from_str(order) {
        Ok(Order::Settings(settings)) => match session.session.set(&settings).await {
            Ok(()) => {
                let quotas = LaneKind::ALL.map(|kind| session.session.lane(kind).limit);
                let quotas = quotas.map(|limit| limit.quota().to_string());
                Some(json!({ "event": "settings", "quotas": quotas }))
            }
            Err(error) => problem(error),
        },
        Ok(Order::Reset) => {
            for kind in LaneKind::ALL {
                let limit = session.session.lane(kind).limit;
                if let Err(error) = session.session.limiter.reset(&limit).await {
                    return problem(error.to_string());
                }
            }
            Some(json!({ "event": "reset" }))
        }
        Ok(Order::Send { lane, ids }) => {
            let Some(kind) = LaneKind::from_name(&lane) else {
                return problem(format!("there is no lane {lane}"));
            };
            for id in ids {
                if running.len() >= MAX_REQUESTS {
                    return problem(format!("{MAX_REQUESTS} requests are under way already"));
                }
                let request = Request::get("/").header("x-id", id).body(Body::empty());
                let Ok(request) = request else { continue };
                let mut sent = send(session.session.lane(kind).work, request).boxed();
                // Polled in the order in which they come, and so decided in that order.
                if futures_util::poll!(&mut sent).is_pending() {
                    running.push(sent);
                }
            }
            None
        }
        Err(error) => problem(error.to_string()),
    }
}

fn text(event: &Value) -> Message {
    Message::Text(event.to_string().into())
}
