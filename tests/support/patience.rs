//! The stores whose traffic is watched, with a deadline that no server exceeds.

use tollgate::RateLimiter;
#[cfg(feature = "postgres")]
use tollgate::backend::PostgresBuilder;
#[cfg(feature = "redis")]
use tollgate::backend::RedisBuilder;

use super::traffic::{Patient, RECOVERY};

#[cfg(feature = "redis")]
impl Patient for RedisBuilder {
    fn with_patience(self) -> RateLimiter {
        RateLimiter::new(self.deadline(RECOVERY).connect_lazily().unwrap())
    }
}

#[cfg(feature = "postgres")]
impl Patient for PostgresBuilder {
    fn with_patience(self) -> RateLimiter {
        RateLimiter::new(self.deadline(RECOVERY).connect_lazily().unwrap())
    }
}
