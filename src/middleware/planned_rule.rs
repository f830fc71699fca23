//! A rule prepared for requests: computes what the rule demands of each.

#![cfg_attr(not(feature = "memory"), allow(dead_code, reason = "used for one bucket in memory"))]

use std::borrow::{Borrow, Cow};
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use smallvec::SmallVec;

use super::log::{Log, log_no_key_in_shadow};
use super::rule::{MissingKey, Rule};
use super::setup_check::SetupCheck;
use crate::algebra::{Terms, Units};
use crate::fields::{KeptPolicy, PolicyText, SOON};
use crate::key::{Extracted, Head, Key, KeyError, empty_key};
use crate::limiter::units_of;
use crate::limiter::{Demand, Limit, RateLimiter};

/// A rule of a plan, with the state that all its requests share.
// In the order in which requests read it.
#[repr(C)]
pub(super) struct PlannedRule {
    /// What each request takes of one bucket, if that is the same for all.
    pub(super) units: Option<Units>,
    /// The text of its limit, if that is the only one that responses tell, and they tell it in draft 11
    /// or in no fields.
    pub(super) kept: Option<&'static KeptPolicy>,
    setup_check: SetupCheck,
    pub(super) rule: Rule,
    pub(super) policy: PolicyText,
    log: Log,
}

/// The limit of a request, and the position of its rule.
pub(super) struct RuleLimit<'p> {
    pub(super) limit: LimitRef<'p>,
    pub(super) rule: usize,
}

/// The rule's limit, the one that was chosen for a request, or the one that stands in their place.
pub(super) type LimitRef<'p> = Cow<'p, Arc<Limit>>;

/// What the rules demand for a request; most layers have one rule.
pub(super) type RuleDemands<'p> = SmallVec<[Demand<RuleLimit<'p>>; 1]>;

/// What a rule in shadow mode demands for a request.
pub(super) type Shadow = Demand<RuleLimit<'static>>;

/// What a rule demands for a request: nothing if that is not limited.
pub(super) type Demanded<'p> = Result<Option<Demand<RuleLimit<'p>>>, Failure>;

/// Makes the demand of the rule at this position.
pub(super) fn demand(
    limit: LimitRef<'_>,
    key: Key,
    cost: Option<u64>,
    rule: usize,
) -> Demand<RuleLimit<'_>> {
    let mut demand = Demand::new(RuleLimit { limit, rule });
    demand.key = key;
    if let Some(tokens) = cost {
        demand.set_cost(tokens);
    }
    demand
}

impl RuleLimit<'_> {
    pub(super) fn shared_limit(&self) -> Arc<Limit> {
        Arc::clone(&self.limit)
    }

    /// The same without a lifetime, for answers that come later.
    pub(super) fn to_static(&self) -> RuleLimit<'static> {
        RuleLimit { limit: Cow::Owned(self.shared_limit()), rule: self.rule }
    }
}

impl Borrow<Limit> for RuleLimit<'_> {
    fn borrow(&self) -> &Limit {
        &self.limit
    }
}

