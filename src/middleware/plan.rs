//! The plan of a layer: its rules prepared for requests, and the path of decisions, chosen once.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use super::log::Log;
use super::lone_response::LoneResponse;
use super::on_refusal::RefusalWording;
use super::planned_rule::{PlannedRule, RuleLimit};
use super::rules::{LayerSettings, Rules};
use super::waiter_counter::WaiterCounter;
use crate::fields::{Dialects, FieldTemplate, LoneTemplate, PolicyText, RetryAfter};
use crate::key::Key;
use crate::limiter::{Demand, Limit, LimitUse, Mode, RateLimiter};

/// The state that all services of a layer share.
pub(super) struct Plan {
    pub(super) limiter: RateLimiter,
    pub(super) settings: LayerSettings,
    pub(super) path: DecisionPath,
    pub(super) first: PlannedRule,
    rest: Vec<PlannedRule>,
    /// Whether the tokens of a request can change after the decision, so that it needs a ledger.
    pub(super) tracks_charges: bool,
    /// The header fields that are the same for every request to which all rules apply.
    template: Option<Arc<FieldTemplate>>,
    /// The fields and the refusals of a layer with one limit.
    lone_template: Option<Arc<LoneResponse>>,
    /// Whether refusals have the wording of that template.
    uses_template_wording: bool,
    /// The number of rules in the template.
    advertised_count: usize,
    pub(super) waiters: WaiterCounter,
    /// How it uses its limits, once it has made a service.
    uses: OnceLock<Box<[Arc<LimitUse>]>>,
    pub(super) log: Log,
}

/// How the requests of a layer are decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecisionPath {
    /// By one rule that applies to all requests, is enforced on all keys and does not queue. With a
    /// memory store, such a decision needs no list.
    Lone,
    General,
}

impl DecisionPath {
    fn new(rules: &Rules) -> Self {
        let Rules { first, rest, settings } = rules;
        let is_lone = rest.is_empty() && first.options.is_none() && settings.queue.is_none();
        if is_lone { Self::Lone } else { Self::General }
    }
}

impl Plan {
    pub(super) fn new(limiter: RateLimiter, rules: &Rules) -> Self {
        let settings = rules.settings.clone();
        let depends = rules.iter().any(|rule| rule.depends_on_response());
        let mut plan = Self {
            limiter,
            path: DecisionPath::new(rules),
            first: PlannedRule::new(rules.first.clone()),
            rest: rules.rest.iter().cloned().map(PlannedRule::new).collect(),
            tracks_charges: depends || settings.extends_requests() || settings.refunds_dropped,
            template: None,
            lone_template: None,
            uses_template_wording: settings.style.retry_after == RetryAfter::Seconds
                && matches!(settings.style.on_refusal.wording(), RefusalWording::ProblemDetails),
            advertised_count: 0,
            waiters: WaiterCounter::default(),
            uses: OnceLock::new(),
            log: Log::default(),
            settings,
        };
        // Counted on the finished rules, since `advertised` reads them from the plan.
        plan.advertised_count = plan.advertised().count();
        let differs = rules.iter().any(|rule| rule.chooser.is_some())
            || plan.settings.partition_key.is_some();
        // One template for all requests holds only if each of them is told the same limits with the
        // same keys: no rule chooses its limit, and no partition key is shown.
        if !differs {
            let policies = plan.advertised().map(|rule| &rule.policy);
            let template = Arc::new(FieldTemplate::new(plan.dialects(), policies));
            let is_lone = plan.advertised_count == 1
                && (plan.dialects().is_draft_11_alone() || !plan.sends_fields());
            let lone = || {
                let limit = &plan.advertised().next().unwrap_or(&plan.first).rule.limit;
                Arc::new(plan.lone_response(limit, Arc::clone(&template)))
            };
            plan.lone_template = is_lone.then(lone);
            plan.template = Some(template);
        }
        plan
    }

    /// The layer makes a service. Before its first one, the log is told what is wrong with its
    /// numbers.
    pub(super) fn check_setup(&self) {
        if cfg!(feature = "tracing") && !self.limiter.is_off() {
            self.uses.get_or_init(|| self.iter().map(|planned| self.enter(planned)).collect());
        }
    }

    /// How far a request may go when a bucket is short.
    pub(super) fn mode(&self) -> Mode {
        self.settings.queue.map_or(Mode::Take, |queue| Mode::Reserve(queue.max_wait))
    }

