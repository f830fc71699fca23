//! The header fields of one response, and how they are merged with those of inner layers.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};

use super::dialect::Dialects;
use super::list::{FieldList, prepend};
use super::most_constrained::MostConstrained;
use super::policies::{Policies, RATELIMIT, RATELIMIT_POLICY};
use super::policy::PolicyText;
use super::template::FieldTemplate;
use crate::limiter::{Level, Limit};

/// The header fields of one response.
#[derive(Debug)]
pub(crate) struct FieldSet {
    policy: PolicyField,
    /// `RateLimit` of draft 11.
    members: Option<HeaderValue>,
    /// Boxed, since few layers send a dialect that needs it.
    most_constrained: Option<Box<(Dialects, MostConstrained)>>,
}

/// The source of `RateLimit-Policy`.
#[derive(Debug)]
enum PolicyField {
    Template(Arc<FieldTemplate>),
    Value(Option<HeaderValue>),
}

impl PolicyField {
    fn value(self) -> Option<HeaderValue> {
        match self {
            Self::Template(template) => template.policy(),
            Self::Value(value) => value,
        }
    }
}

impl FieldSet {
    /// Makes the policy field of a limit, without the numbers of how it stands.
    pub(crate) fn policy_only(dialects: Dialects, limit: &Limit) -> Self {
        let mut policies = Policies::new(dialects);
        policies.push(&PolicyText::new(limit), None);
        let policy = PolicyField::Value(policies.value());
        Self { policy, members: None, most_constrained: None }
    }

    /// Writes the fields, in front of those that an inner layer wrote.
    pub(crate) fn write_to(self, headers: &mut HeaderMap) {
        match (self.policy, self.members) {
            (PolicyField::Template(template), Some(members)) => template.write_to(members, headers),
            (policy, members) => {
                prepend(headers, &RATELIMIT_POLICY, policy.value());
                prepend(headers, &RATELIMIT, members);
            }
        }
        if let Some(boxed) = self.most_constrained {
            let (dialects, most_constrained) = *boxed;
            most_constrained.write_to(dialects, headers);
        }
    }

    /// Writes the fields that these headers do not have yet.
    pub(crate) fn write_missing_to(self, headers: &mut HeaderMap) {
        let mut all = HeaderMap::new();
        self.write_to(&mut all);
        for (name, value) in &all {
            if !headers.contains_key(name) {
                let _ = headers.try_insert(name, value.clone());
            }
        }
    }
}

/// Collects the fields of several limits.
#[derive(Debug)]
pub(crate) struct FieldSetBuilder {
    dialects: Dialects,
    policy: PolicySource,
    members: FieldList,
    most_constrained: Option<MostConstrained>,
}

/// Policies that are formatted already, or that have to be collected.
#[derive(Debug)]
enum PolicySource {
    Template(Arc<FieldTemplate>),
    Collector(Policies),
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
    /// Makes a builder. If there is a template, the policies come from it, so it has to be of the
    /// same limits.
    pub(crate) fn new(dialects: Dialects, template: Option<&Arc<FieldTemplate>>) -> Self {
        let policy = match template {
            Some(template) => PolicySource::Template(Arc::clone(template)),
            None => PolicySource::Collector(Policies::new(dialects)),
        };
        Self { dialects, policy, members: FieldList::default(), most_constrained: None }
    }

    pub(crate) fn push(&mut self, member: Member<'_>) {
        let Member { policy, limit, level, partition_key } = member;
        let numbers = policy.numbers(limit, level);
        if let PolicySource::Collector(policies) = &mut self.policy {
            policies.push(policy, partition_key);
        }
        if self.dialects.draft_11 {
            policy.push_member(&mut self.members, numbers);
            if let Some(key) = partition_key {
                self.members.partition_key(key);
            }
        }
        if self.dialects.show_most_constrained() {
            let one = MostConstrained::new(policy, numbers, level);
            self.most_constrained = Some(self.most_constrained.map_or(one, |other| other.max(one)));
        }
    }

    pub(crate) fn build(self) -> FieldSet {
        let policy = match self.policy {
            PolicySource::Template(template) => PolicyField::Template(template),
            PolicySource::Collector(policies) => PolicyField::Value(policies.value()),
        };
        let most_constrained = self.most_constrained.map(|most| Box::new((self.dialects, most)));
        FieldSet { policy, members: self.members.value(), most_constrained }
    }
}
