//! The fields and the refusals of a layer with one limit, in draft 11 or in no dialect. Only the
//! numbers differ between requests, so all else is formatted once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::member_cache::Serial;
use super::policies::RATELIMIT;
use super::policy::{FieldNumbers, PolicyText};
use super::retry_after::ceil_seconds;
use super::template::FieldTemplate;
use super::{NO_STORE, number, problem};
use crate::limiter::{Level, Limit};

/// The fields and the refusals of a layer with one limit, without the numbers.
#[derive(Debug)]
pub(crate) struct LoneTemplate {
    policy: PolicyText,
    serial: Serial,
    fields: Arc<FieldTemplate>,
    /// Problem details with status 429. `Retry-After`, and `RateLimit` if that is sent, are blank.
    refusal: Response<Option<Arc<Bytes>>>,
}

impl LoneTemplate {
    /// Makes a template. `fields` have to be those of this limit, of draft 11 alone or of no
    /// dialect.
    pub(crate) fn new(limit: &Limit, fields: Arc<FieldTemplate>) -> Self {
        let (status, names) = (StatusCode::TOO_MANY_REQUESTS, std::iter::once(limit.name()));
        let text = problem::quota_exceeded(status.as_u16(), names, None);
        let mut refusal = Response::new(Some(Arc::new(text.into())));
        *refusal.status_mut() = status;
        let headers = refusal.headers_mut();
        headers.insert(RETRY_AFTER, HeaderValue::from_static(""));
        headers.extend(fields.blank());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(problem::MEDIA_TYPE));
        headers.insert(CACHE_CONTROL, NO_STORE);
        Self { policy: PolicyText::new(limit), serial: Serial::next(), fields, refusal }
    }

    /// The numbers of how the limit stands.
    #[inline]
    pub(crate) fn numbers(&self, limit: &Limit, level: &Level) -> FieldNumbers {
        self.policy.numbers(limit, level)
    }

    /// Writes the fields, in front of those that an inner layer wrote.
    pub(crate) fn write_to(&self, numbers: FieldNumbers, headers: &mut HeaderMap) {
        if let Some(member) = self.policy.member(self.serial, numbers) {
            self.fields.write_to(member, headers);
        }
    }

    /// Makes the response to a refused request: 429 with problem details.
    pub(crate) fn refusal(
        &self,
        numbers: FieldNumbers,
        retry_after: Duration,
    ) -> Response<Option<Arc<Bytes>>> {
        let mut response = self.refusal.clone();
        let headers = response.headers_mut();
        if let Some(blank) = headers.get_mut(&RETRY_AFTER) {
            *blank = number::value(ceil_seconds(retry_after));
        }
        if let Some(blank) = headers.get_mut(&RATELIMIT)
            && let Some(member) = self.policy.member(self.serial, numbers)
        {
            *blank = member;
        }
        response
    }
}
