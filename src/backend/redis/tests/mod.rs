//! The engine against real servers, at times that the tests choose.

#[path = "../../../../tests/support/redis/mod.rs"]
mod servers;

mod cluster;
mod cross_slot;
mod expiry;
mod foreign;
mod initialization;
mod limiter;
mod one;
mod quotas;
mod trace;

use self::trace::at_once;
use super::{Redis, RedisBuilder};
use crate::clock::{ManualClock, Timestamp};
use servers::Server;

/// Some time in 2100: nothing expires by the time of the server.
const START: Timestamp = Timestamp::from_micros(4_102_444_800_123_456);

/// A store on a server, whose time is `clock`'s, and nobody's patience ends.
fn on(server: &Server, clock: &ManualClock) -> RedisBuilder {
    Redis::at(server.url()).clock(clock.clone()).deadline(std::time::Duration::from_secs(60))
}

/// Numbers that look random, and are the same in each run.
struct Dice(u64);

impl Dice {
    /// A number below `sides`.
    fn below(&mut self, sides: u64) -> u64 {
        // SplitMix64 (Steele, Lea and Flood 2014).
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    fn one_in(&mut self, sides: u64) -> bool {
        self.below(sides) == 0
    }

    fn of<T: Clone>(&mut self, list: &[T]) -> T {
        list[usize::try_from(self.below(list.len() as u64)).unwrap()].clone()
    }

    /// A number from 0 to `most`, small ones as likely as large ones.
    fn some(&mut self, most: u64) -> u64 {
        let bits = 64 - most.leading_zeros();
        let bits = self.below(u64::from(bits) + 1);
        self.below(1_u64 << bits.min(63)).min(most)
    }
}
