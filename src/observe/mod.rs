//! Observers: what traces and logs say of decisions.
//!
//! [`RateLimiter::observe`](crate::RateLimiter::observe) adds one to a limiter, and `.observe(..)`
//! twice adds both. [`trace()`] records the decision in the span of the request, and logs what the
//! limiter itself does not. The crate `tollgate-metrics` counts, for Prometheus, OpenTelemetry and
//! others. [`Observer`](crate::Observer) is the trait for one of your own.

mod rare_lines;
mod trace;

pub use self::trace::{trace, trace_every};
