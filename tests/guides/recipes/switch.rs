use axum::{Router, routing::get};
use tollgate::key::global;
use tollgate::{Limit, MINUTE, Quota, RateLimiter};

const API: Limit = Limit::new("api", Quota::token_bucket(1, MINUTE));

fn app(is_limited: bool) -> Router {
    let limiter = RateLimiter::in_memory().enabled(is_limited);
    Router::new().route("/", get(async || "hello")).layer(limiter.layer(&API).key(global()))
}

mod tests {
    use super::*;
    use axum::body::Body;
    use tower::ServiceExt;

    #[tokio::test]
    async fn limits_can_be_switched_off() {
        for (is_limited, second) in [(true, 429), (false, 200)] {
            let app = app(is_limited);
            let ask = || app.clone().oneshot(http::Request::new(Body::empty()));
            assert_eq!(ask().await.unwrap().status(), 200);
            assert_eq!(ask().await.unwrap().status(), second);
        }
    }
}
