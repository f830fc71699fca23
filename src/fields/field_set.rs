//! The header fields of one response, and how they are merged with those of inner layers.

use http::{Extensions, HeaderMap, HeaderValue, Response};
use smallvec::SmallVec;

use super::dialect::Dialects;
use super::foreign::{ForeignFields, remove_all};
use super::list::{FieldList, MAX_INTEGER, RATELIMIT, RATELIMIT_POLICY, prepend};
use super::most_constrained::MostConstrained;
use super::policy::PolicyText;
use crate::limiter::{Level, Limit};

/// The header fields of one response.
#[derive(Debug)]
pub(crate) struct FieldSet {
    policy: Option<HeaderValue>,
    /// `RateLimit` of draft 11.
    members: Option<HeaderValue>,
    /// Boxed, since few layers send a dialect that needs it.
    most_constrained: Option<Box<(Dialects, MostConstrained)>>,
    foreign: ForeignFields,
}

impl FieldSet {
    /// Makes the policy field of a limit, without the numbers of how it stands.
    pub(crate) fn policy_only(dialects: Dialects, limit: &Limit) -> Self {
        let mut policies = Policies::new(dialects);
        policies.push(&PolicyText::new(limit), None);
        let foreign = ForeignFields::default();
        Self { policy: policies.value(), members: None, most_constrained: None, foreign }
    }

    /// Writes the fields, in front of those that are in the response already.
    #[inline]
    pub(crate) fn write<B>(self, response: &mut Response<B>) {
        let mut headers = std::mem::take(response.headers_mut());
        self.write_to(&mut headers, response.extensions_mut());
        *response.headers_mut() = headers;
    }

    /// Writes the fields that the response does not have yet.
    pub(crate) fn write_missing<B>(self, response: &mut Response<B>) {
        let mut all = HeaderMap::new();
        self.write_to(&mut all, response.extensions_mut());
        for (name, value) in &all {
            if !response.headers().contains_key(name) {
                let _ = response.headers_mut().try_insert(name, value.clone());
            }
        }
    }

    /// Writes the fields, in front of those that an inner layer or service wrote.
    pub(crate) fn write_to(self, headers: &mut HeaderMap, extensions: &mut Extensions) {
        let Self { policy, members, most_constrained, foreign } = self;
        match foreign {
            ForeignFields::Keep => {}
            ForeignFields::Replace => {
                let most = most_constrained.as_ref();
                let replaced =
                    [(policy.is_some(), &RATELIMIT_POLICY), (members.is_some(), &RATELIMIT)];
                for (_, name) in replaced.iter().filter(|(is_sent, _)| *is_sent) {
                    headers.remove(*name);
                }
                most.into_iter().flat_map(|most| MostConstrained::names(most.0)).for_each(|name| {
                    headers.remove(name);
                });
            }
            ForeignFields::Remove => remove_all(headers),
        }
        prepend(headers, || RATELIMIT_POLICY, policy);
        prepend(headers, || RATELIMIT, members);
        if let Some(boxed) = most_constrained {
            let (dialects, most_constrained) = *boxed;
            most_constrained.write_to(dialects, headers, extensions);
        }
    }
}

/// Collects the fields of several limits.
#[derive(Debug)]
pub(crate) struct FieldSetBuilder {
    dialects: Dialects,
    policies: Policies,
    members: FieldList,
    most_constrained: Option<MostConstrained>,
    foreign: ForeignFields,
}

/// One limit in the fields of one response: a member of their lists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member<'a> {
    pub(crate) policy: &'a PolicyText,
    pub(crate) limit: &'a Limit,
    pub(crate) level: &'a Level,
    /// In base64.
    pub(crate) partition_key: Option<&'a str>,
}

impl FieldSetBuilder {
    pub(crate) fn new(dialects: Dialects, foreign: ForeignFields) -> Self {
        let (policies, members) = (Policies::new(dialects), FieldList::default());
        Self { dialects, policies, members, most_constrained: None, foreign }
    }

    pub(crate) fn push(&mut self, member: Member<'_>) {
        let Member { policy, limit, level, partition_key } = member;
        let numbers = policy.numbers(limit, level);
        self.policies.push(policy, partition_key);
        if self.dialects.draft_11 {
            policy.push_member(&mut self.members, numbers);
            if let Some(key) = partition_key {
                self.members.partition_key(key);
            }
        }
        // The older dialects have no words for a limit without a window.
        if self.dialects.show_most_constrained() && !policy.is_in_flight {
            let one = MostConstrained::new(policy, limit, numbers, level);
            self.most_constrained = Some(self.most_constrained.map_or(one, |other| other.max(one)));
        }
    }

    pub(crate) fn build(self) -> FieldSet {
        let policy = self.policies.value();
        let most_constrained = self.most_constrained.map(|most| Box::new((self.dialects, most)));
        FieldSet { policy, members: self.members.value(), most_constrained, foreign: self.foreign }
    }
}

/// Collects the members of `RateLimit-Policy`.
#[derive(Debug)]
struct Policies {
    dialects: Dialects,
    list: FieldList,
    /// The quotas in the list so far: draft 7 (section 3.5) allows each only once.
    quotas: SmallVec<[u64; 4]>,
}

impl Policies {
    fn new(dialects: Dialects) -> Self {
        Self { dialects, list: FieldList::default(), quotas: SmallVec::new() }
    }

    fn push(&mut self, policy: &PolicyText, partition_key: Option<&str>) {
        if self.dialects.draft_11 {
            self.list.begin_member().bytes(&policy.text);
            if let Some(key) = partition_key {
                self.list.partition_key(key);
            }
            return;
        }
        // Compared after the cut to the largest integer, as clients see them.
        let quota = policy.quota.min(MAX_INTEGER);
        if self.dialects.draft_7 && !policy.is_in_flight && !self.quotas.contains(&quota) {
            self.quotas.push(quota);
            self.list.begin_member().number(quota).bytes(b";w=").number(policy.window);
        }
    }

    /// The value of the field; `None` if no dialect has the field.
    fn value(self) -> Option<HeaderValue> {
        self.list.value()
    }
}
