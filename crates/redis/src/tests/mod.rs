//! The engine against real servers, with times that the tests choose.

mod calendars;
mod calls;
mod changed;
mod cluster;
mod conformance;
mod cross_slot;
mod expiry;
mod fight;
mod foreign;
pub(super) mod fuzz;
mod fuzz_values;
mod initialization;
mod limiter;
mod one;
mod trace;

use tollgate_testing::redis::Server;

use super::{Redis, RedisBuilder};
use tollgate::clock::ManualClock;
use tollgate_conformance::dice::Dice;
use tollgate_conformance::history::START;
use tollgate_conformance::history::expect_ready;

/// A store on this server that uses the time of `clock`, with a deadline that no test reaches.
fn on(server: &Server, clock: &ManualClock) -> RedisBuilder {
    Redis::at(server.url()).clock(clock.clone()).deadline(std::time::Duration::from_secs(60))
}
