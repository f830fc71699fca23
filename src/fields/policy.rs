//! One limit in the header fields: the text of its policy, formatted once, and the numbers of how
//! it stands.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue};

use super::list::{FieldList, MAX_INTEGER, RATELIMIT, RATELIMIT_POLICY, prepend};
use super::retry_after::ceil_seconds;
use super::{NO_STORE, problem};
use crate::algebra::{State, Verdict};
use crate::clock::Timestamp;
use crate::limiter::{Level, Limit};
use crate::quota::Kind;

const MICROS: u128 = 1_000_000;

/// The part of the fields that depends on the limit alone, formatted once.
#[derive(Clone, Debug)]
pub(crate) struct PolicyText {
    /// The member of `RateLimit-Policy`: `"name";q=20;w=120`, or `"name";q=4;qu="concurrent-requests"`.
    pub(super) text: Bytes,
    /// The member of `RateLimit` up to its first number: `"name";r=`.
    prefix: Box<[u8]>,
    /// The tokens that a client may count on in a window.
    pub(super) quota: u64,
    /// The seconds in which that many tokens refill.
    pub(super) window: u64,
    /// Whether it has no window, as only requests that end bring tokens.
    pub(super) is_in_flight: bool,
}

/// The text of a limit that layers have by itself, kept for as long as the process runs: so a
/// request has it without a count of references, which all processors would have to agree on.
#[derive(Debug)]
pub(crate) struct KeptPolicy {
    text: PolicyText,
    /// The field `RateLimit-Policy` of draft 11.
    value: HeaderValue,
    /// Problem details with status 429.
    pub(super) refusal: Bytes,
    /// The fields of that response. `Retry-After` and `RateLimit` are blank.
    blank: HeaderMap,
}

/// How many policies are kept, which takes at most half a megabyte. Further ones are formatted for
/// each request.
const MAX_KEPT: usize = 1_024;

static KEPT: Mutex<BTreeMap<Bytes, &'static KeptPolicy>> = Mutex::new(BTreeMap::new());

/// How a limit stands, in the numbers that the fields show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldNumbers {
    pub(super) remaining: u64,
    /// The `t` or `reset` of the fields; see [`Dialect`](super::Dialect).
    pub(super) reset: Duration,
}

impl PolicyText {
    pub(crate) fn new(limit: &Limit) -> Self {
        let (quota, window) = quota_and_window(limit);
        let name = quote(limit.name());
        let mut text = FieldList::default();
        text.bytes(&name).bytes(b";q=").number(quota);
        let is_in_flight = limit.quota().is_in_flight();
        match is_in_flight {
            true => text.bytes(b";qu=\"concurrent-requests\""),
            false => text.bytes(b";w=").number(window),
        };
        let mut prefix = name;
        prefix.extend_from_slice(b";r=");
        let text = text.into_bytes().into();
        Self { text, prefix: prefix.into(), quota, window, is_in_flight }
    }

    /// Adds the limit's member of `RateLimit` to a list of several.
    pub(super) fn push_member(&self, list: &mut FieldList, numbers: FieldNumbers) {
        list.begin_member().bytes(&self.prefix).number(numbers.remaining);
        if !self.is_in_flight {
            list.bytes(RESET).number(numbers.seconds());
        }
    }

    /// The numbers of this limit at this level.
    ///
    /// After a refusal, `reset` is the wait, so a client that waits for it is not refused again.
    #[inline]
    pub(super) fn numbers(&self, limit: &Limit, level: &Level) -> FieldNumbers {
        let remaining = limit.bucket().tokens(level.state.value).whole();
        let reset = match level.verdict {
            Verdict::Refused => level.wait.unwrap_or_default(),
            _ => self.reset(limit, level.state, level.at, remaining),
        };
        FieldNumbers { remaining, reset }
    }

    /// The time that the fields show for an admitted request: until the end of the window, until as
    /// many tokens as are left have refilled, or until the next token.
    #[inline]
    fn reset(&self, limit: &Limit, state: State, now: Timestamp, remaining: u64) -> Duration {
        let bucket = limit.bucket();
        if bucket.kind() == Kind::FixedWindow {
            return bucket.after(state.ts, 1).since(now);
        }
        if remaining > 0 {
            return Duration::from_secs(refill_seconds(remaining, self.window, self.quota));
        }
        let missing = i128::from(bucket.token()).saturating_sub(i128::from(state.value));
        let steps = missing.unsigned_abs().div_ceil(gain_of_all_shards(limit));
        let micros = steps.saturating_mul(u128::from(bucket.step()));
        state.ts.plus_micros(saturate(micros)).since(now)
    }
}

