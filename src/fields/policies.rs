//! `RateLimit-Policy` of several limits, and the names of the two fields that are lists.

use http::{HeaderName, HeaderValue};
use smallvec::SmallVec;

use super::dialect::Dialects;
use super::list::{FieldList, MAX_INTEGER};
use super::policy::PolicyText;

pub(super) static RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Collects the members of `RateLimit-Policy`.
#[derive(Debug)]
pub(super) struct Policies {
    dialects: Dialects,
    list: FieldList,
    /// The quotas in the list so far: draft 7 (section 3.5) allows each only once.
    quotas: SmallVec<[u64; 4]>,
}

impl Policies {
    pub(super) fn new(dialects: Dialects) -> Self {
        Self { dialects, list: FieldList::default(), quotas: SmallVec::new() }
    }

    pub(super) fn push(&mut self, policy: &PolicyText, partition_key: Option<&str>) {
        if self.dialects.draft_11 {
            self.list.begin_member().bytes(&policy.text);
            if let Some(key) = partition_key {
                self.list.partition_key(key);
            }
            return;
        }
        // Compared after the cut to the largest integer, as clients see them.
        let quota = policy.quota.min(MAX_INTEGER);
        if self.dialects.draft_7 && !self.quotas.contains(&quota) {
            self.quotas.push(quota);
            self.list.begin_member().number(quota).bytes(b";w=").number(policy.window);
        }
    }

    /// The value of the field; `None` if no dialect has the field.
    pub(super) fn value(self) -> Option<HeaderValue> {
        self.list.value()
    }
}
