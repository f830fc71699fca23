use axum::{Json, Router, routing::post};
use serde::Deserialize;
use tollgate::key::extension;
use tollgate::routes::extract_body;
use tollgate::{Limit, MINUTE, Quota, RateLimitExt, RateLimiter};

const ITEMS: Limit = Limit::new("items", Quota::token_bucket(100, MINUTE));

#[derive(Clone, Deserialize)]
struct Order {
    account: String,
    items: Vec<u64>,
}

async fn order(Json(order): Json<Order>) -> String {
    format!("{} items", order.items.len())
}

fn app(limiter: &RateLimiter) -> Router {
    let items = |order: &Order| order.items.len() as u64;
    let limit = limiter
        .layer(&ITEMS)
        .key(extension(|order: &Order| order.account.to_lowercase()))
        .cost_with(move |head| head.extensions().get().map_or(1, items));
    let read = extract_body(16 * 1024, |Json(order): Json<Order>| order);
    Router::new().route("/orders", post(order).rate_limit(limit).route_layer(read))
}

mod tests {
    use super::*;
    use axum::{body::Body, http::Request};
    use tower::ServiceExt;

    #[tokio::test]
    async fn orders_are_charged_by_their_items_and_account() {
        let app = app(&RateLimiter::in_memory());
        let post = async |body: String| {
            let request = Request::post("/orders").header("content-type", "application/json");
            app.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap().status()
        };
        let orders = [
            ("alice", 60, 200),
            ("Alice", 60, 429),
            ("alice", 40, 200),
            ("bob", 20_000, 413),
            ("", 1, 400),
        ];
        for (account, items, status) in orders {
            let body =
                serde_json::json!({ "account": account, "items": vec![1; items] }).to_string();
            assert_eq!(post(body).await, status, "{account} {items}");
        }
        assert_eq!(post(r#"{"items":[]}"#.to_owned()).await, 422);
    }
}
