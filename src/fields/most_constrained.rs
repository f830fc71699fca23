//! Dialects that have room for one limit: the one that is nearest to refusing.

use std::cmp::Reverse;
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::dialect::Dialects;
use super::field_set::RATELIMIT;
use super::list::{List, MAX_INTEGER};
use super::number;
use super::policy::{Label, Numbers};
use super::retry_after::epoch_up;
use crate::algebra::Verdict;
use crate::clock::Timestamp;

/// How one limit stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nearest {
    limit: u64,
    remaining: u64,
    reset: Duration,
    /// How many more requests like this one there is room for; nothing if it has refused.
    room: Option<u64>,
    now: Timestamp,
}

impl Nearest {
    pub(super) fn of(
        label: &Label,
        numbers: Numbers,
        verdict: Verdict,
        cost: u64,
        now: Timestamp,
    ) -> Self {
        let room = numbers.remaining.checked_div(cost).unwrap_or(numbers.remaining);
        Self {
            limit: label.quota.min(MAX_INTEGER),
            remaining: numbers.remaining.min(MAX_INTEGER),
            reset: numbers.reset,
            room: Some(room).filter(|_| verdict != Verdict::Refused),
            now,
        }
    }

    /// The nearer of the two; this one if none is.
    pub(super) fn or(self, other: Self) -> Self {
        if other.nearness() > self.nearness() { other } else { self }
    }

    /// Who has refused is nearer than all others, and then who waits longest; else who has less room.
    fn nearness(&self) -> (bool, Reverse<u64>, Duration) {
        (self.room.is_none(), Reverse(self.room.unwrap_or(0)), self.reset)
    }

    /// Tells it in these dialects.
    pub(super) fn tell(&self, dialects: Dialects, headers: &mut HeaderMap) {
        let seconds = || number::value(self.seconds());
        // Before any of ours is there.
        let refused = headers.contains_key(RETRY_AFTER);
        if dialects.draft_7
            && self.replaces(headers.get(&RATELIMIT), draft_7_remaining, refused)
            && let Some(value) = self.draft_7()
        {
            let _ = headers.try_insert(&RATELIMIT, value);
        }
        if dialects.draft_6 && self.replaces(headers.get(&DRAFT_6[1]), digits, refused) {
            self.put(headers, &DRAFT_6, seconds());
        }
        if dialects.x_ratelimit && self.replaces(headers.get(&X_RATELIMIT[1]), digits, refused) {
            let epoch = epoch_up(self.now, self.reset).min(MAX_INTEGER);
            self.put(headers, &X_RATELIMIT, number::value(epoch));
        }
    }

    /// Whether it takes the place of what an inner layer has told: not of a refusal, nor of less that
    /// remains, nor of what cannot be understood.
    fn replaces(
        &self,
        told: Option<&HeaderValue>,
        remaining: impl Fn(&[u8]) -> Option<u64>,
        refused: bool,
    ) -> bool {
        let Some(told) = told else { return true };
        !refused && remaining(told.as_bytes()).is_some_and(|told| told > self.remaining)
    }

    fn seconds(&self) -> u64 {
        super::retry_after::seconds_up(self.reset).min(MAX_INTEGER)
    }

    /// `limit=10, remaining=5, reset=30`.
    fn draft_7(&self) -> Option<HeaderValue> {
        let mut text = List::default();
        text.bytes(b"limit=").number(self.limit);
        text.next().bytes(b"remaining=").number(self.remaining);
        text.next().bytes(b"reset=").number(self.seconds());
        HeaderValue::from_maybe_shared(Bytes::from(text.into_bytes())).ok()
    }

    /// Only a map with no room for any more says that it cannot take one.
    fn put(&self, headers: &mut HeaderMap, names: &'static [HeaderName; 3], reset: HeaderValue) {
        let values = [number::value(self.limit), number::value(self.remaining), reset];
        for (name, value) in names.iter().zip(values) {
            let _ = headers.try_insert(name, value);
        }
    }
}

static DRAFT_6: [HeaderName; 3] = [
    HeaderName::from_static("ratelimit-limit"),
    HeaderName::from_static("ratelimit-remaining"),
    HeaderName::from_static("ratelimit-reset"),
];

static X_RATELIMIT: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];

fn digits(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

fn draft_7_remaining(text: &[u8]) -> Option<u64> {
    let mut members = text.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    digits(members.find_map(|member| member.strip_prefix(b"remaining="))?)
}
