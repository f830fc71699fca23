//! `RateLimit-Policy` and `RateLimit`.

use ::http::header::{Entry, OccupiedEntry};
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

    /// What is told of a limit of which no more is known than its numbers.
    pub(crate) fn policy(limit: &Limit) -> Self {
        let mut policy = List::default();
        Label::of(limit).policy(&mut policy);
        Self::new(policy.value(), None)
    }

    /// Puts them before those that an inner layer has already told.
    pub(crate) fn tell(self, headers: &mut HeaderMap) {
        for (name, member) in [(RATELIMIT_POLICY, self.policy), (RATELIMIT, self.member)] {
            let Some(member) = member else { continue };
            // Only a map with no room for any more field says no.
            match headers.try_entry(name) {
                Ok(Entry::Vacant(place)) => drop(place.try_insert(member)),
                Ok(Entry::Occupied(mut told)) => {
                    let members = before(&member, &told).unwrap_or(member);
                    told.insert(members);
                }
                Err(_full) => {}
            }
        }
    }
}

/// A member, and those behind it that are there already.
fn before(member: &HeaderValue, told: &OccupiedEntry<'_, HeaderValue>) -> Option<HeaderValue> {
    let mut list = member.as_bytes().to_vec();
    for line in told.iter() {
        if !line.as_bytes().trim_ascii().is_empty() {
            list.extend_from_slice(b", ");
            list.extend_from_slice(line.as_bytes());
        }
    }
    // All of them were header values, so their list is one.
    HeaderValue::from_maybe_shared(Bytes::from(list)).ok()
}
