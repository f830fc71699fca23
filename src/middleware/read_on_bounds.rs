//! How much is read of requests that were answered early.

use std::time::Duration;

/// How much is read on.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "axum"), allow(dead_code, reason = "only bodies of axum are read on"))]
pub(super) struct ReadOn {
    pub(super) bytes: u64,
    pub(super) time: Duration,
    pub(super) at_once: usize,
}

impl Default for ReadOn {
    /// Most uploads, also over slow connections, and few enough that a flood of them costs little.
    fn default() -> Self {
        Self { bytes: 16 << 20, time: Duration::from_secs(10), at_once: 100 }
    }
}
