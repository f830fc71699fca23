use axum::extract::{DefaultBodyLimit, State};
use axum::{Json, Router, routing::post};
use serde::Deserialize;
use tollgate::{Limit, MINUTE, Quota, RateLimited, RateLimiter};

const ITEMS: Limit = Limit::new("items", Quota::token_bucket(100, MINUTE));

#[derive(Deserialize)]
struct Order {
    account: String,
    items: Vec<u64>,
}

async fn order(
    State(limiter): State<RateLimiter>,
    Json(order): Json<Order>,
) -> Result<String, RateLimited> {
    let (account, items) = (order.account.to_lowercase(), order.items.len() as u64);
    let permit = limiter.limit(&ITEMS).key(account).cost(items).await?; // 429 leaves here
    Ok(format!("{} left", permit.remaining()))
}

fn app(limiter: RateLimiter) -> Router {
    let app = Router::new().route("/orders", post(order)).with_state(limiter);
    app.layer(DefaultBodyLimit::max(16 * 1024)) // 413 beyond that
}

mod tests {
    use super::*;
    use axum::{body::Body, http::Request};
    use tower::ServiceExt;

    #[tokio::test]
    async fn a_handler_charges_what_it_has_parsed() {
        let app = app(RateLimiter::in_memory());
        let post = |body: String| {
            let request = Request::post("/orders").header("content-type", "application/json");
            request.body(Body::from(body)).unwrap()
        };
        for (items, status) in [(60, 200), (60, 429), (40, 200), (20_000, 413)] {
            let body =
                serde_json::json!({ "account": "alice", "items": vec![1; items] }).to_string();
            assert_eq!(app.clone().oneshot(post(body)).await.unwrap().status(), status);
        }
    }
}
