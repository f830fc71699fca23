//! Plans: each tenant has the numbers of its plan, all tenants share one limit, and a request takes
//! from both or from neither.
//!
//! Run it with `cargo run --example tenants`.

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::Request;
use tollgate::key::{Head, header};
use tollgate::{Limit, MINUTE, Quota, RateLimiter, Rule};
use tower::ServiceExt;

/// One limit with the numbers of two plans. They share a name, and so a bucket: a tenant that changes
/// its plan keeps what it has used.
static FREE: Limit = Limit::new("per-tenant", Quota::token_bucket(2, MINUTE));
static PRO: Limit = Limit::new("per-tenant", Quota::token_bucket(6, MINUTE));

/// The load that the server can take from all tenants together.
static EVERYONE: Limit = Limit::new("everyone", Quota::token_bucket(10, MINUTE));

/// In production, the plan comes from what the authentication has put into the extensions.
fn plan(head: &Head<'_>) -> &'static Limit {
    let is_pro = head.headers().get("x-plan").is_some_and(|plan| plan == "pro");
    if is_pro { &PRO } else { &FREE }
}

pub(crate) fn app(limiter: &RateLimiter) -> Router {
    let tenant = Rule::new(&FREE).limit_with(plan).key(header("x-tenant"));
    Router::new().route("/", get(async || "hello")).layer(limiter.layer(tenant).and(&EVERYONE))
}

pub(crate) async fn ask(app: &Router, tenant: &str, plan: &str) -> (u16, String) {
    let request = Request::get("/").header("x-tenant", tenant).header("x-plan", plan);
    let request = request.body(Body::empty()).expect("names and plans are header values");
    let Ok(response) = app.clone().oneshot(request).await;
    let told = response.headers().get("ratelimit").and_then(|told| told.to_str().ok());
    (response.status().as_u16(), told.unwrap_or_default().to_owned())
}

#[tokio::main]
async fn main() {
    let app = app(&RateLimiter::in_memory());
    for (tenant, plan) in [("acme", "free"), ("zenith", "pro")] {
        for _ in 0..4 {
            let (status, told) = ask(&app, tenant, plan).await;
            println!("{tenant}, {plan}: {status} {told}");
        }
    }
}
