//! What a service has on its first day: limits from a file, a key of its own, Redis with a fallback,
//! metrics, and routes for operators.
//!
//! ```sh
//! OPERATOR_TOKEN=secret cargo run -p tollgate-config --features credentials --example service
//! curl -i -H 'x-tenant: Acme' 127.0.0.1:3000/
//! curl 127.0.0.1:3000/metrics
//! curl -H 'authorization: Bearer secret' 127.0.0.1:3000/admin/limits/per-tenant/acme
//! ```
//!
//! Without a Redis on port 6379, the fallback decides in memory. After a change of
//! `crates/config/examples/service.toml`, send `kill -HUP` with the id that it prints.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use http::StatusCode;
use http::header::AUTHORIZATION;
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::net::TcpListener;
use tollgate::backend::{CircuitBreaker, Fallback, Memory};
use tollgate::key::{digest, from_fn};
use tollgate::{Head, Key, RateLimiter};
use tollgate_admin::admin;
use tollgate_config::Config;
use tollgate_metrics::Metrics;
use tollgate_redis::Redis;

/// The tenant, in lower case: `Acme` and `acme` share a bucket.
fn tenant(head: &Head<'_>) -> Option<String> {
    let tenant = head.headers().get("x-tenant")?.to_str().ok()?.trim();
    (!tenant.is_empty()).then(|| tenant.to_ascii_lowercase())
}

/// Compares digests, so that the time it takes says nothing about the token.
async fn operators_only(
    State(known): State<Arc<Key>>,
    request: Request,
    next: Next,
) -> Result<Response, StatusCode> {
    let given = request.headers().get(AUTHORIZATION).ok_or(StatusCode::UNAUTHORIZED)?;
    match digest(given.as_bytes()) == *known {
        true => Ok(next.run(request).await),
        false => Err(StatusCode::FORBIDDEN),
    }
}

/// The routes of the service, and the limiter whose numbers its file changes.
pub(crate) fn app(
    config: &Config,
    redis: &str,
    operator_token: &str,
) -> Result<(Router, RateLimiter), Box<dyn Error>> {
    let recorder = PrometheusBuilder::new().with_recommended_naming(true).build_recorder();
    let page = recorder.handle();
    let metrics = Arc::new(Metrics::new().recorder(recorder));

    let redis = CircuitBreaker::new(Redis::at(redis).connect_lazily()?);
    let store = Fallback::new(redis, Memory::new()); // `.nodes(n)` shares a limit among n processes
    let limiter = config.configure(RateLimiter::new(store)).observe(Arc::clone(&metrics));

    let per_tenant = config.limit("per-tenant")?;
    let per_client = config.limit("per-client")?;
    let by_tenant = per_tenant.layer_with_key(&limiter, from_fn(tenant))?;
    let by_client = per_client.layer(&limiter)?;
    config.finish()?; // an error if a limit of the file is not used here

    let known = Arc::new(digest(format!("Bearer {operator_token}")));
    let operators = admin(&limiter, [&per_tenant, &per_client])
        .guard(from_fn_with_state(known, operators_only));

    let scraped = limiter.clone();
    let scrape = get(async move || {
        metrics.record_store(&scraped);
        page.render()
    });
    let limited =
        Router::new().route("/", get(async || "hello\n")).layer(by_tenant).layer(by_client);
    let app = limited.route("/metrics", scrape).nest("/admin/limits", operators);
    Ok((app, limiter))
}

/// Reads the file again on each SIGHUP.
#[cfg(unix)]
async fn reload_on_hangup(config: Config, limiter: RateLimiter) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut hangups = signal(SignalKind::hangup())?;
    while hangups.recv().await.is_some() {
        match config.reload(&limiter) {
            Ok(changes) => println!("{changes}"),
            Err(error) => println!("the limits stay as they are:\n{error}"),
        }
    }
    Ok(())
}

#[cfg(not(unix))]
async fn reload_on_hangup(_: Config, _: RateLimiter) -> std::io::Result<()> {
    Ok(()) // there is no such signal
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let config = Config::from_file(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/service.toml"))?;
    let token = std::env::var("OPERATOR_TOKEN").map_err(|_| "set OPERATOR_TOKEN to a secret")?;
    let (app, limiter) = app(&config, "redis://127.0.0.1:6379", &token)?;
    tokio::spawn(reload_on_hangup(config, limiter));

    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("process {} listens on {}", std::process::id(), listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
