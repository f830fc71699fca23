//! What the errors of backends say.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::error::{BackendError, Problem};

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Problem::Unavailable { backend, .. } => write!(f, "{backend} backend could not decide"),
            Problem::Timeout { backend, within } => late(backend, *within, f),
            Problem::Locked { backend, within } => {
                late(backend, *within, f)?;
                f.write_str(
                    ", as another transaction held a lock on its buckets (keep transactions that \
                     decide or lock the table short)",
                )
            }
            Problem::InTransaction { backend, cause } => {
                let late = if cause.is_none() { " in time" } else { "" };
                write!(
                    f,
                    "{backend} backend could not decide{late} inside the transaction of the caller \
                     (roll it back)"
                )
            }
            Problem::Undecidable { backend, .. } => {
                write!(f, "{backend} backend can never decide this")
            }
            Problem::Full { backend, .. } => write!(f, "{backend} backend is full"),
            Problem::Overloaded { backend, within } => {
                late(backend, *within, f)?;
                f.write_str(
                    ", as this process was busy or had too many calls to send (let fewer requests \
                     run at once, or set a longer deadline)",
                )
            }
            Problem::Contended { backend, tries } => write!(
                f,
                "{backend} backend could not decide in {tries} tries, as other calls changed the \
                 bucket each time (let fewer requests run at once, divide the limit into shards, or \
                 allow more tries)"
            ),
            Problem::CrossSlot { limits } => write!(
                f,
                "buckets of `{limits}` are in several slots of the cluster, and cannot be charged in one step \
                 (connect with `HashTag::FirstPart` and begin their keys with the same part, or with \
                 `HashTag::Fixed`)"
            ),
            Problem::Misconfigured { backend, .. } => {
                write!(f, "{backend} backend is misconfigured")
            }
            Problem::CircuitOpen { .. } => f.write_str("the circuit breaker is open"),
            Problem::Incomplete => {
                f.write_str("the backend has a bug: its answer lacks a charge (please report this)")
            }
            Problem::Internal { backend, what } => {
                write!(f, "{backend} backend has a bug: {what} (please report this)")
            }
        }?;
        self.cause().map_or(Ok(()), |cause| write_chain(cause, f))
    }
}

/// Writes a cause and what caused it, each behind a colon. Many error types print their source and
/// return it as well; that copy is left out.
fn write_chain(cause: &(dyn Error + 'static), f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut written = String::new();
    let mut next = Some(cause);
    while let Some(cause) = next {
        let text = cause.to_string();
        if !written.contains(&text) {
            write!(f, ": {text}")?;
            written = text;
        }
        next = cause.source();
    }
    Ok(())
}

/// Writes that a store was late.
fn late(backend: &str, within: Duration, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{backend} backend could not decide within ")?;
    match (within.as_millis(), within.as_micros().checked_rem(1_000)) {
        (millis, Some(0)) => write!(f, "{millis} ms"),
        _ => write!(f, "{within:?}"),
    }
}
