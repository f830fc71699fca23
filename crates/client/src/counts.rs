//! Counts: `76`, `3.0`, `100, 100;w=60`.

use std::time::Duration;

use super::times;

/// A count, with the window that stands beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) number: u64,
    pub(super) window: Option<Duration>,
}

/// The counts of a list.
pub(super) fn list(text: &str) -> Option<Vec<Count>> {
    text.split(',').map(count).collect()
}

/// The smallest count of a list; a window may stand beside any of them.
pub(super) fn smallest(text: &str) -> Option<Count> {
    let counts = list(text)?;
    let number = counts.iter().map(|count| count.number).min()?;
    let window = counts.iter().filter_map(|count| count.window).max();
    Some(Count { number, window })
}

fn count(text: &str) -> Option<Count> {
    let mut parts = text.split(';').map(|part| part.trim_matches([' ', '\t']));
    let number = floor(parts.next()?)?;
    let window = parts.find_map(|part| times::seconds(part.strip_prefix("w=")?));
    Some(Count { number, window: window.filter(|window| !window.is_zero()) })
}

/// A decimal number, rounded down. Below zero it is zero, and above all others the largest.
fn floor(text: &str) -> Option<u64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !are_digits(whole) || !are_digits(fraction) {
        return None;
    }
    let is_negative = digits.len() < text.len();
    Some(if is_negative { 0 } else { whole.parse().unwrap_or(u64::MAX) })
}
