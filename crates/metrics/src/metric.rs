//! The names of the metrics and of their labels, with units and descriptions. `docs/observing.md`
//! has the same table, and a test compares the two.
//!
//! The names follow the semantic conventions of OpenTelemetry: a namespace and dots, no unit in the
//! name, durations in seconds. Where these conventions have a metric for the same thing, it has the
//! same name in our namespace: those of ASP.NET Core for rate limiting, and that of database
//! clients for the duration of an operation.

use metrics::Unit;

/// A metric of this crate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    pub(crate) description: &'static str,
}

pub(crate) const DECISIONS: Metric = Metric {
    name: "tollgate.decisions",
    unit: Unit::Count,
    description: "Decisions about requests: one for each limit of a request",
};

pub(crate) const TOKENS: Metric = Metric {
    name: "tollgate.tokens",
    unit: Unit::Count,
    description: "Tokens that requests were granted, before any settlement",
};

pub(crate) const BLOCKS: Metric = Metric {
    name: "tollgate.blocks",
    unit: Unit::Count,
    description: "Keys that were blocked because they were refused too often",
};

pub(crate) const QUEUED_REQUESTS: Metric = Metric {
    name: "tollgate.queued_requests",
    unit: Unit::Count,
    description: "Requests that wait for their turn",
};

pub(crate) const TIME_IN_QUEUE: Metric = Metric {
    name: "tollgate.request.time_in_queue",
    unit: Unit::Seconds,
    description: "How long a request has waited for its turn",
};

pub(crate) const LATENESS: Metric = Metric {
    name: "tollgate.request.lateness",
    unit: Unit::Seconds,
    description: "How much later than promised the work of a request that waited runs",
};

pub(crate) const STORE_DURATION: Metric = Metric {
    name: "tollgate.store.operation.duration",
    unit: Unit::Seconds,
    description: "How long the store took to decide, where its answer had to be awaited",
};

pub(crate) const STORE_FAILURES: Metric = Metric {
    name: "tollgate.store.failures",
    unit: Unit::Count,
    description: "Calls that the store did not decide or carry out",
};

pub(crate) const STORE_RECOVERIES: Metric = Metric {
    name: "tollgate.store.recoveries",
    unit: Unit::Count,
    description: "How often the store has recovered from failures",
};

pub(crate) const STORE_KEYS: Metric = Metric {
    name: "tollgate.store.keys",
    unit: Unit::Count,
    description: "Buckets that the memory store holds",
};

pub(crate) const EVICTED_KEYS: Metric = Metric {
    name: "tollgate.store.evicted_keys",
    unit: Unit::Count,
    description: "Buckets that the memory store has evicted because it was full",
};

pub(crate) const FORGOTTEN_KEYS: Metric = Metric {
    name: "tollgate.store.forgotten_keys",
    unit: Unit::Count,
    description: "Buckets that the memory store has dropped because they were full again",
};

pub(crate) const COUNTERS: [Metric; 7] =
    [DECISIONS, TOKENS, BLOCKS, STORE_FAILURES, STORE_RECOVERIES, EVICTED_KEYS, FORGOTTEN_KEYS];

pub(crate) const GAUGES: [Metric; 2] = [QUEUED_REQUESTS, STORE_KEYS];

pub(crate) const HISTOGRAMS: [Metric; 3] = [TIME_IN_QUEUE, LATENESS, STORE_DURATION];

/// The name of the limit.
pub(crate) const LIMIT: &str = "tollgate.limit";
/// [`Outcome::name`](crate::limiter::Outcome::name).
pub(crate) const OUTCOME: &str = "tollgate.outcome";
/// [`Decision::source`](crate::limiter::Decision::source).
pub(crate) const SOURCE: &str = "tollgate.source";
/// [`QueueChange::step`](crate::limiter::QueueChange::step).
pub(crate) const STEP: &str = "tollgate.step";
/// The kind of an error: the attribute that OpenTelemetry has for it.
pub(crate) const ERROR_TYPE: &str = "error.type";
