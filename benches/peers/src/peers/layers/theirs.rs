//! Their layers.

use std::num::NonZeroU32;

use axum_gcra::real_ip::RealIp;
use axum_governor::extractor::PeerIp;
use tower::Layer;
use tower::limit::RateLimit;
use tower::limit::rate::Rate;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

use super::super::Allowance;
use super::{Inner, Layered};

pub fn tower_governor(allowance: Allowance) -> impl Layered {
    let config = GovernorConfigBuilder::default()
        .period(allowance.interval())
        .burst_size(allowance.burst)
        .finish();
    GovernorLayer::new(config.expect("numbers above zero")).layer(Inner)
}

pub fn tower_governor_headers(allowance: Allowance) -> impl Layered {
    let config = GovernorConfigBuilder::default()
        .period(allowance.interval())
        .burst_size(allowance.burst)
        .use_headers()
        .finish();
    GovernorLayer::new(config.expect("numbers above zero")).layer(Inner)
}

/// Its fields cannot be turned off. Within a runtime, as it starts a task that sweeps.
///
/// Its quotas count whole requests in a second, a minute or an hour; a second will do.
pub fn axum_governor(allowance: Allowance) -> impl Layered {
    let number = |number| NonZeroU32::new(number).expect("numbers above zero");
    let quota = axum_governor::Quota::requests_per_second(number(allowance.rate));
    let config = axum_governor::GovernorConfigBuilder::default()
        .with_extractor(PeerIp::default())
        .expect_connect_info()
        .quota_default(quota.burst(number(allowance.burst)))
        .finish();
    axum_governor::GovernorLayer::new(config.expect("a valid configuration")).layer(Inner)
}

/// For requests with axum 0.7's [`ConnectInfo`](axum07::extract::ConnectInfo).
pub fn axum_gcra(allowance: Allowance) -> impl Layered {
    axum_gcra::RateLimitLayer::<RealIp>::builder()
        .with_default_quota(super::super::axum_gcra::quota(allowance))
        .build()
        .layer(Inner)
}

/// Its fields cannot be turned off.
pub fn throttle_kit(allowance: Allowance) -> impl Layered {
    let quota = super::super::throttle_kit::quota(allowance);
    throttle_kit::RateLimitLayer::new(quota, throttle_kit::InMemoryBackend::new()).layer(Inner)
}

/// One bucket for all; within a runtime, as it makes a timer.
pub fn tower_rate_limit(allowance: Allowance) -> impl Layered {
    RateLimit::new(Inner, Rate::new(allowance.rate.into(), allowance.period))
}
