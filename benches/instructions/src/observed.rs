//! The same decisions and requests with an observer: one that does nothing, and one that counts.

use std::hint::black_box;
use std::net::Ipv4Addr;

use axum::http::StatusCode;
use metrics_exporter_prometheus::PrometheusBuilder;
use tollgate::fields::Dialect;
use tollgate::key::ClientIp;
use tollgate::{Limit, Observer, RateLimiter};
use tollgate_metrics::Metrics;
use tower::Layer;

use super::decisions::{at_once, measured, one_client, open_limit, spent_limit};
use super::layers::{Inner, drive};

/// Is told all, and does nothing.
struct Silent;

impl Observer for Silent {}

fn silent() -> RateLimiter {
    RateLimiter::in_memory().observe(Silent)
}

/// Counts for a recorder that drops all.
fn counting() -> RateLimiter {
    RateLimiter::in_memory().observe(Metrics::new().recorder(metrics::NoopRecorder))
}

/// Counts for Prometheus.
fn prometheus() -> RateLimiter {
    let recorder = PrometheusBuilder::new().build_recorder();
    RateLimiter::in_memory().observe(Metrics::new().recorder(recorder))
}

fn decide(limiter: &RateLimiter, limit: &'static Limit, is_admitted: bool, times: u32) {
    let ask = |client: Ipv4Addr| {
        assert_eq!(black_box(at_once(limiter.limit(limit).key(client)).is_ok()), is_admitted);
    };
    drop(at_once(limiter.limit(limit).key(one_client())));
    drop(at_once(limiter.limit(limit).key(one_client())));
    measured((0..times).map(|_| one_client()), ask);
}

fn serve(limiter: &RateLimiter, times: u32) {
    let layer = limiter.layer(open_limit()).key(ClientIp::peer()).dialects(Dialect::None);
    drive(layer.layer(Inner), StatusCode::OK, times);
}

pub fn address_silent(times: u32) {
    decide(&silent(), open_limit(), true, times);
}

pub fn address_counting(times: u32) {
    decide(&counting(), open_limit(), true, times);
}

pub fn address_prometheus(times: u32) {
    decide(&prometheus(), open_limit(), true, times);
}

pub fn refused_prometheus(times: u32) {
    decide(&prometheus(), spent_limit(), false, times);
}

pub fn layer_silent(times: u32) {
    serve(&silent(), times);
}

pub fn layer_counting(times: u32) {
    serve(&counting(), times);
}

pub fn layer_prometheus(times: u32) {
    serve(&prometheus(), times);
}
