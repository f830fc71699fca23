//! The examples do what they say.

#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../../../examples/graphql.rs"]
mod graphql;
#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../../../examples/rpc_costs.rs"]
mod rpc_costs;

use axum::body::{Body, to_bytes};
use http::Request;
use tollgate::clock::ManualClock;
use tollgate_testing::{START, limiter};
use tower::ServiceExt;

#[tokio::test]
async fn graphql_charges_a_query_by_its_complexity_before_it_runs() {
    let app = graphql::app(&limiter(&ManualClock::new(START)));
    let ask = async |user: &str, query: &str| {
        let body = serde_json::json!({ "query": query }).to_string();
        let request = Request::post("/graphql").header("x-user", user);
        let request = request.header("content-type", "application/json").body(Body::from(body));
        app.clone().oneshot(request.unwrap()).await.unwrap()
    };
    // 2 fields of 200 users and the list: 401 of 1,000 tokens.
    for status in [200, 200, 429] {
        let response = ask("alice", "{ users(first: 200) { id name } }").await;
        assert_eq!(response.status(), status);
        let wait = response.headers().get("retry-after");
        assert_eq!(wait.is_some(), status == 429, "{wait:?}"); // 203 tokens at 1,000 a minute
        assert!(wait.is_none_or(|wait| wait == "13"), "{wait:?}");
        if status == 429 {
            let body = to_bytes(response.into_body(), 1_024).await.unwrap();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let extensions = serde_json::json!({ "code": "RATE_LIMITED", "retryAfter": 13.0 });
            assert_eq!(body["errors"][0]["extensions"], extensions);
        }
    }
    let cheap = ask("alice", "{ users(first: 5) { id } }").await;
    assert_eq!(cheap.status(), 200);
    let left = cheap.headers()["ratelimit"].to_str().unwrap();
    assert!(left.starts_with("\"graphql\";r=192;"), "{left}");
    // Aliases count, each for itself.
    let twice = "{ a: users(first: 499) { id } b: users(first: 499) { id } }";
    assert_eq!(ask("bob", twice).await.status(), 200);
    assert_eq!(ask("bob", "{ users(first: 1) { id } }").await.status(), 429);
    // More than the limit ever holds.
    let too_large = ask("carol", "{ users(first: 1000) { id } }").await;
    assert_eq!((too_large.status().as_u16(), too_large.headers().get("retry-after")), (413, None));
    // Numbers whose product overflows to a small one: 2^31 * (1227133513 * 7 + 1) = 2^64.
    let seven = "a: id b: id c: id d: id e: id f: id g: id";
    let wraps =
        format!("{{ users(first: 2147483648) {{ friends(first: 1227133513) {{ {seven} }} }} }}");
    assert_eq!(ask("carol", &wraps).await.status(), 413);
    // What is no query is not charged.
    assert_eq!(ask("carol", "{ nothing }").await.status(), 200);
    assert_eq!(ask("carol", "{ users(first: 999) { id } }").await.status(), 200);
}

#[tokio::test]
async fn rpc_costs_charges_each_method_its_own() {
    let server = rpc_costs::serve(&limiter(&ManualClock::new(START))).await.unwrap();
    for tenant in ["acme", "globex"] {
        let (checks, watches, refused) = rpc_costs::ask(server, tenant).await.unwrap();
        // 1 + 10 + 1 of 12 tokens.
        assert_eq!((checks, watches, refused.code()), (2, 1, tonic::Code::ResourceExhausted));
    }
}
