//! Parts of what errors say.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// Writes a cause and what caused it, each behind a colon. Many error types print their source and
/// return it as well; that copy is left out.
pub(super) fn write_chain(
    cause: &(dyn Error + 'static),
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
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
pub(super) fn late(backend: &str, within: Duration, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{backend} backend could not decide within ")?;
    match (within.as_millis(), within.as_micros().checked_rem(1_000)) {
        (millis, Some(0)) => write!(f, "{millis} ms"),
        _ => write!(f, "{within:?}"),
    }
}
