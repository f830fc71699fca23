//! A GraphQL API that charges each query for its cost: a token for each field that it may return,
//! so that `users(first: 100)` costs a hundred times as much as `users(first: 1)`.
//!
//! Run it with `cargo run --example graphql`.

use std::sync::Arc;

use async_graphql::extensions::{Extension, ExtensionContext, ExtensionFactory, NextValidation};
use async_graphql::{
    EmptyMutation, EmptySubscription, Object, Request, Schema, ServerError, SimpleObject,
    ValidationResult,
};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, routing::post};
use tollgate::{Limit, MINUTE, Quota, RateLimited, RateLimiter};

const QUERIES: Limit = Limit::new("graphql", Quota::token_bucket(1_000, MINUTE));

#[derive(SimpleObject)]
struct User {
    id: u32,
    name: String,
}

struct Query;

#[Object]
impl Query {
    /// A user for each number up to `first`. It costs what one of them does, `first` times.
    #[graphql(complexity = "first as usize * child_complexity + 1")]
    async fn users(&self, first: u32) -> Vec<User> {
        (0..first).map(|id| User { id, name: format!("user {id}") }).collect()
    }
}

/// Who asks: in production, the user that your authentication established.
struct Caller(String);

/// Charges a query when its cost is known, and before anything of it runs.
#[derive(Clone)]
struct Charge(RateLimiter);

impl ExtensionFactory for Charge {
    fn create(&self) -> Arc<dyn Extension> {
        Arc::new(self.clone())
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
        let caller = ctx.data_unchecked::<Caller>();
        let cost = valid.complexity as u64;
        match self.0.limit(&QUERIES).key(caller.0.as_str()).cost(cost).await {
            Ok(_) => Ok(valid),
            Err(refused) => {
                let mut error = ServerError::new(refused.to_string(), None);
                error.source = Some(Arc::new(refused));
                Err(vec![error])
            }
        }
    }
}

type Api = Schema<Query, EmptyMutation, EmptySubscription>;

async fn graphql(State(api): State<Api>, fields: HeaderMap, request: Json<Request>) -> Response {
    let user = fields.get("x-user").and_then(|user| user.to_str().ok()).unwrap_or("anonymous");
    let response = api.execute(request.0.data(Caller(user.to_owned()))).await;
    // A refusal is a 429 with `Retry-After`, as of any other route.
    match response.errors.iter().find_map(ServerError::source::<RateLimited>) {
        Some(refused) => refused.clone().into_response(),
        None => Json(response).into_response(),
    }
}

pub(crate) fn app(limiter: &RateLimiter) -> Router {
    let api = Schema::build(Query, EmptyMutation, EmptySubscription)
        .limit_depth(10) // bounds what a query can cost before it is counted
        .extension(Charge(limiter.clone()));
    Router::new().route("/graphql", post(graphql)).with_state(api.finish())
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
