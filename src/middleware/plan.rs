//! The plan of a layer: its rules prepared for requests.

#![cfg_attr(not(feature = "memory"), allow(dead_code, reason = "used for one bucket in memory"))]

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::planned_rule::{PlannedRule, RuleLimit};
use super::rule::Rule;
use super::settings::{LayerSettings, Rules};
use super::waiter_counter::WaiterCounter;
use crate::algebra::Units;
use crate::fields::{
    FieldSet, FieldSetBuilder, ForeignFields, KeptPolicy, Member, PolicyText, RetryAfter, Wording,
};
use crate::key::Key;
use crate::limiter::{CompleteAnswer, Demand, Level, Limit, LimitUse, Mode, RateLimiter};

/// The state that all services of a layer share.
// What each request reads comes first, in as few cache lines as it takes.
#[repr(C)]
pub(crate) struct Plan {
    pub(super) limiter: RateLimiter,
    /// Whether there is one rule that applies to all requests, is enforced on all keys and does not
    /// queue. With a memory store, its decision needs no list.
    pub(super) is_lone: bool,
    /// Whether the limiter has observers.
    pub(super) is_observed: bool,
    /// Whether the layer may return tokens before time brings them.
    gives_back: bool,
    /// Whether the tokens of a request can change after the decision, so that it needs a ledger.
    pub(super) tracks_charges: bool,
    /// Whether a rule blocks keys after refusals.
    pub(super) counts_refusals: bool,
    /// Whether responses get header fields about limits.
    pub(super) sends_fields: bool,
    /// Whether refusals have the wording of a [`KeptPolicy`].
    pub(super) uses_kept_wording: bool,
    pub(super) first: PlannedRule,
    rest: Vec<PlannedRule>,
    pub(super) settings: LayerSettings,
    /// The first rule with the numbers by which its limit, or the only one that responses tell, was
    /// replaced. There is room for some: further ones are looked up and formatted for each request.
    versions: [OnceLock<PlannedRule>; VERSIONS],
    /// Which of them is in force, as far as is known; see [`usual`](Self::usual).
    in_force: AtomicUsize,
    pub(super) waiters: Arc<WaiterCounter>,
    /// A clone for each request that is read on after an early answer.
    pub(super) read_on: Arc<()>,
    /// How it uses its limits, once it has made a service.
    uses: OnceLock<Box<[Arc<LimitUse>]>>,
    /// Whether a refusal is still to tell that no rule of the layer was given a key.
    pub(super) lacks_key: AtomicBool,
}

const VERSIONS: usize = 7;

impl Plan {
    pub(super) fn new(limiter: RateLimiter, rules: &Rules) -> Self {
        let settings = rules.settings.clone();
        let depends = rules.iter().any(Rule::depends_on_response);
        let gives_back =
            depends || settings.settles || settings.exposes || settings.refunds_dropped;
        for rule in rules.iter() {
            limiter.state.uses.note_end(&rule.limit);
            if rule.block_after.is_some() {
                limiter.state.uses.note_counted(rule.limit.name());
            }
        }
        let is_lone = rules.rest.is_empty() && rules.first.is_plain() && settings.queue.is_none();
        let mut plan = Self {
            is_lone,
            is_observed: limiter.state.observers.is_some(),
            limiter,
            gives_back,
            tracks_charges: gives_back || rules.iter().any(Rule::may_shadow_in_flight),
            counts_refusals: rules.iter().any(|rule| rule.block_after.is_some()),
            sends_fields: !settings.style.dialects.is_none()
                || settings.foreign_fields == ForeignFields::Remove,
            uses_kept_wording: settings.style.retry_after == RetryAfter::Seconds
                && settings.style.on_refusal.wording == Wording::ProblemDetails
                && settings.style.on_refusal.handler.is_none(),
            first: PlannedRule::new(rules.first.clone()),
            rest: rules.rest.iter().cloned().map(PlannedRule::new).collect(),
            settings,
            versions: [const { OnceLock::new() }; VERSIONS],
            in_force: AtomicUsize::new(0),
            waiters: Arc::default(),
            read_on: Arc::default(),
            uses: OnceLock::new(),
            lacks_key: AtomicBool::new(!rules.iter().any(|rule| rule.is_key_set)),
        };
        // One text for all requests holds only if each of them is told the same limit with the same
        // key: no rule chooses its limit, and no partition key is shown.
        let differs = rules.iter().any(|rule| rule.chooser.is_some())
            || plan.settings.partition_key.is_some()
            || plan.settings.foreign_fields != ForeignFields::Keep;
        let is_told_alone = plan.advertised().count() == 1
            && (plan.settings.style.dialects.is_draft_11_alone() || !plan.sends_fields);
        if is_told_alone && !differs {
            let mut all = std::iter::once(&mut plan.first).chain(&mut plan.rest);
            if let Some(told) = all.find(|planned| planned.rule.is_enforced_on_some()) {
                told.kept = KeptPolicy::of(&told.rule.limit);
            }
        }
        plan
    }

