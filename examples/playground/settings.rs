//! The numbers that a visitor chooses.

use std::time::Duration;

use serde::Deserialize;
use tollgate::{Limit, Quota};

/// What the sliders of the page say.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Settings {
    rate: u64,
    period_ms: u64,
    capacity: u64,
    /// How deep waiting requests may go into debt, in tokens.
    max_reserved: u64,
    /// The longest wait in the queue; zero is no queue.
    queue_ms: u64,
    shards: u32,
    pub(crate) cost: u64,
}

/// The two kinds, which the page shows beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneKind {
    Bucket,
    Window,
}

impl LaneKind {
    pub(crate) const ALL: [Self; 2] = [Self::Bucket, Self::Window];

    /// Its name in paths, and that of its limit.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Bucket => "token-bucket",
            Self::Window => "fixed-window",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl Settings {
    /// What a visitor begins with.
    pub(crate) const FIRST: Self = Self {
        rate: 5,
        period_ms: 5_000,
        capacity: 10,
        max_reserved: 10,
        queue_ms: 0,
        shards: 1,
        cost: 1,
    };

    /// The limit of this kind.
    ///
    /// # Errors
    ///
    /// What is wrong with the numbers, in the words of the library.
    pub(crate) fn limit(&self, kind: LaneKind) -> Result<Limit, String> {
        let period = Duration::from_millis(self.period_ms);
        let quota = match kind {
            LaneKind::Bucket => Quota::try_token_bucket(self.rate, period),
            LaneKind::Window => Quota::try_fixed_window(self.rate, period),
        };
        let mut quota = quota.map_err(|error| error.to_string())?.capacity(self.capacity);
        if self.queue().is_some() {
            quota = quota.max_reserved(self.max_reserved);
        }
        let quota = quota.shards(self.shards).validated().map_err(|error| error.to_string())?;
        Limit::try_new(kind.name(), quota).map_err(|error| error.to_string())
    }

    pub(crate) const fn queue(&self) -> Option<Duration> {
        match self.queue_ms {
            0 => None,
            millis => Some(Duration::from_millis(millis)),
        }
    }
}
