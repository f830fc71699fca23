//! The rules and the settings of a layer, as data. A `Plan` prepares them for requests.

use std::time::Duration;

use super::call_response::ResponseStyle;
use super::queue::Queue;
use super::rule::Rule;
use crate::fields::PartitionKey;
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
}

impl LayerSettings {
    /// Whether the layer puts a meter or an `Admission` into the extensions of requests.
    pub(super) const fn extends_requests(&self) -> bool {
        self.settles || self.exposes
    }
}

impl Rules {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Rule> {
        std::iter::once(&self.first).chain(&self.rest)
    }
}
