//! What most services use instead, beside ours.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::RateLimiter as Governor;
use http::StatusCode;
use tollgate::{DAY, SECOND};
use tower::Layer;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

use super::decisions::{client, measured, session};
use super::layers::{Inner, drive};

fn governor<K: std::hash::Hash + Eq + Clone>(
    rate: u32,
    period: Duration,
) -> governor::DefaultKeyedRateLimiter<K> {
    let burst = NonZeroU32::new(rate).expect("above zero");
    let quota = governor::Quota::with_period(period / rate).expect("above zero");
    Governor::keyed(quota.allow_burst(burst))
}

pub fn address_of_governor(times: u32) {
    let limiter = governor(1_000_000_000, SECOND);
    let ask = |client: Ipv4Addr| assert!(black_box(limiter.check_key(&client).is_ok()));
    ask(client(7));
    measured((0..times).map(|_| client(7)), ask);
}

pub fn address_refused_of_governor(times: u32) {
    let limiter = governor(1, DAY);
    let ask = |client: Ipv4Addr| assert!(black_box(limiter.check_key(&client).is_err()));
    assert!(limiter.check_key(&client(7)).is_ok());
    measured((0..times).map(|_| client(7)), ask);
}

pub fn string_of_governor(times: u32) {
    let (limiter, session) = (governor(1_000_000_000, SECOND), session());
    let ask = |session: &String| assert!(black_box(limiter.check_key(session).is_ok()));
    ask(&session);
    measured((0..times).map(|_| &session), ask);
}

pub fn tower_governor(times: u32) {
    theirs(Duration::from_nanos(1), 1_000_000_000, StatusCode::OK, times);
}

pub fn tower_governor_with_headers(times: u32) {
    let mut config = GovernorConfigBuilder::default();
    config.period(Duration::from_nanos(1)).burst_size(1_000_000_000);
    let config = config.use_headers().finish();
    let layer = GovernorLayer::new(config.expect("numbers above zero"));
    drive(layer.layer(Inner), StatusCode::OK, times);
}

pub fn refused_by_tower_governor(times: u32) {
    theirs(DAY, 1, StatusCode::TOO_MANY_REQUESTS, times);
}

fn theirs(period: Duration, burst: u32, wanted: StatusCode, times: u32) {
    let config = GovernorConfigBuilder::default().period(period).burst_size(burst).finish();
    drive(GovernorLayer::new(config.expect("numbers above zero")).layer(Inner), wanted, times);
}