/// The same demands without a lifetime, for an answer that comes later.
pub(super) fn to_static(demands: &[Demand<RuleLimit<'_>>]) -> RuleDemands<'static> {
    demands.iter().map(|demand| demand.with_limit(demand.limit.to_static())).collect()
}

impl PlannedRule {
    pub(super) fn new(rule: Rule) -> Self {
        Self {
            policy: PolicyText::new(&rule.limit),
            units: fixed_units(&rule),
            kept: None,
            rule,
            log: Log::default(),
            setup_check: SetupCheck::default(),
        }
    }

    /// Makes the demand for a request with this key, as the rule at this position.
    ///
    /// # Errors
    ///
    /// The answer to a request if its key is missing or cannot be used.
    pub(super) fn demand<'p>(
        &'p self,
        limiter: &'p RateLimiter,
        head: &Head<'_>,
        extracted: Result<Extracted, KeyError>,
        position: usize,
    ) -> Demanded<'p> {
        let Some(key) = self.key(head, extracted)? else { return Ok(None) };
        let Some(limit) = self.choose(limiter, head) else { return Ok(None) };
        Ok(Some(demand(limit, key, self.cost(head), position)))
    }

    /// Extracts the key of a request, and looks for signs of a misconfiguration.
    #[inline(always)]
    pub(super) fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
        let Rule { limit, key: extractor, .. } = &self.rule;
        let extracted = extractor.extract(head);
        // A request without a key is checked in `key_in_place`, unless it is logged there anyway.
        if let Ok(Extracted::Key(key)) = &extracted {
            if key.is_empty() {
                return Err(empty_key());
            }
            self.setup_check.check(limit, &**extractor, head);
        }
        extracted
    }

    /// The key of a request; `None` if it is not limited.
    #[inline]
    pub(super) fn key(
        &self,
        head: &Head<'_>,
        extracted: Result<Extracted, KeyError>,
    ) -> Result<Option<Key>, Failure> {
        match extracted {
            Ok(Extracted::Key(key)) => Ok(Some(key)),
            Ok(Extracted::Exempt) => Ok(None),
            Err(error) => self.key_in_place(head, &error),
        }
    }

    /// As [`key`](Self::key), for a request that has none.
    #[cold]
    fn key_in_place(&self, head: &Head<'_>, error: &KeyError) -> Result<Option<Key>, Failure> {
        let Rule { limit, missing_key, key, .. } = &self.rule;
        let chosen = missing_key.filter(|_| error.is_missing());
        let status = match chosen {
            None => Some(error.status()),
            Some(MissingKey::Reject(status)) => Some(status),
            Some(MissingKey::Exempt | MissingKey::Shared) => None,
        };
        // A request that is answered with an error of the server is logged below.
        let fails = status.is_some_and(|status| status.is_server_error());
        if error.is_missing() && !(fails && self.rule.is_enforced_on_some()) {
            self.setup_check.check(limit, &**key, head);
        }
        match status {
            // The rule is a pure shadow, so the request passes.
            Some(status) if !self.rule.is_enforced_on_some() => {
                self.log.no_key(limit, error, None, true);
                log_no_key_in_shadow(limit, error, status);
            }
            status => self.log.no_key(limit, error, status, chosen.is_some()),
        }
        match (status, chosen) {
            (Some(status), _) => Err(Failure::without_key(status, error, chosen.is_some())),
            (None, Some(MissingKey::Shared)) => Ok(Some(Key::GLOBAL)),
            (None, _) => Ok(None),
        }
    }

    /// The limit of a request, with the numbers in force; `None` if the request is not limited.
    #[inline(always)]
    pub(super) fn choose<'p>(
        &'p self,
        limiter: &'p RateLimiter,
        head: &Head<'_>,
    ) -> Option<LimitRef<'p>> {
        Some(match &self.rule.chooser {
            None => Cow::Borrowed(limiter.state.replacements.shared(&self.rule.limit)),
            Some(choose) => {
                let chosen = choose(head);
                if self.log.never_chooses(chosen.is_some()) {
                    limiter.state.uses.note_never_chosen(&self.rule.limit);
                }
                let chosen = chosen?;
                limiter.state.replacements.get(&chosen).map_or(Cow::Owned(chosen), Cow::Borrowed)
            }
        })
    }

    /// What a request costs; `None` if no cost was set.
    #[inline(always)]
    pub(super) fn cost(&self, head: &Head<'_>) -> Option<u64> {
        self.rule.cost_with.as_ref().map_or(self.rule.cost, |cost| Some(cost(head)))
    }
}

/// The units of one bucket that each request takes of this limit; `None` if a request may take others,
/// or if it takes them of two shards.
fn fixed_units(rule: &Rule) -> Option<Units> {
    let is_fixed = rule.chooser.is_none() && !rule.limit.is_in_shards();
    let cost = rule.fixed_cost().filter(|_| is_fixed)?;
    units_of(&rule.limit, cost, Terms::AT_ONCE).ok()
}

/// Nothing was decided about a request: its key is missing or cannot be used, the store failed, or the
/// limiter is drained.
pub(super) struct Failure {
    pub(super) status: StatusCode,
    /// After which time the client may retry, if the status asks it to.
    pub(super) after: Duration,
    /// What the body says of it.
    pub(super) detail: Option<Cow<'static, str>>,
    /// The value of `WWW-Authenticate`.
    pub(super) challenge: Option<&'static str>,
}

impl Failure {
    pub(super) const fn unavailable(after: Duration) -> Self {
        let (status, detail, challenge) = (StatusCode::SERVICE_UNAVAILABLE, None, None);
        Self { status, after, detail, challenge }
    }

    /// Of a request without a usable key. `is_chosen`: the configuration says what becomes of one.
    fn without_key(status: StatusCode, error: &KeyError, is_chosen: bool) -> Self {
        // Most tests install no log. What was chosen for clients has the body of production.
        let is_for_clients = is_chosen && !status.is_server_error();
        let is_told = cfg!(debug_assertions) && error.is_missing() && !is_for_clients;
        let challenge = error.challenge().filter(|_| status == StatusCode::UNAUTHORIZED);
        Self { status, after: SOON, detail: is_told.then(|| error.message()), challenge }
    }
}