    /// The rules and settings that it was made of.
    pub(super) fn rules(&self) -> Rules {
        let (first, rest) = (self.first.rule.clone(), &self.rest);
        let rest = rest.iter().map(|planned| planned.rule.clone()).collect();
        Rules { first, rest, settings: self.settings.clone() }
    }

    /// The layer makes a service. Before its first one, the log is told what is wrong with its
    /// numbers.
    pub(super) fn check_setup(&self) {
        if cfg!(feature = "tracing") && !self.limiter.state.is_off {
            self.uses.get_or_init(|| self.iter().map(|planned| self.enter(planned)).collect());
        }
    }

    /// How far a request may go when a bucket is short; `in_flight`: one of its limits counts requests
    /// in flight.
    pub(super) fn mode(&self, in_flight: bool) -> Mode {
        // In other stores, tokens that another process gives back move no waiter of this one forward.
        let gives_back = self.gives_back || (in_flight && self.limiter.has_lines());
        self.settings.queue.map_or(Mode::Take, |queue| queue.mode(gives_back))
    }

    fn enter(&self, planned: &PlannedRule) -> Arc<LimitUse> {
        let rule = &planned.rule;
        if rule.is_key_replaced {
            self.limiter.state.uses.note_replaced_key(&rule.limit);
        }
        if let Some(why) = self.limiter.misfit(&rule.limit).filter(|_| rule.is_enforced_on_some()) {
            self.limiter.state.uses.log_refuses_all(&rule.limit, &why);
        }
        let is_chosen = rule.chooser.is_some();
        let is_known = !is_chosen && rule.is_enforced_on_some();
        let cost = rule.fixed_cost().filter(|_| is_known);
        let limit = Limit::clone(&rule.limit);
        let mode = self.mode(limit.quota().is_in_flight());
        let new = LimitUse { limit, is_chosen, cost, mode };
        self.limiter.state.uses.enter(new, self.limiter.state.replacements.shared(&rule.limit))
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

    /// The rules that header fields may show: those that are not pure shadows.
    pub(super) fn advertised(&self) -> impl Iterator<Item = &PlannedRule> {
        self.iter().filter(|planned| planned.rule.is_enforced_on_some())
    }

    /// The first limit that header fields may show. It is named where one limit has to stand for
    /// all.
    pub(super) fn limit(&self) -> &Limit {
        &self.advertised().next().unwrap_or(&self.first).rule.limit
    }

    /// The limit of the first rule with the numbers in force, and what each request takes of its
    /// bucket; `None` if that has to be found out for each request.
    #[inline(always)]
    pub(super) fn usual(&self) -> Option<(&Arc<Limit>, Units)> {
        match self.limiter.state.replacements.count() {
            0 => Some((&self.first.rule.limit, self.first.units?)),
            count => self.usual_version(count),
        }
    }

    /// As [`usual`](Self::usual), for a limiter that has replaced something so often.
    #[inline(never)]
    fn usual_version(&self, count: usize) -> Option<(&Arc<Limit>, Units)> {
        // The count that was current when the version was looked up, and its place, in one number.
        let known = self.in_force.load(Ordering::Acquire);
        match known / (VERSIONS + 1) == count {
            true => self.at_place(known % (VERSIONS + 1)),
            false => self.find_version(count),
        }
    }

    #[inline(always)]
    fn at_place(&self, place: usize) -> Option<(&Arc<Limit>, Units)> {
        let planned = match place.checked_sub(1) {
            None => &self.first,
            Some(version) => self.versions.get(version)?.get()?,
        };
        Some((&planned.rule.limit, planned.units?))
    }

    // A function of its own: where the version is known, no register is saved.
    #[cold]
    #[inline(never)]
    fn find_version(&self, count: usize) -> Option<(&Arc<Limit>, Units)> {
        let own = &self.first.rule.limit;
        let current = self.limiter.state.replacements.shared(own);
        let place = if Arc::ptr_eq(current, own) { 0 } else { self.place_of(current)? };
        let found = count.checked_mul(VERSIONS + 1)?.checked_add(place)?;
        self.in_force.store(found, Ordering::Release);
        self.at_place(place)
    }

    /// The text of the only limit of the layer, with the numbers of this one; `None` if responses need
    /// more.
    #[inline(always)]
    pub(super) fn kept_policy(&self, limit: &Limit) -> Option<&'static KeptPolicy> {
        let PlannedRule { rule, kept, .. } = &self.first;
        match std::ptr::eq(&raw const *rule.limit, limit) {
            true => *kept,
            false => self.other_policy(limit),
        }
    }

