//! Metrics of tollgate, by the facade crate [`metrics`].
//!
//! [`Metrics`] is an [observer](tollgate::Observer) of a limiter. Exporters for Prometheus,
//! OpenTelemetry and others read what it counts.
//!
//! The guide on
//! [observing](https://docs.rs/tollgate/latest/tollgate/_guide/observing/index.html) has the table of all
//! metrics, a dashboard for Grafana, and what an observer costs.

#![warn(clippy::unwrap_used, clippy::expect_used)]
#![cfg_attr(not(test), warn(clippy::as_conversions, clippy::indexing_slicing))]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod limit_metrics;
mod metric;
mod observer;
mod recorder;

pub use self::observer::Metrics;
