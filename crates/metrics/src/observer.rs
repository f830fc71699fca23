//! The observer that counts by the facade crate `metrics`.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Histogram, SharedString};

use super::limit_metrics::{LimitMetrics, seconds};
use super::metric::{BLOCKS, ERROR_TYPE, LIMIT, STORE_DURATION, STORE_FAILURES, STORE_RECOVERIES};
#[cfg(feature = "memory")]
use super::metric::{EVICTED_KEYS, FORGOTTEN_KEYS, STORE_KEYS};
use super::recorder::{Registrar, registered};
#[cfg(feature = "memory")]
use tollgate::RateLimiter;
use tollgate::kit::NameTable;
use tollgate::limiter::{Decision, Limit, Observer, QueueChange, StoreHealth};

/// Counts decisions, queues and failures of the store, by the facade crate [`metrics`].
///
/// The program installs a recorder of its choice, such as that of `metrics-exporter-prometheus`,
/// *before* the limiter decides anything: a metric that is used before that is lost for good. The
/// guide on observing has the table of all metrics and their labels.
///
/// The labels are names of limits, outcomes and kinds of errors, and never keys. Names of limits
/// that are made at run time are bounded by [`max_limits`](Self::max_limits).
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use metrics_exporter_prometheus::PrometheusBuilder;
/// use tollgate_metrics::Metrics;
/// use tollgate::{HOUR, Limit, Quota, RateLimiter};
///
/// const LOGIN: Limit = Limit::new("login", Quota::token_bucket(1, HOUR));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let prometheus = PrometheusBuilder::new().with_recommended_naming(true).build_recorder();
/// let page = prometheus.handle();
/// metrics::set_global_recorder(prometheus).unwrap();
///
/// let metrics = Arc::new(Metrics::new());
/// let limiter = RateLimiter::in_memory().observe(Arc::clone(&metrics));
/// for _ in 0..3 {
///     drop(limiter.limit(&LOGIN).key("alice").await);
/// }
///
/// metrics.record_store(&limiter); // the facade cannot ask: call it before each scrape
/// let page = page.render();
/// let refused = "tollgate_decisions_total{tollgate_limit=\"login\",\
///                tollgate_outcome=\"refused\",tollgate_source=\"handler\"} 2";
/// assert!(page.contains(refused), "{page}");
/// assert!(page.contains("tollgate_store_keys 1"), "{page}");
/// # }
/// ```
#[derive(Default)]
pub struct Metrics {
    registrar: Registrar,
    max_limits: Option<usize>,
    limits: NameTable<LimitMetrics>,
    /// All limits beyond the bound.
    others: OnceLock<LimitMetrics>,
    answers: OnceLock<Histogram>,
}

impl Metrics {
    /// The bound on names of limits unless [`max_limits`](Self::max_limits) sets another.
    pub const MAX_LIMITS: usize = 1_000;

    /// The name for all limits beyond the [bound](Self::max_limits).
    pub const OTHER_LIMITS: &str = "_other";

    /// Counts by the recorder that the program has installed.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts by this recorder, and not by that of the program.
    #[must_use]
    pub fn recorder(mut self, recorder: impl metrics::Recorder + Send + Sync + 'static) -> Self {
        self.registrar.set_recorder(Box::new(recorder));
        self
    }

    /// Adds a label to all metrics: a name for the limiter, if the process has several with stores
    /// of their own.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RateLimiter;
    /// use tollgate_metrics::Metrics;
    ///
    /// let inbound = RateLimiter::in_memory().observe(Metrics::new().label("limiter", "inbound"));
    /// let outbound = RateLimiter::in_memory().observe(Metrics::new().label("limiter", "outbound"));
    /// # drop((inbound, outbound));
    /// ```
    #[must_use]
    pub fn label(mut self, key: impl Into<SharedString>, value: impl Into<SharedString>) -> Self {
        self.registrar.add_label(key.into(), value.into());
        self
    }

    /// Sets how many names of limits get metrics of their own; [`MAX_LIMITS`](Self::MAX_LIMITS)
    /// unless set. All others count as [`OTHER_LIMITS`](Self::OTHER_LIMITS).
    ///
    /// A program whose limits are constants never gets there. One that makes up a name for each
    /// customer would fill the memory of the exporter.
    #[must_use]
    pub const fn max_limits(mut self, max_limits: usize) -> Self {
        self.max_limits = Some(max_limits);
        self
    }

    /// Records what the memory store of a limiter holds: its buckets, and how many it has evicted
    /// and forgotten. Call it before each scrape, as the facade cannot ask for a number.
    ///
    /// It locks each shard of the store for an instant, one at a time. With another store it records
    /// nothing. Several stores overwrite each other's numbers, unless their metrics differ by a
    /// [label](Self::label).
    #[cfg(feature = "memory")]
    pub fn record_store(&self, limiter: &RateLimiter) {
        let Some(memory) = limiter.memory() else { return };
        // A number of buckets is far below 2^53.
        let keys = u32::try_from(memory.len()).unwrap_or(u32::MAX);
        self.registrar.gauge(STORE_KEYS, &[]).set(f64::from(keys));
        self.registrar.counter(EVICTED_KEYS, &[]).absolute(memory.evicted());
        self.registrar.counter(FORGOTTEN_KEYS, &[]).absolute(memory.forgotten());
    }

    /// The metrics of a limit. No lock is held while the recorder is called, which is code of others.
    fn of(&self, limit: &Limit) -> &LimitMetrics {
        let (name, most) = (limit.name(), self.max_limits.unwrap_or(Self::MAX_LIMITS));
        let known = self.limits.get_or_add(name, most, || LimitMetrics::new(name));
        known.unwrap_or_else(|| self.others.get_or_init(|| LimitMetrics::new(Self::OTHER_LIMITS)))
    }
}

impl Observer for Metrics {
    fn on_decision(&self, decision: &Decision<'_>) {
        self.of(decision.limit()).count(decision, &self.registrar);
    }

    fn on_queue(&self, change: &QueueChange<'_>) {
        self.of(change.limit()).change_queue(change, &self.registrar);
    }

    fn on_block(&self, limit: &Limit, _: Duration) {
        self.registrar.counter(BLOCKS, &[(LIMIT, self.of(limit).name())]).increment(1);
    }

    fn on_store(&self, health: &StoreHealth<'_>) {
        match *health {
            StoreHealth::Answer { took, error: None, .. } => {
                let register = || self.registrar.histogram(STORE_DURATION, &[]);
                registered(&self.answers, register).record(seconds(took));
            }
            StoreHealth::Answer { took, error: Some(error), .. } => {
                let labels = [(ERROR_TYPE, error.kind())];
                self.registrar.histogram(STORE_DURATION, &labels).record(seconds(took));
            }
            StoreHealth::Failure { limit, error, .. } => {
                let labels = [(LIMIT, self.of(limit).name()), (ERROR_TYPE, error.kind())];
                self.registrar.counter(STORE_FAILURES, &labels).increment(1);
            }
            StoreHealth::Recovery { limit, .. } => {
                let labels = [(LIMIT, self.of(limit).name())];
                self.registrar.counter(STORE_RECOVERIES, &labels).increment(1);
            }
            _ => {}
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("max_limits", &self.max_limits).finish_non_exhaustive()
    }
}
