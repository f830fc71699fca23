use axum::http::{HeaderValue, Method, header};
use axum::response::Response;
use axum::{Router, middleware::map_response, routing::get};
use tollgate::key::global;
use tollgate::{Limit, MINUTE, Quota, RateLimiter, Rule};

const API: Limit = Limit::new("api", Quota::token_bucket(1, MINUTE));

/// In production, `tower_http::cors::CorsLayer`, with `.expose_headers([..])`.
async fn cors(mut response: Response) -> Response {
    let [all, exposed] = ["*", "retry-after, ratelimit"].map(HeaderValue::from_static);
    response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, all);
    response.headers_mut().insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
    response
}

fn app(limiter: &RateLimiter) -> Router {
    let api = Rule::new(&API).key(global());
    let api = api.only_if(|head| head.method() != Method::OPTIONS); // no preflights
    let app = Router::new().route("/", get(async || "hello"));
    app.layer(limiter.layer(api)).layer(map_response(cors))
}

mod tests {
    use super::*;
    use axum::body::Body;
    use tower::ServiceExt;

    #[tokio::test]
    async fn a_refusal_has_the_fields_of_cors() {
        let app = app(&RateLimiter::in_memory());
        let (get, options) = (Method::GET, Method::OPTIONS);
        for (method, status) in [(&options, 405), (&get, 200), (&options, 405), (&get, 429)] {
            let request =
                http::Request::builder().method(method).uri("/").body(Body::empty()).unwrap();
            let response = app.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status(), status);
            assert_eq!(response.headers()["access-control-allow-origin"], "*");
        }
    }
}
