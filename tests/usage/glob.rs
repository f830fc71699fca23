//! The root of the crate fits beside those of axum and http: with a glob import of each, every name
//! still stands for one thing.
//!
//! `middleware` is the exception: axum has a module of that name as well, and `tollgate::middleware`
//! names ours.

use axum::*;
use http::*;
use tollgate::*;

const PER_USER: Limit = Limit::new("per-user", Quota::token_bucket(1, MINUTE));

/// Uses names of each root that once clashed with a name of another root.
fn app(limiter: &RateLimiter) -> Router {
    let rule = Rule::new(&PER_USER).key_with(|head: &Head<'_>| Key::from(head.method().as_str()));
    let layer: RateLimitLayer = limiter
        .layer(rule)
        .dialects(fields::Dialect::XRateLimit)
        .on_failure(OnFailure::Refuse)
        .on_refusal(OnRefusal::plain_text());
    let hello = async |method: Method| -> (http::StatusCode, Json<String>) {
        (StatusCode::OK, Json(method.to_string()))
    };
    Router::new().route("/", routing::get(hello)).rate_limit(layer)
}

#[tokio::test]
async fn glob_imports_of_all_three_crates_compile_together() {
    let app = app(&RateLimiter::in_memory());
    let get = || Request::builder().method(Method::GET).uri("/").body(body::Body::empty()).unwrap();
    let response = tower::ServiceExt::oneshot(app.clone(), get()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let remaining = HeaderName::from_static("x-ratelimit-remaining");
    assert_eq!(response.headers().get(remaining), Some(&HeaderValue::from_static("0")));
    let response = tower::ServiceExt::oneshot(app, get()).await.unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(response.headers().contains_key(header::RETRY_AFTER));
}

/// Each name at the root, where only one thing may be meant by it.
#[test]
fn each_name_at_the_root_stands_for_one_thing() {
    fn named<T>() {}
    named::<(RateLimiter, Limit, Quota, Permit<'_>, RateLimited, Reservation, Snapshot)>();
    named::<(Rule, RateLimitLayer, RateLimit<()>, OnRefusal, OnFailure, Head<'_>)>();
    named::<(Key, Timestamp, &dyn KeyExtractor)>();
    named::<(algebra::State, backend::BackendError, clock::SystemClock, fields::Dialect)>();
    named::<(key::ClientIp, limiter::LimitCall<'_>, quota::QuotaError)>();
    named::<(routes::Extract<(), (), ()>, tollgate::middleware::Admission)>();
    assert_eq!([SECOND * 60, MINUTE * 60, HOUR * 24], [MINUTE, HOUR, DAY]);
}
