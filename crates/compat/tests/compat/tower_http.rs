//! Layers of tower-http around a limit, in a `ServiceBuilder`: they answer by themselves, and let a
//! browser read what the limit says.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Method, Request, StatusCode};
use tollgate::clock::ManualClock;
use tollgate::key::global;
use tollgate::{Limit, MINUTE, Quota};
use tollgate_testing::{START, limiter};
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_http::cors::{Any, CorsLayer};
use tower_http::timeout::TimeoutLayer;

const API: Limit = Limit::new("api", Quota::token_bucket(1, MINUTE));

#[tokio::test(start_paused = true)]
async fn a_limit_stands_inside_of_layers_that_answer_by_themselves() {
    let slow = async || tokio::time::sleep(Duration::from_secs(60)).await;
    let app = Router::new().route("/", get(slow));
    let limit = limiter(&ManualClock::new(START)).layer(&API).key(global());
    let mut service = ServiceBuilder::new()
        .layer(CorsLayer::permissive().expose_headers(Any))
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(1)))
        .layer(limit)
        .service(app);
    let ask = |method| {
        let request =
            Request::builder().method(method).uri("/").header("origin", "https://a.example");
        request.header("access-control-request-method", "GET").body(Body::empty()).unwrap()
    };
    for (method, status) in [
        (Method::OPTIONS, StatusCode::OK), // a preflight, which costs nothing
        (Method::GET, StatusCode::GATEWAY_TIMEOUT),
        (Method::GET, StatusCode::TOO_MANY_REQUESTS),
    ] {
        let ready = ServiceExt::<Request<Body>>::ready(&mut service).await.unwrap();
        let response = ready.call(ask(method)).await.unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(response.headers()["access-control-allow-origin"], "*");
        let is_refused = status == StatusCode::TOO_MANY_REQUESTS;
        assert_eq!(response.headers().contains_key("retry-after"), is_refused);
    }
}
