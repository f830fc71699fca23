//! The routes that look, and change nothing.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{OriginalUri, Path, RawQuery, State};
use axum::response::Response;
use http::{StatusCode, Uri};
use serde_json::{Value, json};
use tokio::task::yield_now;

use super::error::AdminError;
use super::json::Count;
use super::query::ListQuery;
use super::state::AdminState;
use super::{json as shown, path, query, reply};
use tollgate::backend::{DebtorReport, Key};
use tollgate::limiter::{Limit, RateLimited, RateLimiter};

/// `GET /`
pub(super) async fn show_limits(
    State(state): State<Arc<AdminState>>,
    OriginalUri(uri): OriginalUri,
    RawQuery(asked): RawQuery,
) -> Result<Response, AdminError> {
    query::none(asked.as_deref())?;
    let limits = state.limits().iter();
    let limits: Vec<_> =
        limits.map(|limit| shown::limit(limit, &state.in_force(limit), uri.path())).collect();
    Ok(reply::json(&json!({ "limits": limits })))
}

/// `GET /{limit}/{key}`
pub(super) async fn show_key(
    State(state): State<Arc<AdminState>>,
    path: Result<Path<(String, String)>, PathRejection>,
    RawQuery(asked): RawQuery,
) -> Result<Response, AdminError> {
    let (limit, key) = path::segments(path)?;
    let (limit, key) = (state.limit(&limit)?, Key::from_text(&key)?);
    let cost = query::cost(asked.as_deref())?;
    let snapshot = state.limiter().peek(limit).key(&key).cost(cost).await?;
    Ok(reply::json(&Value::Object(shown::snapshot(&snapshot, &key.to_text()))))
}

/// `GET /{limit}`
pub(super) async fn list_debtors(
    State(state): State<Arc<AdminState>>,
    path: Result<Path<String>, PathRejection>,
    uri: Uri,
    RawQuery(asked): RawQuery,
) -> Result<Response, AdminError> {
    let limit = state.limit(&path::segments(path)?)?;
    let asked = ListQuery::parse(asked.as_deref())?;
    let call = asked.only(state.limiter().debtors(limit)).max(asked.max);
    match call.after(asked.after.clone()).await? {
        DebtorReport::Page { at, debtors, next } => {
            let next = next.map(|next| asked.following(&next));
            Ok(reply::json(&shown::page(limit, at, &debtors, next, uri.path())))
        }
        DebtorReport::Count { at, in_debt, blocked, next } => {
            let first = Count { at, in_debt, blocked };
            let count = count_all(state.limiter(), limit, &asked, first, next).await?;
            Ok(reply::json(&shown::count(&state.in_force(limit), &asked, &count)))
        }
        _ => Err(AdminError::new(
            StatusCode::NOT_IMPLEMENTED,
            "the store of this limiter cannot list keys (look at a key by its name)",
        )),
    }
}

/// Adds up the parts of a count. Other requests run between them.
async fn count_all(
    limiter: &RateLimiter,
    limit: &Limit,
    asked: &ListQuery,
    mut count: Count,
    mut next: Option<String>,
) -> Result<Count, RateLimited> {
    while let Some(cursor) = next {
        yield_now().await;
        let call = asked.only(limiter.debtors(limit)).after(cursor);
        // Not reached: a store that counts does not list.
        let DebtorReport::Count { at, in_debt, blocked, next: more } = call.await? else { break };
        let in_debt = count.in_debt.saturating_add(in_debt);
        count = Count { at, in_debt, blocked: count.blocked.saturating_add(blocked) };
        next = more;
    }
    Ok(count)
}