impl KeptPolicy {
    /// The text of this limit; `None` if as many are kept as may be, or if it has no window.
    pub(crate) fn of(limit: &Limit) -> Option<&'static Self> {
        if limit.quota().is_in_flight() {
            return None;
        }
        // A poisoned lock is harmless: a policy is there or is not.
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        Self::keep(&mut kept, limit, MAX_KEPT)
    }

    fn keep(
        kept: &mut BTreeMap<Bytes, &'static Self>,
        limit: &Limit,
        most: usize,
    ) -> Option<&'static Self> {
        let text = PolicyText::new(limit);
        if let Some(known) = kept.get(&text.text) {
            return Some(known);
        }
        if kept.len() >= most {
            return None;
        }
        let forever = |text: Vec<u8>| Bytes::from_static(Vec::leak(text));
        let names = std::iter::once(limit.name());
        let value = HeaderValue::from_maybe_shared(forever(text.text.to_vec())).ok()?;
        let refusal = forever(problem::quota_exceeded(429, names, None).into_bytes());
        let mut blank = HeaderMap::with_capacity(5);
        blank.insert(RETRY_AFTER, HeaderValue::from_static(""));
        blank.insert(&RATELIMIT, HeaderValue::from_static(""));
        blank.insert(&RATELIMIT_POLICY, value.clone());
        blank.insert(CONTENT_TYPE, HeaderValue::from_static(problem::MEDIA_TYPE));
        blank.insert(CACHE_CONTROL, NO_STORE);
        let policy: &Self = Box::leak(Box::new(Self { text, value, refusal, blank }));
        kept.insert(policy.text.text.clone(), policy);
        Some(policy)
    }

    /// The numbers of how the limit stands.
    #[inline]
    pub(crate) fn numbers(&self, limit: &Limit, level: &Level) -> FieldNumbers {
        self.text.numbers(limit, level)
    }

    /// Writes the fields of draft 11, in front of those that an inner layer wrote.
    #[inline(never)]
    pub(crate) fn write_to(&'static self, numbers: FieldNumbers, headers: &mut HeaderMap) {
        prepend(headers, || RATELIMIT_POLICY, Some(self.value.clone()));
        prepend(headers, || RATELIMIT, self.member(numbers));
    }

    /// The fields of a refusal, in the form of draft 11 if there are numbers for it.
    #[inline]
    pub(super) fn fields_of_refusal(
        &'static self,
        numbers: Option<FieldNumbers>,
        retry_after: HeaderValue,
    ) -> HeaderMap {
        let mut headers = self.blank.clone();
        if let Some(blank) = headers.get_mut(&RETRY_AFTER) {
            *blank = retry_after;
        }
        if let Some(numbers) = numbers
            && let Some(members) = self.member(numbers)
            && let Some(blank) = headers.get_mut(&RATELIMIT)
        {
            *blank = members;
        } else {
            headers.remove(&RATELIMIT);
            headers.remove(&RATELIMIT_POLICY);
        }
        headers
    }

    #[inline(always)]
    fn member(&'static self, numbers: FieldNumbers) -> Option<HeaderValue> {
        let key = MemberKey::new(self, numbers.remaining, numbers.seconds());
        member(key, || self.new_member(numbers))
    }

    /// The field `RateLimit` with this limit as its only member: `"name";r=19;t=114`.
    ///
    /// The buffer has exactly the length of the text. Otherwise, [`Bytes`] would allocate again to
    /// share it.
    #[cold]
    #[inline(never)]
    fn new_member(&self, numbers: FieldNumbers) -> Option<HeaderValue> {
        let prefix = &self.text.prefix;
        let (mut remaining, mut seconds) = (itoa::Buffer::new(), itoa::Buffer::new());
        let remaining = remaining.format(numbers.remaining.min(MAX_INTEGER)).as_bytes();
        let seconds = seconds.format(numbers.seconds().min(MAX_INTEGER)).as_bytes();
        let digits = remaining.len().saturating_add(seconds.len()).saturating_add(RESET.len());
        let mut text = Vec::with_capacity(prefix.len().saturating_add(digits));
        text.extend_from_slice(prefix);
        text.extend_from_slice(remaining);
        text.extend_from_slice(RESET);
        text.extend_from_slice(seconds);
        HeaderValue::from_maybe_shared(Bytes::from(text)).ok()
    }
}

impl FieldNumbers {
    /// Whole seconds, rounded up and at least one.
    #[inline]
    pub(super) const fn seconds(&self) -> u64 {
        ceil_seconds(self.reset)
    }
}

/// The seconds in which `tokens` refill if `all` of them do in `window` seconds, rounded up.
#[inline]
fn refill_seconds(tokens: u64, window: u64, all: u64) -> u64 {
    let all = all.max(1);
    // Common limits fit into 64 bits. A division of 128 bits is slower.
    match window.checked_mul(tokens) {
        Some(product) => product.div_ceil(all),
        None => {
            let product = u128::from(tokens).saturating_mul(u128::from(window));
            saturate(product.div_ceil(u128::from(all)))
        }
    }
}

