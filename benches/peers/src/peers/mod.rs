//! The contenders, each used as its own documentation says.
//!
//! A contender is a closure that takes a key and says whether it was admitted; clones share its
//! buckets. So every loop around it is compiled for it alone.

mod axum_gcra;
pub mod floor;
mod governor;
mod keyless;
pub mod layers;
#[cfg(feature = "limitador")]
mod limitador;
mod ours;
mod throttle_kit;
mod throttlecrab;

use std::time::Duration;

pub use self::axum_gcra::axum_gcra;
pub use self::governor::{
    GovernorStore, governor, governor_direct, governor_foldhash, governor_store,
};
pub use self::keyless::{leaky_bucket, ratelimit};
#[cfg(feature = "limitador")]
pub use self::limitador::limitador;
pub use self::ours::{at_once, limit, limiter, ours, ours_bounded, ours_in_shards, ours_on_all};
pub use self::throttle_kit::throttle_kit;
pub use self::throttlecrab::throttlecrab;

/// The names that tables, figures and plots use, without commas.
pub mod name {
    pub const OURS: &str = "tollgate";
    pub const OURS_ONE_LIMIT: &str = "tollgate one limit";
    pub const OURS_TWO_SHARDS: &str = "tollgate two shards";
    pub const OURS_NO_FIELDS: &str = "tollgate without fields";
    pub const OURS_DRAFT7: &str = "tollgate draft 7";
    pub const OURS_DRAFT6: &str = "tollgate draft 6";
    pub const OURS_X_RATE_LIMIT: &str = "tollgate X-RateLimit";
    pub const GOVERNOR: &str = "governor";
    pub const GOVERNOR_FOLDHASH: &str = "governor with foldhash";
    pub const GOVERNOR_DIRECT: &str = "governor direct (no keys)";
    pub const GOVERNOR_SWEEP: &str = "governor retain_recent";
    pub const GOVERNOR_BESIDE: &str = "governor decision beside it";
    pub const AXUM_GCRA: &str = "axum_gcra";
    pub const THROTTLE_KIT: &str = "throttle-kit";
    pub const THROTTLECRAB: &str = "throttlecrab";
    pub const LIMITADOR: &str = "limitador";
    pub const LEAKY_BUCKET: &str = "leaky-bucket (no keys)";
    pub const RATELIMIT: &str = "ratelimit (no keys)";
    pub const TOWER: &str = "tower RateLimit (no keys)";
    pub const TOWER_GOVERNOR: &str = "tower_governor";
    pub const TOWER_GOVERNOR_HEADERS: &str = "tower_governor use_headers";
    pub const AXUM_GOVERNOR: &str = "axum-governor";
    pub const BARE: &str = "without a layer";
    pub const IDLE_LAYER: &str = "a layer that does nothing";
    pub const CLOCK: &str = "floor: a clock reading";
    pub const HASH: &str = "floor: a keyed hash";
    pub const SWAP: &str = "floor: a compare-and-swap";
    pub const TABLE: &str = "floor: a table";
    pub const STILL: &str = "floor: the machine itself";
}

/// The same allowance for all peers: `burst` at once, and `rate` in each `period`.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    pub rate: u32,
    pub period: Duration,
    pub burst: u32,
}

const DAY: Duration = Duration::from_secs(86_400);

impl Allowance {
    /// More than any thread can ask for: all are admitted.
    pub const OPEN: Self =
        Self { rate: 1_000_000_000, period: Duration::from_secs(1), burst: 1_000_000_000 };
    /// Two, and not another on the day of the benchmark: all but the first are refused. With a burst
    /// of one, throttlecrab would admit all.
    pub const SPENT: Self = Self { rate: 1, period: DAY, burst: 2 };
    /// Enough for every key of many, each of which comes a few times; nothing is full again while
    /// the benchmark runs, so nothing may be forgotten.
    pub const DAILY: Self = Self { rate: 1_000, period: DAY, burst: 1_000 };
    /// Full again a moment after its use.
    pub const BRIEF: Self = Self { rate: 1_000, period: Duration::from_secs(1), burst: 1_000 };

    /// The time in which one comes in.
    pub fn interval(self) -> Duration {
        self.period / self.rate
    }
}
