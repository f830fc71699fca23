//! A rule, made ready to be carried out: what it demands of a request.

use std::borrow::Borrow;
use std::sync::Arc;

use http::StatusCode;

use super::log::Log;
use super::missing_key::{MissingKey, NoKey};
use super::rule::{RequestCost, Rule};
use super::setup_check::SetupCheck;
use crate::fields::PolicyText;
use crate::key::{Extracted, Head, Key, KeyError};
use crate::limiter::{Demand, Limit};

/// A rule of a plan, with what is the same for all its requests.
pub(super) struct PlannedRule {
    pub(super) rule: Rule,
    pub(super) policy: PolicyText,
    pub(super) log: Log,
    /// Whether it tells requests apart by their keys.
    pub(super) is_keyed: bool,
    setup_check: SetupCheck,
}

/// The limit that a request is held to, and by which rule, counted from the first.
pub(super) struct Choice<'p> {
    pub(super) limit: LimitRef<'p>,
    pub(super) rule: usize,
}

/// The rule's limit, or the one that was chosen for a request.
pub(super) enum LimitRef<'p> {
    OfRule(&'p Arc<Limit>),
    Chosen(Arc<Limit>),
}

impl<'p> LimitRef<'p> {
    #[inline]
    pub(super) fn shared(&self) -> &Arc<Limit> {
        match self {
            Self::OfRule(limit) => limit,
            Self::Chosen(limit) => limit,
        }
    }

    /// What is demanded of it by the rule at this position.
    pub(super) fn demand(self, key: Key, cost: Option<u64>, rule: usize) -> Demand<Choice<'p>> {
        let mut demand = Demand::new(Choice { limit: self, rule });
        demand.key = key;
        if let Some(tokens) = cost {
            demand.set_cost(tokens);
        }
        demand
    }
}

impl Choice<'_> {
    pub(super) fn shared_limit(&self) -> Arc<Limit> {
        Arc::clone(self.limit.shared())
    }

    /// The same for answers that come later than the plan is at hand.
    pub(super) fn to_static(&self) -> Choice<'static> {
        Choice { limit: LimitRef::Chosen(self.shared_limit()), rule: self.rule }
    }
}

impl Borrow<Limit> for Choice<'_> {
    fn borrow(&self) -> &Limit {
        self.limit.shared()
    }
}

impl PlannedRule {
    pub(super) fn new(rule: Rule) -> Self {
        Self {
            policy: PolicyText::new(&rule.limit),
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
    /// The answer to a request whose key is missing or cannot be used.
    pub(super) fn demand(
        &self,
        head: &Head<'_>,
        position: usize,
    ) -> Result<Option<Demand<Choice<'_>>>, NoKey> {
        match self.extract(head) {
            Ok(Extracted::Key(key)) => Ok(self.demand_by(head, key, position)),
            keyless => self.demand_without_key(head, keyless, position),
        }
    }

    /// Whose bucket pays for a request.
    #[inline(always)]
    pub(super) fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
        let Rule { limit, key: extractor, .. } = &self.rule;
        let extracted = extractor.extract(head);
        if let Ok(Extracted::Key(_)) = extracted {
            self.setup_check.look(limit, &**extractor, head);
        }
        extracted
    }

    /// As [`demand`](Self::demand), where there is no key.
    ///
    /// # Errors
    ///
    /// As [`demand`](Self::demand).
    #[cold]
    pub(super) fn demand_without_key(
        &self,
        head: &Head<'_>,
        extracted: Result<Extracted, KeyError>,
        position: usize,
    ) -> Result<Option<Demand<Choice<'_>>>, NoKey> {
        let error = match &extracted {
            Ok(_) => return Ok(None),
            Err(error) => error,
        };
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
            (Some(status), _) => Err(NoKey::new(status, error)),
            (None, MissingKey::Shared) => Ok(self.demand_by(head, Key::GLOBAL, position)),
            (None, _) => Ok(None),
        }
    }

    /// As [`demand`](Self::demand), with this key.
    fn demand_by(&self, head: &Head<'_>, key: Key, rule: usize) -> Option<Demand<Choice<'_>>> {
        Some(self.choose(head)?.demand(key, self.cost(head), rule))
    }

    /// The limit that a request is held to.
    #[inline(always)]
    pub(super) fn choose(&self, head: &Head<'_>) -> Option<LimitRef<'_>> {
        Some(match &self.rule.chooser {
            None => LimitRef::OfRule(&self.rule.limit),
            Some(choose) => LimitRef::Chosen(choose(head)?),
        })
    }

    /// What a request costs; `None` if no cost was set.
    #[inline(always)]
    pub(super) fn cost(&self, head: &Head<'_>) -> Option<u64> {
        match &self.rule.cost {
            RequestCost::Request => None,
            RequestCost::Tokens(tokens) => Some(*tokens),
            RequestCost::ByRequest(cost) => Some(cost(head)),
        }
    }
}
