//! A key extractor of your own: each tenant of a service has its bucket, and health checks need none.
//!
//! Run it with `cargo run --example custom_key`.

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::Request;
use tollgate::key::{Extracted, Head, KeyError, KeyExtractor};
use tollgate::{Limit, MINUTE, Quota, RateLimiter};
use tower::ServiceExt;

const PER_TENANT: Limit = Limit::new("per-tenant", Quota::token_bucket(2, MINUTE));

/// The tenants of this service: a client can name any host, and each unknown name would be a new
/// bucket.
const TENANTS: [&str; 2] = ["acme", "zenith"];

/// The first label of the host name: `acme.example.org` is `acme`, in upper or lower case.
struct Tenant;

impl KeyExtractor for Tenant {
    fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
        if head.uri().path() == "/health" {
            return Ok(Extracted::Exempt);
        }
        // Over HTTP/2, the host is in the target of the request; over HTTP/1.1, mostly in a field.
        let field = || head.headers().get("host")?.to_str().ok();
        let host = head.uri().host().or_else(field);
        // Over HTTP/2, a client can send spaces around a value: they make no other tenant.
        let label = host.and_then(|host| host.trim().split_once('.')).map(|(label, _)| label);
        let is_named =
            |tenant: &&str| label.is_some_and(|label| label.eq_ignore_ascii_case(tenant));
        match TENANTS.into_iter().find(is_named) {
            Some(tenant) => Ok(tenant.into()),
            None => Err(KeyError::invalid("the first label of the host name is no tenant")),
        }
    }
}

pub(crate) fn app(limiter: &RateLimiter) -> Router {
    Router::new()
        .route("/", get(async || "hello"))
        .route("/health", get(async || "fine"))
        .layer(limiter.layer(&PER_TENANT).key(Tenant))
}

pub(crate) async fn ask(app: &Router, host: &str, path: &str) -> u16 {
    let request = Request::builder().uri(path).header("host", host).body(Body::empty());
    let request = request.expect("a host and a path make a request");
    let Ok(response) = app.clone().oneshot(request).await;
    response.status().as_u16()
}

#[tokio::main]
async fn main() {
    let app = app(&RateLimiter::in_memory());
    for host in ["acme.example.org", "ACME.example.org", "acme.example.org", "zenith.example.org"] {
        println!("{host} {}", ask(&app, host, "/").await);
    }
    println!("/health {}", ask(&app, "acme.example.org", "/health").await);
}
