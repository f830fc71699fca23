//! Keys from the sessions of `tower-sessions`.

use tower_sessions_core::Session as TowerSession;

use super::digest::digest;
use super::extractor::{Extracted, KeyExtractor};
use super::head::Head;
use super::key_error::KeyError;

/// Takes the digest of a session's id as the key; made by [`session`].
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Session;

/// Takes the digest of a session's id as the key, for the sessions of `tower-sessions`.
///
/// Add its `SessionManagerLayer` outside of this layer. A request that has no session yet has no
/// key, and a client that drops its session gets a new one, so also limit requests by address.
///
/// `tower-sessions` loads sessions lazily: until something reads the session, a forged id is
/// accepted. With a layer between the two that loads the session, a forged id counts as missing:
///
/// ```
/// use axum::Router;
/// use axum::extract::Request;
/// use axum::http::StatusCode;
/// use axum::middleware::{Next, from_fn};
/// use axum::response::{IntoResponse, Response};
/// use tollgate::key::{ClientIp, KeyExtractor, session};
/// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
/// use tower_sessions::{MemoryStore, Session, SessionManagerLayer};
///
/// const PER_SESSION: Limit = Limit::new("per-session", Quota::token_bucket(60, MINUTE));
///
/// async fn load(session: Session, request: Request, next: Next) -> Response {
///     match session.get_value("").await {
///         Ok(_) => next.run(request).await,
///         Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
///     }
/// }
///
/// let key = session().or(ClientIp::peer());
/// let app: Router = Router::new()
///     .layer(RateLimiter::in_memory().layer(&PER_SESSION).key(key))
///     .layer(from_fn(load))
///     .layer(SessionManagerLayer::new(MemoryStore::default()));
/// # drop(app);
/// ```
#[must_use]
pub const fn session() -> Session {
    Session
}

impl KeyExtractor for Session {
    fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
        let Some(session) = head.extensions().get::<TowerSession>() else {
            return Err(KeyError::misconfigured(
                "no session: the request comes without `tower-sessions` (add its \
                 `SessionManagerLayer` outside of this layer)",
            ));
        };
        match session.id() {
            Some(id) => Ok(Extracted::Key(digest(id.0.to_be_bytes()))),
            None => Err(KeyError::missing(
                "no session: the request has none yet (choose by `missing_key` or `or` what \
                 happens without one)",
            )),
        }
    }
}