    fn enter(&self, planned: &PlannedRule) -> Arc<LimitUse> {
        let rule = &planned.rule;
        let is_chosen = rule.chooser.is_some();
        let is_known = !is_chosen && rule.is_enforced_on_some();
        let cost = planned.fixed_cost().filter(|_| is_known);
        let limit = Limit::clone(&rule.limit);
        let new = LimitUse { limit, is_chosen, cost, mode: self.mode() };
        self.limiter.uses().enter(new, self.limiter.current_shared(&rule.limit))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &PlannedRule> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    pub(super) fn rule_at(&self, position: usize) -> Option<&PlannedRule> {
        match position.checked_sub(1) {
            None => Some(&self.first),
            Some(rest) => self.rest.get(rest),
        }
    }

    /// The position of the first rule with a limit of this name.
    pub(super) fn position(&self, name: &str) -> usize {
        self.iter().take_while(|planned| planned.rule.limit.name() != name).count()
    }

    /// The rules that header fields may show: those that are not pure shadows.
    fn advertised(&self) -> impl Iterator<Item = &PlannedRule> {
        self.iter().filter(|planned| planned.rule.is_enforced_on_some())
    }

    /// The first limit that header fields may show. It is named where one limit has to stand for
    /// all.
    pub(super) fn limit(&self) -> &Limit {
        &self.advertised().next().unwrap_or(&self.first).rule.limit
    }

    pub(super) const fn dialects(&self) -> Dialects {
        self.settings.style.dialects
    }

    /// Whether responses get header fields about limits.
    #[inline]
    pub(super) fn sends_fields(&self) -> bool {
        !self.dialects().is_none()
    }

    /// The template, if it shows the limits of these demands and no others.
    #[inline]
    pub(super) fn template_for(
        &self,
        demands: &[Demand<RuleLimit<'_>>],
    ) -> Option<&Arc<FieldTemplate>> {
        // Only if each advertised rule has a demand: the template has a member for each of them.
        // Numbers that were replaced are not in it.
        self.template.as_ref().filter(|_| {
            demands.len() == self.advertised_count
                && demands.iter().all(|demand| {
                    let planned = self.rule_at(demand.limit.rule);
                    planned.is_some_and(|planned| planned.has(demand.limit()))
                })
        })
    }

    /// The template of a layer with one limit, if there is one for these numbers.
    #[inline(always)]
    pub(super) fn lone_template_for(&self, limit: &Limit) -> Option<&Arc<LoneResponse>> {
        let lone = self.lone_template.as_ref()?;
        if lone.is_for(limit) {
            return Some(lone);
        }
        lone.replaced(limit, || {
            // Kept only for the numbers in force: these stay where they are as long as the limiter
            // lives, which the plan holds.
            let current = self.limiter.replacement(self.limit())?;
            let is_current = std::ptr::eq(Arc::as_ptr(current), limit);
            let policy = is_current.then(|| PolicyText::new(current))?;
            let fields = FieldTemplate::new(self.dialects(), std::iter::once(&policy));
            Some(self.lone_response(current, Arc::new(fields)))
        })
    }

    fn lone_response(&self, limit: &Arc<Limit>, fields: Arc<FieldTemplate>) -> LoneResponse {
        let template = LoneTemplate::new(limit, fields);
        LoneResponse::new(template, Arc::clone(limit))
    }

    /// The template of a layer with one limit, if it is for these numbers and its refusals have the
    /// configured wording.
    pub(super) fn refusal_template_for(&self, limit: &Limit) -> Option<&LoneTemplate> {
        let lone = self.lone_template_for(limit).filter(|_| self.uses_template_wording);
        lone.map(|lone| &lone.template)
    }

    /// The partition of a key in base64, if the fields show it.
    pub(super) fn partition_key_of(&self, key: &Key) -> Option<String> {
        self.settings.partition_key.as_ref()?.encode(key)
    }

    /// The text of a limit's policy, formatted now if no rule has exactly this limit.
    pub(super) fn policy(&self, limit: &Limit) -> Cow<'_, PolicyText> {
        let is_it = |planned: &&PlannedRule| {
            std::ptr::eq(&raw const *planned.rule.limit, limit) || *planned.rule.limit == *limit
        };
        match self.iter().find(is_it) {
            Some(planned) => Cow::Borrowed(&planned.policy),
            None => Cow::Owned(PolicyText::new(limit)),
        }
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("path", &self.path)
            .field("rules", &self.iter().map(|planned| &planned.rule).collect::<Vec<_>>())
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
