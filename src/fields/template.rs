//! What is the same in many responses, made once for a layer.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::dialect::Dialects;
use super::field_set::{Policies, RATELIMIT, RATELIMIT_POLICY};
use super::number;
use super::policy::Label;
use super::rejection::PROBLEM;
use super::retry_after::seconds_up;

/// Header fields whose names are laid out and hashed once; a copy of them is cheaper than to put them in
/// one by one.
#[derive(Debug)]
pub(crate) struct Ready {
    policy: Option<HeaderValue>,
    /// `RateLimit`, to be filled in, and `RateLimit-Policy`.
    fields: HeaderMap,
    /// `Retry-After` and, in draft 11, `RateLimit`, both to be filled in, and the others of a refusal.
    refusal: HeaderMap,
}

impl Ready {
    pub(crate) fn of<'l>(dialects: Dialects, labels: impl Iterator<Item = &'l Label>) -> Self {
        let mut policies = Policies::new(dialects);
        labels.for_each(|label| policies.push(label, None));
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
        refusal.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM));
        refusal.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Self { policy, fields, refusal }
    }

    pub(super) fn policy(&self) -> Option<HeaderValue> {
        self.policy.clone()
    }

    /// Tells these members where nobody has told anything.
    pub(super) fn tell_alone(&self, members: HeaderValue, headers: &mut HeaderMap) {
        *headers = self.fields.clone();
        if let Some(blank) = headers.values_mut().next() {
            *blank = members;
        }
    }

    /// 429 as problem details, from a layer that speaks draft 11 alone or not at all.
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
