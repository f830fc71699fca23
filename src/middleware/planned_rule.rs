//! A rule, made ready to be carried out: what it demands of a request.

use std::borrow::Borrow;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;

use super::log::Log;
use super::missing_key::MissingKey;
use super::rule::{RequestCost, Rule};
use super::setup_check::SetupCheck;
use crate::fields::{self, PolicyText};
use crate::key::{Extracted, Head, Key, KeyError};
use crate::limiter::{Demand, Limit};

/// A rule of a plan, with what is the same for all its requests.
pub(super) struct PlannedRule {
    pub(super) rule: Rule,
    pub(super) policy: PolicyText,
    /// The body of its refusals.
    pub(super) refusal_body: Bytes,
    pub(super) log: Log,
    /// Whether it tells requests apart by their keys.
    pub(super) is_keyed: bool,
    setup_check: SetupCheck,
}

/// The limit that a request is held to, and by which rule, counted from the first.
pub(super) struct Choice<'p> {
    limit: LimitRef<'p>,
    pub(super) rule: usize,
}

/// The rule's limit, or the one that was chosen for a request.
enum LimitRef<'p> {
    OfRule(&'p Arc<Limit>),
    Chosen(Arc<Limit>),
}

impl Choice<'_> {
    pub(super) fn shared_limit(&self) -> Arc<Limit> {
        match &self.limit {
            LimitRef::OfRule(limit) => Arc::clone(limit),
            LimitRef::Chosen(limit) => Arc::clone(limit),
        }
    }

    /// The same for answers that come later than the plan is at hand.
    pub(super) fn to_static(&self) -> Choice<'static> {
        Choice { limit: LimitRef::Chosen(self.shared_limit()), rule: self.rule }
    }
}

impl Borrow<Limit> for Choice<'_> {
    fn borrow(&self) -> &Limit {
        match &self.limit {
            LimitRef::OfRule(limit) => limit,
            LimitRef::Chosen(limit) => limit,
        }
    }
}

impl PlannedRule {
    pub(super) fn new(rule: Rule) -> Self {
        let name = std::iter::once(rule.limit.name());
        Self {
            policy: PolicyText::new(&rule.limit),
            refusal_body: fields::quota_exceeded(StatusCode::TOO_MANY_REQUESTS, name),
            is_keyed: !rule.key.is_global(),
            rule,
            log: Log::default(),
            setup_check: SetupCheck::default(),
        }
    }

    /// Whether it applies to this request, for which a number may have to be drawn.
    pub(super) fn applies_to(&self, head: &Head<'_>, draw: impl FnOnce() -> u64) -> bool {
        self.rule.options.as_ref().is_none_or(|options| options.applies_to(head, draw))
    }

    /// Whether it may refuse what is demanded; it is a shadow otherwise.
    pub(super) fn enforces(&self, demand: &Demand<Choice<'_>>) -> bool {
        let options = self.rule.options.as_ref();
        options.is_none_or(|options| options.enforces(demand.limit().name(), &demand.key))
    }

    /// What it demands for a request, as the rule at this position; nothing if the request is not
    /// held to the limit.
    ///
    /// # Errors
    ///
    /// The status that answers a request whose key is missing or cannot be used.
    #[inline]
    pub(super) fn demand(
        &self,
        head: &Head<'_>,
        position: usize,
    ) -> Result<Option<Demand<Choice<'_>>>, StatusCode> {
        let Rule { limit, key: extractor, .. } = &self.rule;
        match extractor.extract(head) {
            Ok(Extracted::Key(key)) => {
                self.setup_check.look(limit, &**extractor, head);
                Ok(self.demand_by(head, key, position))
            }
            Ok(Extracted::Exempt) => Ok(None),
            Err(error) => self.demand_without_key(head, &error, position),
        }
    }

    #[cold]
    fn demand_without_key(
        &self,
        head: &Head<'_>,
        error: &KeyError,
        position: usize,
    ) -> Result<Option<Demand<Choice<'_>>>, StatusCode> {
        let Rule { limit, missing_key, .. } = &self.rule;
        let status = match missing_key {
            _ if !error.is_missing() => Some(StatusCode::BAD_REQUEST),
            MissingKey::Reject(status) => Some(*status),
            MissingKey::Exempt | MissingKey::Shared => None,
        };
        match status {
            // The request goes on.
            Some(status) if !self.rule.is_enforced_on_some() => {
                self.log.no_key(limit, error, None);
                self.log.no_key_in_shadow(limit, error, status);
            }
            status => self.log.no_key(limit, error, status),
        }
        match (status, missing_key) {
            (Some(status), _) => Err(status),
            (None, MissingKey::Shared) => Ok(self.demand_by(head, Key::GLOBAL, position)),
            (None, _) => Ok(None),
        }
    }

    #[inline]
    fn demand_by(&self, head: &Head<'_>, key: Key, rule: usize) -> Option<Demand<Choice<'_>>> {
        let limit = match &self.rule.chooser {
            None => LimitRef::OfRule(&self.rule.limit),
            Some(choose) => LimitRef::Chosen(choose(head)?),
        };
        let mut demand = Demand::new(Choice { limit, rule });
        demand.key = key;
        match &self.rule.cost {
            RequestCost::Request => {}
            RequestCost::Tokens(tokens) => demand.set_cost(*tokens),
            RequestCost::ByRequest(cost) => demand.set_cost(cost(head)),
        }
        Some(demand)
    }
}
