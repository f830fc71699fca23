//! The fields of dialects with room for one limit, which show the most constrained one.

use std::cmp::Reverse;
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue};

use super::dialect::Dialects;
use super::list::{self, FieldList, MAX_INTEGER};
use super::number;
use super::policy::{FieldNumbers, PolicyText};
use super::retry_after::{ceil_epoch_seconds, ceil_seconds};
use crate::algebra::Verdict;
use crate::clock::Timestamp;
use crate::limiter::{Level, Limit};
use crate::quota::Kind;

/// The limit that has refused with the longest wait; if none has refused, the limit that is closest
/// to refusing.
#[derive(Clone, Copy, Debug)]
pub(super) struct MostConstrained {
    limit: u64,
    remaining: u64,
    reset: Duration,
    /// The time that draft 6 and `X-RateLimit` show.
    whole: Duration,
    /// The number of further requests like this one that fit; `None` if the limit has refused.
    requests_left: Option<u64>,
    now: Timestamp,
}

impl MostConstrained {
    pub(super) fn new(
        policy: &PolicyText,
        limit: &Limit,
        numbers: FieldNumbers,
        level: &Level,
    ) -> Self {
        let remaining = numbers.remaining;
        let is_refused = level.verdict == Verdict::Refused;
        // A window that has all of its tokens still ends.
        let whole = match limit.bucket().kind() {
            _ if is_refused => numbers.reset,
            Kind::TokenBucket => level.full_at(limit).since(level.at),
            Kind::FixedWindow => level.full_at(limit).since(level.at).max(numbers.reset),
        };
        let requests_left = remaining.checked_div(level.cost).unwrap_or(remaining);
        Self {
            limit: policy.quota.min(MAX_INTEGER),
            remaining: numbers.remaining.min(MAX_INTEGER),
            reset: numbers.reset,
            whole,
            requests_left: Some(requests_left).filter(|_| !is_refused),
            now: level.at,
        }
    }

    /// The more constrained of the two; this one if they are equal.
    pub(super) fn max(self, other: Self) -> Self {
        if other.rank() > self.rank() { other } else { self }
    }

    /// Refusals rank highest, then the limits by the fewest requests left. Ties go to the longer
    /// time.
    fn rank(&self) -> (bool, Reverse<u64>, Duration) {
        (self.requests_left.is_none(), Reverse(self.requests_left.unwrap_or(0)), self.reset)
    }

    /// The names of the fields that these dialects have for one limit.
    pub(super) fn names(dialects: Dialects) -> impl Iterator<Item = &'static HeaderName> {
        let own = [(dialects.draft_6, &DRAFT_6), (dialects.x_ratelimit, &X_RATELIMIT)];
        let own = own.into_iter().filter(|(is_sent, _)| *is_sent).flat_map(|(_, names)| names);
        dialects.draft_7.then_some(&RATELIMIT).into_iter().chain(own)
    }

    /// Writes the fields of the dialects in this set that have room for one limit, unless an inner
    /// layer of this crate shows no more tokens, or the inner service has refused the request.
    pub(super) fn write_to(
        &self,
        dialects: Dialects,
        headers: &mut HeaderMap,
        extensions: &mut Extensions,
    ) {
        let inner: OwnFields = extensions.get().copied().unwrap_or_default();
        // A refusal of this layer has it as well, but has none of the fields below yet, so they are
        // written.
        let refused = headers.contains_key(RETRY_AFTER);
        let is_less = |is_sent: bool| is_sent && inner.remaining <= self.remaining;
        let stays = |headers: &HeaderMap, name, is_sent| {
            headers.contains_key(name) && (refused || is_less(is_sent))
        };
        if dialects.draft_7
            && !stays(headers, &RATELIMIT, inner.dialects.draft_7)
            && let Some(value) = self.draft_7()
        {
            let _ = headers.try_insert(&RATELIMIT, value);
        }
        if dialects.draft_6 && !stays(headers, &DRAFT_6[1], inner.dialects.draft_6) {
            self.insert(
                headers,
                &DRAFT_6,
                number::value(ceil_seconds(self.whole).min(MAX_INTEGER)),
            );
        }
        if dialects.x_ratelimit && !stays(headers, &X_RATELIMIT[1], inner.dialects.x_ratelimit) {
            let epoch = ceil_epoch_seconds(self.now, self.whole).min(MAX_INTEGER);
            self.insert(headers, &X_RATELIMIT, number::value(epoch));
        }
        extensions.insert(OwnFields {
            dialects: dialects.and(inner.dialects),
            remaining: inner.remaining.min(self.remaining),
        });
    }

    /// `limit=10, remaining=5, reset=30`.
    fn draft_7(&self) -> Option<HeaderValue> {
        let mut text = FieldList::default();
        text.bytes(b"limit=").number(self.limit);
        text.begin_member().bytes(b"remaining=").number(self.remaining);
        text.begin_member().bytes(b"reset=").number(ceil_seconds(self.reset));
        HeaderValue::from_maybe_shared(Bytes::from(text.into_bytes())).ok()
    }

    /// Writes three fields. An error means that the map is full; the field is then omitted.
    fn insert(&self, headers: &mut HeaderMap, names: &'static [HeaderName; 3], reset: HeaderValue) {
        let values = [number::value(self.limit), number::value(self.remaining), reset];
        for (name, value) in names.iter().zip(values) {
            let _ = headers.try_insert(name, value);
        }
    }
}

/// In the extensions of a response: the fields with room for one limit that are of this crate. An outer
/// layer tells them from those of others, such as the upstream of a gateway.
#[derive(Clone, Copy, Debug)]
struct OwnFields {
    dialects: Dialects,
    remaining: u64,
}

impl Default for OwnFields {
    fn default() -> Self {
        Self { dialects: Dialects::NONE, remaining: u64::MAX }
    }
}

static DRAFT_6: [HeaderName; 3] = [
    HeaderName::from_static("ratelimit-limit"),
    HeaderName::from_static("ratelimit-remaining"),
    HeaderName::from_static("ratelimit-reset"),
];

static RATELIMIT: HeaderName = list::RATELIMIT;
static X_RATELIMIT: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];
