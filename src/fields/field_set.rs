//! The fields that one response gets, and how they are merged with those that are there.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::dialect::Dialects;
use super::list::FieldList;
use super::most_constrained::MostConstrained;
use super::policies::{Policies, RATELIMIT, RATELIMIT_POLICY};
use super::policy::PolicyText;
use super::template::FieldTemplate;
use crate::limiter::{Level, Limit};

/// The fields that one response gets.
#[derive(Debug)]
pub(crate) struct FieldSet {
    policy: PolicyField,
    /// `RateLimit` of draft 11.
    members: Option<HeaderValue>,
    /// Boxed, as few layers speak a dialect that needs it.
    most_constrained: Option<Box<(Dialects, MostConstrained)>>,
}

/// Where `RateLimit-Policy` comes from.
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
    /// The fields of a layer with one limit that speaks draft 11 alone, with the limit's
    /// [member](PolicyText::single_member).
    #[inline]
    pub(crate) fn single(template: &Arc<FieldTemplate>, member: Option<HeaderValue>) -> Self {
        let policy = PolicyField::Template(Arc::clone(template));
        Self { policy, members: member, most_constrained: None }
    }

    /// The policy of a limit, where how it stands is unknown.
    pub(crate) fn policy_only(dialects: Dialects, limit: &Limit) -> Self {
        let mut policies = Policies::new(dialects);
        policies.push(&PolicyText::new(limit), None);
        let policy = PolicyField::Value(policies.value());
        Self { policy, members: None, most_constrained: None }
    }

    /// Writes the fields into these headers, in front of what an inner layer wrote there.
    pub(crate) fn write_to(self, headers: &mut HeaderMap) {
        match (self.policy, self.members) {
            (PolicyField::Template(template), Some(members)) if headers.is_empty() => {
                template.fill(members, headers);
            }
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

    /// Writes those of the fields that these headers do not have yet.
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

/// Whether the policies are laid out already, or have to be collected.
#[derive(Debug)]
enum PolicySource {
    Template(Arc<FieldTemplate>),
    Collector(Policies),
}

/// One limit as the fields show it to one request: a member of their lists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member<'a> {
    pub(crate) policy: &'a PolicyText,
    pub(crate) limit: &'a Limit,
    pub(crate) level: &'a Level,
    /// In base64.
    pub(crate) partition_key: Option<&'a str>,
}

impl FieldSetBuilder {
    /// With a template, the policies come from there: it has to be one of the same limits.
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
            self.most_constrained = Some(self.most_constrained.map_or(one, |most| most.max(one)));
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

/// Adds members at the start of a field that is a list.
///
/// Mostly the field is not there, and is looked up once. An error means that the map is full, and
/// then the field is left out.
fn prepend(headers: &mut HeaderMap, name: &'static HeaderName, members: Option<HeaderValue>) {
    if let Some(members) = members
        && let Ok(true) = headers.try_append(name, members)
        && let Some(list) = join_last_first(headers, name)
    {
        headers.insert(name, list);
    }
}

/// The lines of a field as one, the last of them first.
#[cold]
fn join_last_first(headers: &HeaderMap, name: &HeaderName) -> Option<HeaderValue> {
    let mut lines = headers.get_all(name).iter();
    let mut list = lines.next_back()?.as_bytes().to_vec();
    for line in lines {
        if !line.as_bytes().trim_ascii().is_empty() {
            list.extend_from_slice(b", ");
            list.extend_from_slice(line.as_bytes());
        }
    }
    // Every line is a valid header value, so the list is one.
    HeaderValue::from_maybe_shared(Bytes::from(list)).ok()
}
