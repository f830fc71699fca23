use axum::{Router, routing::get};
use tollgate::key::matched_path;
use tollgate::{HOUR, Limit, Quota, RateLimitExt, RateLimiter};

const PER_ROUTE: Limit = Limit::new("per-route", Quota::token_bucket(10, HOUR));
const BY_PATH: Limit = Limit::new("by-path", Quota::token_bucket(10, HOUR));

fn app(limiter: &RateLimiter) -> Router {
    // `/api/users/{id}`: the route, however it is nested.
    let per_route = limiter.layer(&PER_ROUTE).key(matched_path());
    // `/users/7`: without the prefix, and one bucket for each id.
    let by_path = limiter.layer(&BY_PATH).key_with(|head| Some(head.uri().path().to_owned()));
    let users = Router::new().route("/users/{id}", get(async || "hello"));
    Router::new().nest("/api", users.rate_limit(per_route).rate_limit(by_path))
}

mod tests {
    use super::*;
    use axum::body::Body;
    use tower::ServiceExt;

    const OUTER: Limit = Limit::new("outer", Quota::token_bucket(10, HOUR));

    #[tokio::test]
    async fn the_path_loses_its_prefix_within_a_nested_router() {
        let limiter = RateLimiter::in_memory();
        let outer = limiter.layer(&OUTER).key_with(|head| Some(head.uri().path().to_owned()));
        let app = app(&limiter).layer(outer).layer(limiter.layer(&OUTER).key(matched_path()));
        for (path, status) in [("/api/users/7", 200), ("/nowhere", 404)] {
            let request = http::Request::get(path).body(Body::empty()).unwrap();
            let response = app.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status(), status);
        }
        let left = async |limit, key| limiter.peek(limit).key(key).await.unwrap().remaining();
        assert_eq!(left(&PER_ROUTE, "/api/users/{id}").await, 9);
        assert_eq!(left(&BY_PATH, "/users/7").await, 9);
        assert_eq!(left(&OUTER, "/api/users/7").await, 9);
    }
}