    /// As [`kept_policy`](Self::kept_policy), for another limit than that of the first rule.
    #[inline(never)]
    fn other_policy(&self, limit: &Limit) -> Option<&'static KeptPolicy> {
        let is = |known: &Arc<Limit>| std::ptr::eq(Arc::as_ptr(known), limit);
        let mut versions = self.versions.iter().map_while(OnceLock::get);
        if let Some(version) = versions.find(|version| is(&version.rule.limit)) {
            return version.kept;
        }
        let told = self.iter().find(|planned| planned.kept.is_some())?;
        if is(&told.rule.limit) {
            return told.kept;
        }
        // Only numbers in force are kept: a limit that is chosen for a request is not one of them.
        let current =
            self.limiter.state.replacements.get(&told.rule.limit).filter(|current| is(current))?;
        let place = self.place_of(current)?;
        self.versions.get(place.checked_sub(1)?)?.get()?.kept
    }

    /// The place of these numbers among the versions, counted from one. They are added if there is room.
    #[cold]
    fn place_of(&self, limit: &Arc<Limit>) -> Option<usize> {
        let place = self.versions.iter().position(|version| {
            // Another request may add one meanwhile, and then this one has the next place.
            Arc::ptr_eq(&version.get_or_init(|| self.version(limit)).rule.limit, limit)
        });
        place?.checked_add(1)
    }

    fn version(&self, limit: &Arc<Limit>) -> PlannedRule {
        let rule = Rule { limit: Arc::clone(limit), ..self.first.rule.clone() };
        let mut version = PlannedRule::new(rule);
        version.kept =
            self.iter().find_map(|planned| planned.kept).and_then(|_| KeptPolicy::of(limit));
        version
    }

    /// The fields of the response to a request with this outcome.
    pub(super) fn fields_by(
        &self,
        demands: &[Demand<RuleLimit<'_>>],
        outcome: &CompleteAnswer,
    ) -> FieldSet {
        let levels = outcome.levels(demands);
        self.fields_of(levels.map(|(demand, level)| (demand.limit(), &demand.key, level)))
    }

    /// The fields that show these limits, each with its key.
    pub(super) fn fields_of<'m>(
        &self,
        members: impl Iterator<Item = (&'m Limit, &'m Key, Level)>,
    ) -> FieldSet {
        let settings = &self.settings;
        let mut fields = FieldSetBuilder::new(settings.style.dialects, settings.foreign_fields);
        for (limit, key, level) in members {
            let partition_key = settings.partition_key.as_ref().and_then(|shown| shown.encode(key));
            let (policy, level) = (&self.policy(limit), &level);
            let partition_key = partition_key.as_deref();
            fields.push(Member { policy, limit, level, partition_key });
        }
        fields.build()
    }

    /// The text of a limit's policy, formatted now if no rule has exactly this limit.
    fn policy(&self, limit: &Limit) -> Cow<'_, PolicyText> {
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
        f.debug_tuple("Plan").field(&self.rules()).finish()
    }
}
