//! What is told of a limit: what is always the same, and how it stands.

use std::time::Duration;

use super::list::List;
use super::retry_after::seconds_up;
use crate::algebra::{State, Verdict};
use crate::clock::Timestamp;
use crate::limiter::{Limit, Stand};
use crate::quota::Kind;

const MICROS: u128 = 1_000_000;

/// What is told of a limit whoever asks, laid out once.
#[derive(Clone, Debug)]
pub(crate) struct Label {
    /// A member of `RateLimit` up to its first number: `"name";r=`.
    pub(super) member: Box<[u8]>,
    /// The member of `RateLimit-Policy`: `"name";q=20;w=120`.
    pub(super) policy: Box<[u8]>,
    /// The tokens that a client may count on.
    pub(super) quota: u64,
    /// The seconds in which they come in.
    pub(super) window: u64,
}

/// How a limit stands, in the numbers that are told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    pub(super) remaining: u64,
    /// The time in which what remains would come in; for a refusal, the wait.
    pub(super) reset: Duration,
}

impl Label {
    pub(crate) fn of(limit: &Limit) -> Self {
        let (quota, window) = quota_and_window(limit);
        let name = quoted(limit.name());
        let mut policy = List::default();
        policy.bytes(&name).bytes(b";q=").number(quota).bytes(b";w=").number(window);
        let mut member = name;
        member.extend_from_slice(b";r=");
        Self { member: member.into(), policy: policy.into_bytes().into(), quota, window }
    }

    /// How the limit stands that it is of. Where that has refused, whoever waits for `reset` is not
    /// refused again.
    #[inline]
    pub(super) fn numbers(&self, limit: &Limit, stand: &Stand, now: Timestamp) -> Numbers {
        let remaining = limit.bucket().tokens(stand.state.value).whole();
        let reset = match stand.verdict {
            Verdict::Refused => stand.wait,
            _ => self.reset(limit, stand.state, now, remaining),
        };
        Numbers { remaining, reset }
    }

    /// How long until there is more.
    #[inline]
    fn reset(&self, limit: &Limit, state: State, now: Timestamp, remaining: u64) -> Duration {
        let bucket = limit.bucket();
        if bucket.kind() == Kind::FixedWindow {
            return state.ts.plus_micros(bucket.step()).since(now);
        }
        if remaining > 0 {
            return Duration::from_secs(part(remaining, self.window, self.quota));
        }
        let missing = i128::from(bucket.token()).saturating_sub(i128::from(state.value));
        let micros = missing.unsigned_abs().div_ceil(gain(limit));
        Duration::from_micros(saturated(micros))
    }
}

impl Numbers {
    /// Whole seconds, up and at least one.
    #[inline]
    pub(super) const fn seconds(&self) -> u64 {
        seconds_up(self.reset)
    }
}

/// So much of a window as these tokens are of all, rounded up.
#[inline]
fn part(tokens: u64, window: u64, all: u64) -> u64 {
    let all = all.max(1);
    // Numbers that are told to people fit; long ones are divided at length.
    match window.checked_mul(tokens) {
        Some(product) => product.div_ceil(all),
        None => {
            let product = u128::from(tokens).saturating_mul(u128::from(window));
            saturated(product.div_ceil(u128::from(all)))
        }
    }
}

fn saturated(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// The tokens that a client may count on, and the seconds in which they come in.
fn quota_and_window(limit: &Limit) -> (u64, u64) {
    let (quota, bucket) = (limit.quota(), limit.bucket());
    // A capacity of zero has no window; what comes in each period is the nearest truth.
    let tokens = match quota.tokens_at_most() {
        0 => quota.rate(),
        tokens => tokens,
    };
    let units = u128::from(tokens).saturating_mul(u128::from(bucket.token()));
    let steps = units.div_ceil(gain(limit));
    let micros = steps.saturating_mul(u128::from(bucket.step()));
    (tokens, saturated(micros.div_ceil(MICROS)))
}

/// The units that all shards gain at each step.
fn gain(limit: &Limit) -> u128 {
    let shards = u128::from(limit.quota().shard_count());
    u128::from(limit.bucket().gain()).saturating_mul(shards).max(1)
}

/// A structured-field string (RFC 9651, section 3.3.3).
fn quoted(name: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(name.len().saturating_add(2));
    text.push(b'"');
    for byte in name.bytes() {
        if matches!(byte, b'"' | b'\\') {
            text.push(b'\\');
        }
        text.push(byte);
    }
    text.push(b'"');
    text
}
