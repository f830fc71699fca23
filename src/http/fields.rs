//! `RateLimit-Policy` and `RateLimit`.

use ::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;

use super::label::{Label, List};
use crate::limiter::Limit;

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

static RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

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

    /// What is told of a limit of which no more is known than its numbers.
    pub(crate) fn policy(limit: &Limit) -> Self {
        let mut policy = List::default();
        Label::of(limit).policy(&mut policy);
        Self::new(policy.value(), None)
    }

    /// Puts them before those that an inner layer has already told.
    pub(crate) fn tell(self, headers: &mut HeaderMap) {
        if let Some(policy) = self.policy {
            put(headers, &RATELIMIT_POLICY, policy);
        }
        if let Some(member) = self.member {
            put(headers, &RATELIMIT, member);
        }
    }
}

/// Mostly nobody has told anything, and the field is looked up once. Only a map with no room for
/// any more says that it cannot take it.
fn put(headers: &mut HeaderMap, name: &'static HeaderName, member: HeaderValue) {
    if let Ok(true) = headers.try_append(name, member)
        && let Some(list) = last_before_others(headers, name)
    {
        headers.insert(name, list);
    }
}

/// The lines of a field as one, and the last of them first.
#[cold]
fn last_before_others(headers: &HeaderMap, name: &HeaderName) -> Option<HeaderValue> {
    let mut lines = headers.get_all(name).iter();
    let mut list = lines.next_back()?.as_bytes().to_vec();
    for line in lines {
        if !line.as_bytes().trim_ascii().is_empty() {
            list.extend_from_slice(b", ");
            list.extend_from_slice(line.as_bytes());
        }
    }
    // All of them were header values, so their list is one.
    HeaderValue::from_maybe_shared(Bytes::from(list)).ok()
}
