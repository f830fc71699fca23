//! A service whose limits can be watched: metrics for Prometheus, and decisions in spans and the log.
//!
//! Run it with `cargo run -p tollgate-metrics --example observing`, then try the lines that it prints.
//! `docs/grafana-dashboard.json` is a dashboard for its metrics.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::{get, post};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tollgate::key::{ClientIp, header};
use tollgate::observe::trace;
use tollgate::{
    DAY, HOUR, Limit, MINUTE, Quota, RateLimitExt, RateLimited, RateLimiter, Rule, SECOND,
};
use tollgate_metrics::Metrics;
use tracing::Instrument;
use tracing::field::Empty;

const PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(60, MINUTE));
/// A limit that is tried out: it only watches.
const PER_USER: Limit = Limit::new("per-user", Quota::token_bucket(20, HOUR));
const EXPORTS: Limit = Limit::new("exports", Quota::fixed_window(3, DAY));
/// Two reports a second, which wait for their turn.
const REPORTS: Limit = Limit::new("reports", Quota::token_bucket(2, SECOND).max_reserved(20));

/// A limiter, its metrics, and the page that Prometheus scrapes.
#[derive(Clone)]
pub(crate) struct Watched {
    pub(crate) limiter: RateLimiter,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) page: PrometheusHandle,
}

impl Watched {
    pub(crate) fn new(limiter: &RateLimiter) -> Result<Self, Box<dyn std::error::Error>> {
        // Prometheus wants units in names (`_seconds`, `_total`), and buckets for a histogram.
        let seconds = [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];
        let recorder = PrometheusBuilder::new().with_recommended_naming(true);
        let recorder = recorder.set_buckets(&[&seconds[..], &[5.0, 10.0, 30.0, 60.0]].concat())?;
        let recorder = recorder.build_recorder();
        let page = recorder.handle();
        // An application with metrics of its own installs the recorder by
        // `metrics::set_global_recorder(recorder)`, and takes `Metrics::new()`.
        let metrics = Arc::new(Metrics::new().recorder(recorder));
        let limiter = limiter.clone().observe(Arc::clone(&metrics)).observe(trace());
        Ok(Self { limiter, metrics, page })
    }

    pub(crate) fn app(&self) -> Router {
        let Self { limiter, .. } = self;
        let watching = Rule::new(&PER_USER).key(header("x-user")).shadow();
        let reports = limiter.layer(&REPORTS).and(watching).queue(Duration::from_secs(5));
        Router::new()
            .route("/", get(async || "hello\n"))
            .route("/report", post(async || "a report\n").rate_limit(reports))
            .route("/export", get(export).with_state(limiter.clone()))
            .layer(limiter.layer(&PER_CLIENT).key(ClientIp::peer()))
            .layer(from_fn(in_span))
    }

    /// The routes of the operators. Serve them on a port of their own or behind your authentication.
    pub(crate) fn operators(&self) -> Router {
        Router::new().route("/metrics", get(metrics)).with_state(self.clone())
    }
}

async fn export(State(limiter): State<RateLimiter>) -> Result<&'static str, RateLimited> {
    limiter.limit(&EXPORTS).await?;
    Ok("a file\n")
}

async fn metrics(State(watched): State<Watched>) -> String {
    // What is counted by the store itself has to be asked for.
    watched.metrics.record_store(&watched.limiter);
    watched.page.render()
}

/// Gives each request a span with the fields that [`trace()`] fills in. With `tower-http`, this is
/// `TraceLayer::make_span_with`.
async fn in_span(request: Request, next: Next) -> Response {
    let span = tracing::info_span!(
        "request",
        path = request.uri().path(),
        tollgate.limit = Empty,
        tollgate.outcome = Empty,
        tollgate.wait = Empty,
        tollgate.shadow = Empty,
    );
    async {
        let response = next.run(request).await;
        tracing::info!(status = response.status().as_u16(), "answered");
        response
    }
    .instrument(span)
    .await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    let watched = Watched::new(&RateLimiter::in_memory())?;
    let operators = tokio::net::TcpListener::bind("127.0.0.1:9000").await?;
    tokio::spawn(axum::serve(operators, watched.operators()).into_future());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("Try these, then read the numbers:");
    println!("  for i in 1 2 3 4 5; do curl 127.0.0.1:3000/export; done");
    println!(
        "  for i in $(seq 8); do curl -X POST -H 'x-user: alice' 127.0.0.1:3000/report & done"
    );
    println!("  curl 127.0.0.1:9000/metrics");
    let app = watched.app().into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, app).await?)
}
