//! Observers: numbers for metrics, and what traces and logs say of decisions.
//!
//! [`RateLimiter::observe`](crate::RateLimiter::observe) adds one to a limiter, and `.observe(..)`
//! twice adds both. The guide on observing has the table of all metrics, a Grafana dashboard, and
//! what each observer costs. [`Observer`](crate::Observer) is the trait for one of your own.
//!
//! * `Metrics` (feature `metrics`) counts by the facade crate `metrics`, which exporters for
//!   Prometheus, OpenTelemetry and others read.
//! * `Trace` (feature `tracing`) records the decision in the span of the request, and logs what the
//!   limiter itself does not.

#[cfg(feature = "metrics")]
mod limit_metrics;
#[cfg(feature = "metrics")]
mod metric;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "tracing")]
mod rare_lines;
#[cfg(feature = "metrics")]
mod recorder;
#[cfg(feature = "tracing")]
mod trace;

#[cfg(feature = "metrics")]
pub use self::metrics::Metrics;
#[cfg(feature = "tracing")]
pub use self::trace::Trace;
