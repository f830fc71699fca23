//! `RateLimit-Policy` and `RateLimit`.

use ::http::{HeaderMap, HeaderName, HeaderValue};

use super::response::seconds_up;
use crate::algebra::{State, Verdict};
use crate::clock::Timestamp;
use crate::limiter::{Limit, Stand};
use crate::quota::Kind;

/// Which header fields tell clients about their limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fields {
    /// `RateLimit-Policy` and `RateLimit` of the IETF draft, version 11.
    ///
    /// A limit of capacity C is told as `q=C` tokens in the `w` seconds in which that many come in;
    /// for a fixed window that saves nothing up, these are its rate and period. `r` are the tokens
    /// that remain. `t` is, for a token bucket, the time in which as many would come in, or the
    /// next one if none remains; for a fixed window, the time until its end; for a refusal, the
    /// same as `Retry-After`.
    #[default]
    Draft11,
    /// None. Refusals still have `Retry-After`.
    None,
}

/// The largest integer of structured fields (RFC 9651, section 3.3.1).
const MAX_INTEGER: u128 = 999_999_999_999_999;

const MICROS: u128 = 1_000_000;

const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// The members that one limit puts into the fields of a response.
#[derive(Debug)]
pub(crate) struct Told {
    policy: Option<HeaderValue>,
    member: Option<HeaderValue>,
}

impl Told {
    pub(crate) const fn new(policy: Option<HeaderValue>, member: Option<HeaderValue>) -> Self {
        Self { policy, member }
    }

    /// Puts them before those that an inner layer has already told.
    pub(crate) fn tell(self, headers: &mut HeaderMap) {
        for (name, member) in [(RATELIMIT_POLICY, self.policy), (RATELIMIT, self.member)] {
            let Some(member) = member else { continue };
            let mut members = Vec::new();
            for line in headers.get_all(&name) {
                if !line.as_bytes().trim_ascii().is_empty() {
                    members.extend_from_slice(b", ");
                    members.extend_from_slice(line.as_bytes());
                }
            }
            let members = if members.is_empty() {
                member
            } else {
                let list = [member.as_bytes(), &members].concat();
                // All of them were header values, so their list is one.
                HeaderValue::from_maybe_shared(bytes::Bytes::from(list)).unwrap_or(member)
            };
            headers.insert(name, members);
        }
    }
}

/// The member of `RateLimit-Policy` for a limit: `"name";q=20;w=120`.
pub(crate) fn policy(limit: &Limit) -> Option<HeaderValue> {
    let (quota, window) = quota_and_window(limit);
    let mut text = quoted(limit.name());
    parameter(&mut text, b";q=", quota);
    parameter(&mut text, b";w=", window);
    HeaderValue::from_maybe_shared(bytes::Bytes::from(text)).ok()
}

/// The member of `RateLimit` for a limit: `"name";r=19;t=114`. Where it has refused, whoever waits for
/// `t` seconds is not refused again.
pub(crate) fn member(limit: &Limit, stand: &Stand, now: Timestamp) -> Option<HeaderValue> {
    let remaining = u128::from(limit.bucket().tokens(stand.state.value).whole());
    match stand.verdict {
        Verdict::Refused => member_of(limit, remaining, u128::from(seconds_up(stand.wait))),
        _ => member_of(limit, remaining, reset(limit, stand.state, now, remaining)),
    }
}

fn member_of(limit: &Limit, remaining: u128, reset: u128) -> Option<HeaderValue> {
    let mut text = quoted(limit.name());
    parameter(&mut text, b";r=", remaining);
    parameter(&mut text, b";t=", reset);
    HeaderValue::from_maybe_shared(bytes::Bytes::from(text)).ok()
}

/// The tokens that a client may count on, and the seconds in which they come in.
fn quota_and_window(limit: &Limit) -> (u128, u128) {
    let (quota, bucket) = (limit.quota(), limit.bucket());
    // A capacity of zero has no window; what comes in each period is the nearest truth.
    let tokens = match quota.tokens_at_most() {
        0 => quota.rate(),
        tokens => tokens,
    };
    let units = u128::from(tokens).saturating_mul(u128::from(bucket.token()));
    let steps = units.div_ceil(gain(limit));
    let micros = steps.saturating_mul(u128::from(bucket.step()));
    (u128::from(tokens), micros.div_ceil(MICROS))
}

/// The units that all shards gain at each step.
fn gain(limit: &Limit) -> u128 {
    let shards = u128::from(limit.quota().shard_count());
    u128::from(limit.bucket().gain()).saturating_mul(shards).max(1)
}

/// The parameter `t`: seconds until there is more.
fn reset(limit: &Limit, state: State, now: Timestamp, remaining: u128) -> u128 {
    let bucket = limit.bucket();
    if bucket.kind() == Kind::FixedWindow {
        let end = state.ts.plus_micros(bucket.step());
        return u128::from(seconds_up(end.since(now)));
    }
    let (quota, window) = quota_and_window(limit);
    if remaining > 0 {
        return remaining.saturating_mul(window).div_ceil(quota.max(1));
    }
    let missing = i128::from(bucket.token()).saturating_sub(i128::from(state.value));
    let micros = missing.unsigned_abs().div_ceil(gain(limit));
    micros.div_ceil(MICROS).max(1)
}

/// A structured-field string (RFC 9651, section 3.3.3).
fn quoted(name: &str) -> Vec<u8> {
    // Room for the numbers too, so that nothing has to grow.
    let mut text = Vec::with_capacity(name.len().saturating_add(48));
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

fn parameter(text: &mut Vec<u8>, name: &[u8], number: u128) {
    text.extend_from_slice(name);
    let number = u64::try_from(number.min(MAX_INTEGER)).unwrap_or(u64::MAX);
    text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
