//! The rules of a layer and its settings, as data. `plan` prepares them for requests.

use std::time::Duration;

use super::call_response::ResponseStyle;
use super::queue::Queue;
use super::rule::Rule;
use crate::fields::{ForeignFields, PartitionKey};
use crate::limiter::OnFailure;

#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) first: Rule,
    pub(super) rest: Vec<Rule>,
    pub(super) settings: LayerSettings,
}

/// The settings that concern the layer as a whole.
#[derive(Clone, Debug, Default)]
pub(super) struct LayerSettings {
    pub(super) style: ResponseStyle,
    pub(super) partition_key: Option<PartitionKey>,
    pub(super) on_failure: OnFailure,
    pub(super) queue: Option<Queue>,
    pub(super) jitter: Duration,
    pub(super) settles: bool,
    /// Whether a request gets its tokens back if it is dropped before its response.
    pub(super) refunds_dropped: bool,
    /// Whether requests get an `Admission` for their handlers.
    pub(super) exposes: bool,
    pub(super) read_on: ReadOn,
    pub(super) foreign_fields: ForeignFields,
}

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

impl Rules {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Rule> {
        std::iter::once(&self.first).chain(&self.rest)
    }
}
