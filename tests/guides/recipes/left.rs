use axum::extract::{Path, State};
use axum::{Json, Router, routing::get};
use serde_json::{Value, json};
use tollgate::{DAY, Limit, Quota, RateLimited, RateLimiter};

const EXPORTS: Limit = Limit::new("exports", Quota::fixed_window(100, DAY));

async fn left(
    State(limiter): State<RateLimiter>,
    Path(user): Path<String>,
) -> Result<Json<Value>, RateLimited> {
    let now = limiter.peek(&EXPORTS).key(user).await?; // in production, the authenticated user
    let (limit, remaining) = (now.capacity(), now.remaining());
    let wait = now.wait().map(|wait| wait.as_secs_f64().ceil()); // until the next token
    Ok(Json(json!({ "limit": limit, "remaining": remaining, "wait_seconds": wait })))
}

fn app(limiter: RateLimiter) -> Router {
    Router::new().route("/users/{user}/left", get(left)).with_state(limiter)
}

mod tests {
    use super::*;
    use axum::body::{Body, to_bytes};
    use tower::ServiceExt;

    #[tokio::test]
    async fn asking_what_is_left_takes_nothing() {
        let limiter = RateLimiter::in_memory();
        limiter.limit(&EXPORTS).key("alice").cost(30).await.unwrap();
        for _ in 0..2 {
            let request = http::Request::get("/users/alice/left").body(Body::empty()).unwrap();
            let response = app(limiter.clone()).oneshot(request).await.unwrap();
            let body = to_bytes(response.into_body(), 1_000).await.unwrap();
            let told: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(told, json!({ "limit": 100, "remaining": 70, "wait_seconds": 0.0 }));
        }
    }
}
