//! What one response tells, and how it gets into the header fields.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use super::dialect::Dialects;
use super::list::{List, MAX_INTEGER, single_member};
use super::most_constrained::Nearest;
use super::policy::Label;
use super::template::Ready;
use crate::clock::Timestamp;
use crate::limiter::{Limit, Stand};

pub(super) static RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// What the fields of a response tell.
#[derive(Debug)]
pub(crate) struct Told {
    policy: Policy,
    /// `RateLimit` of draft 11.
    members: Option<HeaderValue>,
    /// Boxed, as few speak of one limit only.
    nearest: Option<Box<(Dialects, Nearest)>>,
}

#[derive(Debug)]
enum Policy {
    Ready(Arc<Ready>),
    Own(Option<HeaderValue>),
}

impl Policy {
    fn value(self) -> Option<HeaderValue> {
        match self {
            Self::Ready(ready) => ready.policy(),
            Self::Own(value) => value,
        }
    }
}

impl Told {
    /// What is told of the one limit of a layer that speaks draft 11 alone: its [`member`].
    #[inline]
    pub(crate) fn single(ready: &Arc<Ready>, member: Option<HeaderValue>) -> Self {
        Self { policy: Policy::Ready(Arc::clone(ready)), members: member, nearest: None }
    }

    /// What is told of a limit of which no more is known than its numbers.
    pub(crate) fn policy(dialects: Dialects, limit: &Limit) -> Self {
        let mut policies = Policies::new(dialects);
        policies.push(&Label::of(limit), None);
        Self { policy: Policy::Own(policies.value()), members: None, nearest: None }
    }

    /// Puts it before what an inner layer has already told.
    pub(crate) fn tell(self, headers: &mut HeaderMap) {
        match (self.policy, self.members) {
            (Policy::Ready(ready), Some(members)) if headers.is_empty() => {
                ready.tell_alone(members, headers);
            }
            (policy, members) => {
                put(headers, &RATELIMIT_POLICY, policy.value());
                put(headers, &RATELIMIT, members);
            }
        }
        if let Some(told) = self.nearest {
            told.1.tell(told.0, headers);
        }
    }

    /// Tells it where nobody has told anything by the same names.
    pub(crate) fn tell_beside(self, headers: &mut HeaderMap) {
        let mut all = HeaderMap::new();
        self.tell(&mut all);
        for (name, value) in &all {
            if !headers.contains_key(name) {
                let _ = headers.try_insert(name, value.clone());
            }
        }
    }
}

/// `RateLimit` of draft 11 where there is one limit.
#[inline]
pub(crate) fn member(
    label: &Label,
    limit: &Limit,
    stand: &Stand,
    now: Timestamp,
) -> Option<HeaderValue> {
    single_member(label, label.numbers(limit, stand, now))
}

/// Collects what is told of several limits.
#[derive(Debug)]
pub(crate) struct Teller {
    dialects: Dialects,
    policies: Option<Policies>,
    members: List,
    nearest: Option<Nearest>,
}

/// What is known of one limit for one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'a> {
    pub(crate) label: &'a Label,
    pub(crate) limit: &'a Limit,
    pub(crate) stand: &'a Stand,
    pub(crate) cost: u64,
    pub(crate) partition_key: Option<&'a str>,
}

impl Teller {
    /// `with_policies` unless they are ready.
    pub(crate) fn new(dialects: Dialects, with_policies: bool) -> Self {
        let policies = with_policies.then(|| Policies::new(dialects));
        Self { dialects, policies, members: List::default(), nearest: None }
    }

    pub(crate) fn push(&mut self, known: Known<'_>, now: Timestamp) {
        let Known { label, limit, stand, cost, partition_key } = known;
        let numbers = label.numbers(limit, stand, now);
        if let Some(policies) = &mut self.policies {
            policies.push(label, partition_key);
        }
        if self.dialects.draft_11 {
            self.members.member(label, numbers);
            if let Some(key) = partition_key {
                self.members.partition_key(key);
            }
        }
        if self.dialects.show_most_constrained() {
            let one = Nearest::of(label, numbers, stand.verdict, cost, now);
            self.nearest = Some(self.nearest.map_or(one, |nearest| nearest.or(one)));
        }
    }

    /// All of it, with the policies that are ready if these were not collected.
    pub(crate) fn told(self, ready: Option<&Arc<Ready>>) -> Told {
        let policy = match (self.policies, ready) {
            (None, Some(ready)) => Policy::Ready(Arc::clone(ready)),
            (policies, _) => Policy::Own(policies.and_then(Policies::value)),
        };
        let nearest = self.nearest.map(|nearest| Box::new((self.dialects, nearest)));
        Told { policy, members: self.members.value(), nearest }
    }
}

/// `RateLimit-Policy` of several limits.
#[derive(Debug)]
pub(super) struct Policies {
    dialects: Dialects,
    list: List,
    /// In draft 7 a quota stands for one policy.
    quotas: SmallVec<[u64; 4]>,
}

impl Policies {
    pub(super) fn new(dialects: Dialects) -> Self {
        Self { dialects, list: List::default(), quotas: SmallVec::new() }
    }

    pub(super) fn push(&mut self, label: &Label, partition_key: Option<&str>) {
        if self.dialects.draft_11 {
            self.list.next().bytes(&label.policy);
            if let Some(key) = partition_key {
                self.list.partition_key(key);
            }
            return;
        }
        // As it is told.
        let quota = label.quota.min(MAX_INTEGER);
        if self.dialects.draft_7 && !self.quotas.contains(&quota) {
            self.quotas.push(quota);
            self.list.next().number(quota).bytes(b";w=").number(label.window);
        }
    }

    pub(super) fn value(self) -> Option<HeaderValue> {
        self.list.value()
    }
}

/// Mostly nobody has told anything, and the field is looked up once. Only a map with no room for
/// any more says that it cannot take it.
fn put(headers: &mut HeaderMap, name: &'static HeaderName, members: Option<HeaderValue>) {
    if let Some(members) = members
        && let Ok(true) = headers.try_append(name, members)
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
