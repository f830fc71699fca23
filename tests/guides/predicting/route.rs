use axum::{Router, routing::get};
use std::net::SocketAddr;
use tollgate::key::ClientIp;
use tollgate::routes::{predictor, remaining};
use tollgate::{Limit, MINUTE, Quota, RateLimiter};

const PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(10, MINUTE).capacity(20));

fn app(limiter: &RateLimiter) -> Router {
    let limit = limiter.layer(&PER_CLIENT).key(ClientIp::peer());
    Router::new()
        .route("/hello", get(async || "hello\n"))
        .layer(limit.clone())
        .route("/limits", get(remaining(&limit))) // after the layer: asking costs nothing
        .route("/tollgate.js", get(predictor))
}

mod tests {
    use super::*;
    use axum::body::{Body, to_bytes};
    use axum::extract::connect_info::MockConnectInfo;
    use tower::ServiceExt;

    #[tokio::test]
    async fn the_route_shows_the_bucket_of_the_layer() {
        let here = MockConnectInfo(SocketAddr::from(([127, 0, 0, 1], 80)));
        let app = app(&RateLimiter::in_memory()).layer(here);
        let ask = async |path: &str| {
            let request = http::Request::get(path).body(Body::empty()).unwrap();
            let response = app.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status(), 200);
            to_bytes(response.into_body(), 100_000).await.unwrap()
        };
        ask("/hello").await;
        let told: serde_json::Value = serde_json::from_slice(&ask("/limits").await).unwrap();
        assert_eq!(told["limits"][0]["bucket"]["capacity"], 120_000_000);
        assert!(told["limits"][0]["value"].as_i64().unwrap() >= 114_000_000);
    }
}
