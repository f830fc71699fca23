//! What is told of a limit, one member of a field for each.

use ::http::HeaderValue;
use bytes::Bytes;

use super::response::seconds_up;
use crate::algebra::{State, Verdict};
use crate::clock::Timestamp;
use crate::limiter::{Limit, Stand};
use crate::quota::Kind;

/// The largest integer of structured fields (RFC 9651, section 3.3.1).
const MAX_INTEGER: u64 = 999_999_999_999_999;

const MICROS: u128 = 1_000_000;

/// What is told of a limit whoever asks.
#[derive(Clone, Debug)]
pub(crate) struct Label {
    /// As a structured field has it.
    name: Box<[u8]>,
    /// The tokens that a client may count on.
    quota: u64,
    /// The seconds in which they come in.
    window: u128,
}

impl Label {
    pub(crate) fn of(limit: &Limit) -> Self {
        let (quota, window) = quota_and_window(limit);
        Self { name: quoted(limit.name()), quota, window }
    }

    /// The member of `RateLimit-Policy`: `"name";q=20;w=120`.
    pub(crate) fn policy(&self, list: &mut List) {
        list.push(&self.name, (b";q=", self.quota), (b";w=", saturated(self.window)));
    }

    /// The member of `RateLimit` for the limit that it is of: `"name";r=19;t=114`. Where that has
    /// refused, whoever waits for `t` seconds is not refused again.
    pub(crate) fn member(&self, limit: &Limit, stand: &Stand, now: Timestamp, list: &mut List) {
        let remaining = limit.bucket().tokens(stand.state.value).whole();
        let reset = match stand.verdict {
            Verdict::Refused => seconds_up(stand.wait),
            _ => self.reset(limit, stand.state, now, remaining),
        };
        list.push(&self.name, (b";r=", remaining), (b";t=", reset));
    }

    /// The parameter `t`: seconds until there is more.
    fn reset(&self, limit: &Limit, state: State, now: Timestamp, remaining: u64) -> u64 {
        let bucket = limit.bucket();
        if bucket.kind() == Kind::FixedWindow {
            let end = state.ts.plus_micros(bucket.step());
            return seconds_up(end.since(now));
        }
        if remaining > 0 {
            return part(remaining, self.window, self.quota);
        }
        let missing = i128::from(bucket.token()).saturating_sub(i128::from(state.value));
        let micros = missing.unsigned_abs().div_ceil(gain(limit));
        saturated(micros.div_ceil(MICROS).max(1))
    }
}

/// So much of a window as these tokens are of all, rounded up.
fn part(tokens: u64, window: u128, all: u64) -> u64 {
    let all = all.max(1);
    // Numbers that are told to people fit; long ones are divided at length.
    match u64::try_from(window).ok().and_then(|window| window.checked_mul(tokens)) {
        Some(product) => product.div_ceil(all),
        None => saturated(u128::from(tokens).saturating_mul(window).div_ceil(u128::from(all))),
    }
}

fn saturated(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// The tokens that a client may count on, and the seconds in which they come in.
fn quota_and_window(limit: &Limit) -> (u64, u128) {
    let (quota, bucket) = (limit.quota(), limit.bucket());
    // A capacity of zero has no window; what comes in each period is the nearest truth.
    let tokens = match quota.tokens_at_most() {
        0 => quota.rate(),
        tokens => tokens,
    };
    let units = u128::from(tokens).saturating_mul(u128::from(bucket.token()));
    let steps = units.div_ceil(gain(limit));
    let micros = steps.saturating_mul(u128::from(bucket.step()));
    (tokens, micros.div_ceil(MICROS))
}

/// The units that all shards gain at each step.
fn gain(limit: &Limit) -> u128 {
    let shards = u128::from(limit.quota().shard_count());
    u128::from(limit.bucket().gain()).saturating_mul(shards).max(1)
}

/// A structured-field string (RFC 9651, section 3.3.3).
fn quoted(name: &str) -> Box<[u8]> {
    let mut text = Vec::with_capacity(name.len().saturating_add(2));
    text.push(b'"');
    for byte in name.bytes() {
        if matches!(byte, b'"' | b'\\') {
            text.push(b'\\');
        }
        text.push(byte);
    }
    text.push(b'"');
    text.into_boxed_slice()
}

/// Members of one field, in a buffer that has no more room than they take: so it becomes a value
/// without another allocation.
#[derive(Debug, Default)]
pub(crate) struct List(Vec<u8>);

impl List {
    fn push(&mut self, name: &[u8], first: (&[u8; 3], u64), second: (&[u8; 3], u64)) {
        let (mut one, mut other) = (itoa::Buffer::new(), itoa::Buffer::new());
        let one = one.format(first.1.min(MAX_INTEGER)).as_bytes();
        let other = other.format(second.1.min(MAX_INTEGER)).as_bytes();
        let comma: &[u8] = if self.0.is_empty() { b"" } else { b", " };
        let numbers = one.len().saturating_add(other.len()).saturating_add(6);
        let length = comma.len().saturating_add(name.len()).saturating_add(numbers);
        match self.0.is_empty() {
            true => self.0 = Vec::with_capacity(length),
            false => self.0.reserve_exact(length),
        }
        self.0.extend_from_slice(comma);
        self.0.extend_from_slice(name);
        self.0.extend_from_slice(first.0);
        self.0.extend_from_slice(one);
        self.0.extend_from_slice(second.0);
        self.0.extend_from_slice(other);
    }

    /// The field's value, if there is any member.
    pub(crate) fn value(self) -> Option<HeaderValue> {
        if self.0.is_empty() {
            return None;
        }
        HeaderValue::from_maybe_shared(Bytes::from(self.0)).ok()
    }
}
