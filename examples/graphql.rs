//! A GraphQL API that charges each query for its cost: a token for each field that it may return,
//! so that `users(first: 100)` costs a hundred times as much as `users(first: 1)`.
//!
//! Run it with `cargo run -p tollgate-compat --example graphql`.

use std::sync::Arc;

use async_graphql::extensions::{Extension, ExtensionContext, ExtensionFactory, NextValidation};
use async_graphql::{
    EmptyMutation, EmptySubscription, Object, Request, Schema, ServerError, ValidationResult,
};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, routing::post};
use serde_json::json;
use tollgate::key::header;
use tollgate::middleware::{Admission, OnRefusal};
use tollgate::{Limit, MINUTE, Quota, RateLimitExt, RateLimited, RateLimiter};

const QUERIES: Limit = Limit::new("graphql", Quota::token_bucket(1_000, MINUTE));

struct User(u32);

#[Object]
impl User {
    async fn id(&self) -> u32 {
        self.0
    }

    async fn name(&self) -> String {
        format!("user {}", self.0)
    }

    #[graphql(complexity = "list(first, child_complexity)")]
    async fn friends(&self, first: u32) -> Vec<User> {
        (0..first).map(User).collect()
    }
}

struct Query;

#[Object]
impl Query {
    /// A user for each number up to `first`.
    #[graphql(complexity = "list(first, child_complexity)")]
    async fn users(&self, first: u32) -> Vec<User> {
        (0..first).map(User).collect()
    }
}

/// The cost of a list: what one item costs, `first` times.
///
/// It has a bound, since the product of nested lists could overflow, to a small cost.
fn list(first: u32, item: usize) -> usize {
    (first as usize).saturating_mul(item).min(1_000_000) + 1
}

/// Charges a query when its cost is known, and before anything of it runs.
struct Charge;

impl ExtensionFactory for Charge {
    fn create(&self) -> Arc<dyn Extension> {
        Arc::new(Self)
    }
}

#[async_trait::async_trait]
impl Extension for Charge {
    async fn validation(
        &self,
        ctx: &ExtensionContext<'_>,
        next: NextValidation<'_>,
    ) -> Result<ValidationResult, Vec<ServerError>> {
        let valid = next.run(ctx).await?;
        let admission = ctx.data_unchecked::<Admission>();
        let charged = admission.charge(valid.complexity as u64).await;
        charged.map(|()| valid).map_err(|refused| {
            let mut error = ServerError::new(refused.to_string(), None);
            error.source = Some(Arc::new(refused));
            vec![error]
        })
    }
}

type Api = Schema<Query, EmptyMutation, EmptySubscription>;

async fn graphql(
    State(api): State<Api>,
    admission: Admission,
    Json(request): Json<Request>,
) -> Response {
    let response = api.execute(request.data(admission)).await;
    // A refusal is a 429 with `Retry-After`, as of any other route.
    match response.errors.iter().find_map(ServerError::source::<RateLimited>) {
        Some(refused) => refused.clone().into_response(),
        None => Json(response).into_response(),
    }
}

/// Words a refusal as clients of GraphQL read errors.
fn as_graphql() -> OnRefusal {
    OnRefusal::handler(|refused| {
        let wait = refused.retry_after().map(|wait| wait.as_secs_f64().ceil());
        let extensions = json!({ "code": "RATE_LIMITED", "retryAfter": wait });
        let error = json!({ "message": "too many requests", "extensions": extensions });
        (refused.status(), Json(json!({ "errors": [error] }))).into_response()
    })
}

pub(crate) fn app(limiter: &RateLimiter) -> Router {
    let api = Schema::build(Query, EmptyMutation, EmptySubscription)
        .limit_depth(10) // bounds what a query can cost before it is counted
        .extension(Charge);
    // The key: in production, the user that your authentication established.
    let limiter = limiter.clone().on_refusal(as_graphql());
    let queries = limiter.layer(&QUERIES).key(header("x-user")).cost(0).expose();
    Router::new().route("/graphql", post(graphql).rate_limit(queries)).with_state(api.finish())
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("Listening on http://127.0.0.1:3000. The third one is refused:");
    println!(
        "  for i in 1 2 3; do curl -i 127.0.0.1:3000/graphql -H 'x-user: alice' \\
    --json '{{\"query\":\"{{ users(first: 200) {{ id name }} }}\"}}'; done"
    );
    axum::serve(listener, app(&RateLimiter::in_memory())).await
}
