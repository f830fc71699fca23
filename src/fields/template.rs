//! The header fields that all responses of a layer share, formatted once.

use http::{HeaderMap, HeaderValue};

use super::dialect::Dialects;
use super::list::prepend;
use super::policies::{Policies, RATELIMIT, RATELIMIT_POLICY};
use super::policy::PolicyText;

/// A header map with hashed names. Cloning it is cheaper than inserting its fields one by one.
#[derive(Debug)]
pub(crate) struct FieldTemplate {
    policy: Option<HeaderValue>,
    /// A blank `RateLimit`, and `RateLimit-Policy`; empty without draft 11.
    fields: HeaderMap,
}

impl FieldTemplate {
    pub(crate) fn new<'p>(
        dialects: Dialects,
        limits: impl Iterator<Item = &'p PolicyText>,
    ) -> Self {
        let mut policies = Policies::new(dialects);
        limits.for_each(|policy| policies.push(policy, None));
        let policy = policies.value();
        let mut fields = HeaderMap::new();
        if dialects.draft_11 {
            fields.insert(&RATELIMIT, HeaderValue::from_static(""));
            fields.extend(policy.iter().map(|policy| (RATELIMIT_POLICY.clone(), policy.clone())));
        }
        Self { policy, fields }
    }

    pub(super) fn policy(&self) -> Option<HeaderValue> {
        self.policy.clone()
    }

    /// The fields of draft 11. `RateLimit` has no members yet.
    pub(super) fn blank(&self) -> HeaderMap {
        self.fields.clone()
    }

    /// Writes the fields of draft 11 with these members of `RateLimit`, in front of those that an
    /// inner layer wrote.
    pub(super) fn write_to(&self, members: HeaderValue, headers: &mut HeaderMap) {
        if !headers.is_empty() {
            prepend(headers, &RATELIMIT_POLICY, self.policy());
            prepend(headers, &RATELIMIT, Some(members));
            return;
        }
        *headers = self.blank();
        if let Some(blank) = headers.get_mut(&RATELIMIT) {
            *blank = members;
        }
    }
}
