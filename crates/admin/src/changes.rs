//! The routes that change something. Each is logged before it is made: it may be made although the
//! operator leaves.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use http::HeaderMap;
use serde_json::Value;

use super::error::AdminError;
use super::state::AdminState;
use super::{body, json as shown, path, query, reply};
use tollgate::backend::Key;
use tollgate::limiter::Snapshot;

type KeyPath = Result<Path<(String, String)>, PathRejection>;

/// `DELETE /{limit}/{key}`
pub(super) async fn reset(
    State(state): State<Arc<AdminState>>,
    path: KeyPath,
    RawQuery(asked): RawQuery,
    headers: HeaderMap,
) -> Result<Response, AdminError> {
    let (limit, key) = path::segments(path)?;
    let (limit, key) = (state.limit(&limit)?, Key::from_text(&key)?);
    query::none(asked.as_deref())?;
    body::refuse_other_sites(&headers)?;
    #[cfg(feature = "tracing")]
    tracing::info!(limit = limit.name(), operation = "reset", "an operator changes a key");
    state.limiter().reset(limit).key(key).await?;
    Ok(reply::done())
}

/// `POST /{limit}/{key}/penalize`
pub(super) async fn penalize(
    State(state): State<Arc<AdminState>>,
    path: KeyPath,
    RawQuery(asked): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, AdminError> {
    let (limit, key) = path::segments(path)?;
    let (limit, key) = (state.limit(&limit)?, Key::from_text(&key)?);
    query::none(asked.as_deref())?;
    let tokens = body::tokens(&body::fields(&headers, body).await?)?;
    #[cfg(feature = "tracing")]
    tracing::info!(
        limit = limit.name(),
        operation = "penalize",
        tokens,
        "an operator changes a key"
    );
    let snapshot = state.limiter().penalize(limit, tokens).key(&key).await?;
    Ok(show(&snapshot, &key))
}

/// `POST /{limit}/{key}/block`
pub(super) async fn block(
    State(state): State<Arc<AdminState>>,
    path: KeyPath,
    RawQuery(asked): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, AdminError> {
    let (limit, key) = path::segments(path)?;
    let (limit, key) = (state.limit(&limit)?, Key::from_text(&key)?);
    query::none(asked.as_deref())?;
    let time = body::time(&body::fields(&headers, body).await?)?;
    #[cfg(feature = "tracing")]
    tracing::info!(limit = limit.name(), operation = "block", ?time, "an operator changes a key");
    let snapshot = state.limiter().block(limit, time).key(&key).await?;
    Ok(show(&snapshot, &key))
}

fn show(snapshot: &Snapshot, key: &Key) -> Response {
    reply::json(&Value::Object(shown::snapshot(snapshot, &key.to_text())))
}