fn saturate(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// The tokens that a client may count on, and the seconds in which they refill.
fn quota_and_window(limit: &Limit) -> (u64, u64) {
    let (quota, bucket) = (limit.quota(), limit.bucket());
    // A capacity of zero has no window, so the rate and its period stand in.
    let tokens = match quota.get_capacity() {
        0 => quota.rate(),
        tokens => tokens,
    };
    let units = u128::from(tokens).saturating_mul(u128::from(bucket.token()));
    let steps = units.div_ceil(gain_of_all_shards(limit));
    let step = match quota.windows() {
        Some(_) => quota.period().as_micros(),
        None => u128::from(bucket.step()),
    };
    let micros = steps.saturating_mul(step);
    (tokens, saturate(micros.div_ceil(MICROS)))
}

/// The units that all shards together gain at each step.
fn gain_of_all_shards(limit: &Limit) -> u128 {
    let shards = u128::from(limit.quota().get_shards());
    u128::from(limit.bucket().gain()).saturating_mul(shards).max(1)
}

/// A structured-field string (RFC 9651, section 3.3.3).
fn quote(name: &str) -> Vec<u8> {
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

const RESET: &[u8; 3] = b";t=";

// The fields that a thread has made last. Most responses of a limit say the same few numbers, and to
// share a text costs less than to write it.

/// All that the value of a field depends on.
#[derive(Clone, Copy, PartialEq, Eq)]
struct MemberKey {
    /// Where the text is that the field begins with. Such texts stay where they are.
    policy: usize,
    remaining: u64,
    seconds: u64,
}

impl MemberKey {
    #[inline]
    fn new(policy: &'static KeptPolicy, remaining: u64, seconds: u64) -> Self {
        Self { policy: (&raw const *policy).addr(), remaining, seconds }
    }
}

struct LastMember {
    key: MemberKey,
    /// `None` after the first request for it: the value of a field that does not come again is not
    /// shared, which would take one more allocation.
    value: Option<HeaderValue>,
}

/// A power of two. They take some 4 KB of each thread, and the texts.
const PLACES: usize = 64;

thread_local! {
    static MEMBERS: RefCell<[LastMember; PLACES]> =
        const { RefCell::new([const { LastMember::NOTHING }; PLACES]) };
}

impl LastMember {
    const NOTHING: Self =
        Self { key: MemberKey { policy: 0, remaining: 0, seconds: 0 }, value: None };
}

/// The value for this key, as it was made before or as `make` makes it.
#[inline]
fn member(key: MemberKey, make: impl Fn() -> Option<HeaderValue>) -> Option<HeaderValue> {
    let look = |members: &RefCell<[LastMember; PLACES]>| {
        let mut members = members.try_borrow_mut().ok()?;
        let number = usize::try_from(key.remaining & 0xffff).unwrap_or(0);
        // Texts are at least 64 bytes apart.
        let kept = members.get_mut((number ^ (key.policy / 64)) % PLACES)?;
        if kept.key != key {
            *kept = LastMember { key, value: None };
            return None;
        }
        if kept.value.is_none() {
            kept.value = make();
        }
        kept.value.clone()
    };
    // A thread that ends keeps nothing any more.
    MEMBERS.try_with(look).ok().flatten().or_else(make)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::quota::{MINUTE, Quota, SECOND};

    #[test]
    fn as_many_policies_are_kept_as_may_be_and_each_once() {
        let limits =
            ["api", "log-in"].map(|name| Limit::new(name, Quota::token_bucket(10, MINUTE)));
        let [api, log_in] = &limits;
        let mut kept = BTreeMap::new();
        let first = KeptPolicy::keep(&mut kept, api, 1).unwrap();
        assert_eq!(first.value, "\"api\";q=10;w=60");
        assert!(KeptPolicy::keep(&mut kept, log_in, 1).is_none());
        assert!(std::ptr::eq(KeptPolicy::keep(&mut kept, &api.clone(), 1).unwrap(), first));
        assert!(!std::ptr::eq(KeptPolicy::keep(&mut kept, log_in, 2).unwrap(), first));
    }

    #[test]
    fn each_key_has_its_own_value_and_the_third_request_makes_none() {
        let made = Cell::new(0);
        let limits =
            ["first", "second"].map(|name| Limit::new(name, Quota::token_bucket(1, SECOND)));
        let policies = limits.map(|limit| KeptPolicy::of(&limit).unwrap());
        for (nth, remaining) in (0..300).flat_map(|remaining| [(0, remaining), (1, remaining)]) {
            let key = MemberKey::new(policies[nth], remaining, remaining / 7);
            let text = format!("{nth} {remaining}");
            let value = || {
                made.set(made.get() + 1);
                HeaderValue::try_from(text.clone()).ok()
            };
            for _ in 0..4 {
                assert_eq!(member(key, value).unwrap(), text);
            }
            assert_eq!(made.replace(0), 2, "one for the first request, and one for all others");
            let other = MemberKey { seconds: 1_000, ..key };
            assert_eq!(member(other, || HeaderValue::try_from("other").ok()).unwrap(), "other");
        }
    }
}
