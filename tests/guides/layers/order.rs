use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::{Router, routing::get};
use tollgate::key::extension;
use tollgate::middleware::Admission;
use tollgate::{Limit, MINUTE, Quota, RateLimiter};

const PER_USER: Limit = Limit::new("per-user", Quota::token_bucket(60, MINUTE));

#[derive(Clone)]
struct User(u64);

async fn authenticate(mut request: Request, next: Next) -> Response {
    request.extensions_mut().insert(User(7)); // in production, from a verified token
    next.run(request).await
}

async fn look(admission: Admission, request: Request, next: Next) -> Response {
    println!("{:?} left", admission.remaining());
    next.run(request).await
}

fn app(limiter: &RateLimiter) -> Router {
    let limit = limiter.layer(&PER_USER).key(extension(|user: &User| user.0)).expose();
    Router::new()
        .route("/", get(async || "hello"))
        .layer(from_fn(look)) // runs last, with the admission
        .layer(limit)
        .layer(from_fn(authenticate)) // runs first, and inserts the user
}

mod tests {
    use super::*;
    use tower::ServiceExt;

    #[tokio::test]
    async fn the_layer_that_runs_first_finds_the_key() {
        let request = http::Request::get("/").body(axum::body::Body::empty()).unwrap();
        assert_eq!(app(&RateLimiter::in_memory()).oneshot(request).await.unwrap().status(), 200);
    }
}
