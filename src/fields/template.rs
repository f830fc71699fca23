//! The part of the fields that is the same in many responses, made once for a layer.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::dialect::Dialects;
use super::policies::{Policies, RATELIMIT, RATELIMIT_POLICY};
use super::policy::PolicyText;
use super::retry_after::seconds_up;
use super::{NO_STORE, number, problem};

/// Header maps whose names are laid out and hashed once: cloning one is cheaper than inserting its
/// fields one by one.
#[derive(Debug)]
pub(crate) struct FieldTemplate {
    policy: Option<HeaderValue>,
    /// A blank `RateLimit` first, then `RateLimit-Policy`; empty without draft 11.
    fields: HeaderMap,
    /// A blank `Retry-After` first, then `fields`, then the other fields of a refusal.
    refusal: HeaderMap,
}

impl FieldTemplate {
    pub(crate) fn new<'p>(
        dialects: Dialects,
        limits: impl Iterator<Item = &'p PolicyText>,
    ) -> Self {
        let mut policies = Policies::new(dialects);
        limits.for_each(|policy| policies.push(policy, None));
        let policy = policies.value();
        let blank = || HeaderValue::from_static("");
        let mut fields = HeaderMap::new();
        if dialects.draft_11 {
            fields.insert(&RATELIMIT, blank());
            fields.extend(policy.iter().map(|policy| (RATELIMIT_POLICY.clone(), policy.clone())));
        }
        let mut refusal = HeaderMap::new();
        refusal.insert(RETRY_AFTER, blank());
        refusal.extend(fields.clone());
        refusal.insert(CONTENT_TYPE, HeaderValue::from_static(problem::MEDIA_TYPE));
        refusal.insert(CACHE_CONTROL, NO_STORE);
        Self { policy, fields, refusal }
    }

    pub(super) fn policy(&self) -> Option<HeaderValue> {
        self.policy.clone()
    }

    /// Replaces these headers, which are empty, by the template with these members of `RateLimit`.
    pub(super) fn fill(&self, members: HeaderValue, headers: &mut HeaderMap) {
        *headers = self.fields.clone();
        if let Some(blank) = headers.values_mut().next() {
            *blank = members;
        }
    }

    /// 429 as problem details, from a layer that speaks draft 11 alone or no dialect at all.
    pub(crate) fn refusal(
        &self,
        body: Bytes,
        retry_after: Duration,
        member: Option<HeaderValue>,
    ) -> Response<Bytes> {
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        let headers = response.headers_mut();
        *headers = self.refusal.clone();
        // A header map iterates in the order in which its fields were inserted, blanks first.
        let mut blanks = headers.values_mut();
        if let Some(blank) = blanks.next() {
            *blank = number::value(seconds_up(retry_after));
        }
        if let Some(member) = member
            && let Some(blank) = blanks.next()
        {
            *blank = member;
        }
        response
    }
}
