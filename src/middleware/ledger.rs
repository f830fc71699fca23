//! The tokens that a request has taken, until they are settled.

use std::fmt;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http::{Extensions, Method, Response, StatusCode};
use smallvec::SmallVec;

use super::meter::{ActualCost, Meter};
use super::plan::Plan;
use super::planned_rule::RuleLimit;
use super::response_head::ResponseHead;
use crate::algebra::Verdict;
use crate::fields::FieldSet;
use crate::limiter::{
    Asked, Asking, CompleteAnswer, Decided, DecisionSource, Demand, DetachOnDrop, Grant, Kept,
    Level, Limit, Permit, RateLimited, ReservedSlot, Settlement, Snapshot, lock,
};

/// The tokens of a request, kept if its response or its handler may have an effect on them.
pub(super) struct RequestLedger {
    pub(super) plan: Arc<Plan>,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    charges: Charges,
    /// How each limit stood that would have refused as a shadow without asking the store, with the position
    /// of its rule.
    unasked: Vec<(usize, Snapshot)>,
    /// The meter of the request; `None` once the request is over.
    meter: Option<Meter>,
    /// Whether something counts the request while it is in flight, or may once its store answers.
    is_counted: bool,
    /// Whether a response of success opens a connection: the method is CONNECT.
    connects: bool,
    /// Whether the service has responded, or has failed.
    is_over: bool,
    /// How the request has ended, once it is no longer in flight.
    ended: Option<Settlement>,
}

type Charges = SmallVec<[ChargeEntry; 1]>;

/// The ledger of a request that runs, and then of its response, which is dropped with it.
#[derive(Debug)]
pub(super) struct RunningLedger(pub(super) Arc<RequestLedger>);

impl RunningLedger {
    /// What the body of the response has to keep: a limit may count the request while it is in flight.
    pub(super) fn until_end(self) -> Option<Arc<Self>> {
        let is_counted = self.0.entries().is_counted;
        is_counted.then(|| Arc::new(self))
    }
}

impl Drop for RunningLedger {
    fn drop(&mut self) {
        let is_over = self.0.entries().is_over;
        match is_over {
            true => self.0.end(Settlement::Ended),
            // During a panic in `call`, the service has failed; the client has not disconnected.
            false if std::thread::panicking() => self.0.fail(),
            false => self.0.abandon(),
        }
    }
}

/// The tokens taken by one rule; none if a shadow would have refused.
struct ChargeEntry {
    grant: Grant,
    rule: usize,
    /// Whether the rule was a shadow for the request.
    is_shadow: bool,
    /// How the limit stood, if it would have refused as a shadow. The entry is kept since its bucket can
    /// be reset, and since its cost says which other shadows are settled.
    refused: Option<Box<Snapshot>>,
    /// What the response does to it, once there is one.
    effect: Kept,
    /// Whether it is still to be settled. Closing it comes before settling, so nothing is returned
    /// twice.
    is_open: bool,
    /// How the limit stands as far as the request itself has changed it, for the header fields.
    level: Level,
    /// Whether that has changed since the request was admitted.
    has_changed: bool,
}

impl RequestLedger {
    /// Makes the ledger of a request that was charged nothing.
    pub(super) fn new(plan: &Arc<Plan>) -> Self {
        Self { plan: Arc::clone(plan), entries: Mutex::default() }
    }

    /// Makes the ledger of a request that was granted these demands; `None` if the plan needs none.
    pub(super) fn from_outcome(
        plan: &Arc<Plan>,
        demands: &[Demand<RuleLimit<'_>>],
        outcome: &CompleteAnswer,
    ) -> Option<Arc<Self>> {
        (plan.tracks_charges || demands.iter().any(Demand::is_in_flight)).then(|| {
            let ledger = Self::new(plan);
            ledger.add(demands, outcome, false);
            Arc::new(ledger)
        })
    }

    /// A shadow rule that counts the request while it is in flight is decided while it runs.
    pub(super) fn expect_in_flight(&self) {
        self.entries().is_counted = true;
    }

    /// Adds the decision of a shadow rule.
    pub(super) fn add_shadow(&self, shadow: &Demand<RuleLimit<'static>>, outcome: &CompleteAnswer) {
        self.add(slice::from_ref(shadow), outcome, true);
        let ended = self.entries().ended;
        if let Some(settlement) = ended {
            // A store has answered after the response.
            self.end(settlement);
        }
    }

    /// Adds how the limits stand by which a shadow rule would have refused without asking the store.
    /// There is nothing to settle or to reset.
    pub(super) fn add_refusals(&self, rule: usize, error: &RateLimited) {
        let refused = error.snapshots().iter().map(|snapshot| (rule, snapshot.clone()));
        self.entries().unasked.extend(refused);
    }

    fn add(&self, demands: &[Demand<RuleLimit<'_>>], outcome: &CompleteAnswer, is_shadow: bool) {
        let is_refused = outcome.verdict() == Verdict::Refused;
        let owned = demands.iter().map(|demand| demand.with_limit(demand.limit.shared_limit()));
        let levels = outcome.levels(demands);
        let entries =
            outcome.grants(owned).zip(levels).map(|(grant, (demand, level))| ChargeEntry {
                grant,
                rule: demand.limit.rule,
                is_shadow,
                refused: is_refused.then(|| Box::new(Snapshot::new(demand.limit(), level))),
                effect: Kept::Unknown,
                is_open: !is_refused,
                level,
                has_changed: false,
            });
        let mut all = self.entries();
        all.charges.extend(entries);
        all.is_counted |= demands.iter().any(Demand::is_in_flight);
    }

    /// Called when the turn of the request has come. Notes which of its buckets were reset while it
    /// waited: the grants were made after those resets, so they can still be returned.
    pub(super) fn note_paid(&self, turn: &dyn ReservedSlot) {
        turn.note_paid(&mut self.entries().charges.iter_mut().map(|entry| &mut entry.grant));
    }

    /// Called when the turn of the request has come: from then on, its limits stand like this, in the
    /// order of its demands. Shadows have been added after these.
    pub(super) fn stand(&self, levels: &[Level]) {
        for (entry, level) in self.entries().charges.iter_mut().zip(levels) {
            entry.level = Level { cost: entry.level.cost, ..*level };
        }
    }

    /// The header fields of the response, if its request has changed how the limits stand since it was
    /// admitted.
    pub(super) fn changed_fields(&self) -> Option<FieldSet> {
        let Entries { charges, .. } = &*self.entries();
        let enforced = || charges.iter().filter(|entry| !entry.is_shadow);
        let members = enforced().map(|one| (one.grant.limit(), &one.grant.key, one.level));
        enforced().any(|entry| entry.has_changed).then(|| self.plan.fields_of(members))
    }

    /// WebSockets over HTTP/2 are opened by CONNECT (RFC 8441).
    pub(super) fn note_method(&self, method: &Method) {
        if method == Method::CONNECT {
            self.entries().connects = true;
        }
    }

    /// Adds a meter to the extensions of the request, if the layer settles.
    pub(super) fn open_meter(&self, extensions: &mut Extensions) {
        if self.plan.settings.settles {
            let meter = Meter::for_request(extensions);
            self.entries().meter = Some(meter);
        }
    }

    /// The request is no longer in flight: gives back what counts it while it is, or all if it is
    /// refunded. If it has ended before, it has ended as it did then.
    fn end(&self, settlement: Settlement) {
        // Before that, so that a shadow that is added in between ends by itself.
        let settlement = *self.entries().ended.get_or_insert(settlement);
        let refunds_all = matches!(settlement, Settlement::LateRefund);
        let ended = self.take(Kept::Tokens(0), |entry, _| {
            entry.is_open && (refunds_all || entry.grant.is_in_flight())
        });
        drop(ended.map(|permit| permit.settle_by(settlement)));
    }

    /// The service is done with the request. Returns the meter, which settles when it is dropped.
    fn take_meter(&self) -> Option<Meter> {
        let mut entries = self.entries();
        entries.is_over = true;
        entries.meter.take()
    }

    /// Applies the effects of the response: refunds, resets and settlement.
    pub(super) fn finish<R>(&self, response: &Response<R>) {
        let settles = self.plan.settings.settles;
        // Dropped at the end of this function, after the permits to settle were handed to it.
        let meter = self.take_meter();
        let count = meter.as_ref().and_then(Meter::leave);
        let metered = meter.as_ref().and_then(Meter::cost).cloned();
        let own: Option<&ActualCost> = response.extensions().get();
        let kept = match own.map_or(count, |own| own.known(settles)) {
            Some(tokens) => Kept::Tokens(tokens),
            None => Kept::Unknown,
        };
        let actual = own.or(metered.as_ref()).filter(|_| settles);
        // The rules call code of the user, which may use the ledger: it must not be locked
        // meanwhile.
        let rules: SmallVec<[usize; 4]> =
            self.entries().charges.iter().map(|entry| entry.rule).collect();
        let (status, connects) = (response.status(), self.entries().connects);
        if status == StatusCode::SWITCHING_PROTOCOLS || (connects && status.is_success()) {
            let Entries { charges, .. } = &*self.entries();
            let in_flight = charges.iter().filter(|entry| entry.grant.is_in_flight());
            in_flight.for_each(|one| self.plan.limiter.state.uses.note_upgrade(one.grant.limit()));
        }
        let head = ResponseHead::new(response);
        let effect = |rule| Some(self.plan.rule_at(rule)?.rule.effect(&head));
        let effects: SmallVec<[Kept; 4]> =
            rules.into_iter().map(|rule| effect(rule).unwrap_or(Kept::Unknown)).collect();
        for (entry, effect) in self.entries().charges.iter_mut().zip(effects) {
            entry.effect = effect;
        }
        // A task of the handler may settle some of them at any time by its `Admission`, so each is closed
        // before it is settled. All of this completes by itself, also if the futures are dropped.
        let refunds = self.take(Kept::Tokens(0), |entry, _| {
            // A request in flight ends later, with its body.
            entry.is_open && matches!(entry.effect, Kept::Tokens(_)) && !entry.grant.is_in_flight()
        });
        drop(refunds.map(|permit| permit.settle_by(Settlement::LateRefund)));
        let resets =
            self.take(Kept::Reset, |entry, _| entry.is_open && matches!(entry.effect, Kept::Reset));
        drop(resets.map(|permit| permit.reset_buckets()));
        let Some(actual) = actual else { return };
        let settled = self.take(kept, |entry, all| {
            entry.is_open && matches!(entry.effect, Kept::Unknown) && entry.is_settled_by_cost(all)
        });
        if let Some(permit) = settled {
            actual.settle(permit);
        }
    }

    /// Settles a request without a response by its meter, if its handler took that. Otherwise, the
    /// outcome of the work is unknown, and the tokens stay taken. It is no longer in flight.
    pub(super) fn fail(&self) {
        self.end(Settlement::Ended);
        // Dropped at the end of this function, the meter may settle, which locks its own state.
        let meter = self.take_meter();
        meter.as_ref().and_then(Meter::leave);
        if let Some(cost) = meter.as_ref().and_then(Meter::cost)
            && let Some(permit) = self.close_by_cost(None, Kept::Unknown)
        {
            cost.settle(permit);
        }
    }

    /// Settles a request that was dropped: by its meter, or by a full refund if the layer refunds
    /// dropped requests.
    fn abandon(&self) {
        // The refund closes the entries, so the meter settles nothing.
        if self.plan.settings.refunds_dropped {
            self.end(Settlement::LateRefund);
        }
        self.fail();
    }

    /// How the limits stood that are shadows for the request, or those that are enforced.
    pub(super) fn snapshots(&self, name: Option<&str>, in_shadow: bool) -> Vec<Snapshot> {
        let is_named = |limit: &Limit| name.is_none_or(|name| limit.name() == name);
        let entries = self.entries();
        let is_selected =
            |entry: &&ChargeEntry| entry.is_shadow == in_shadow && is_named(entry.grant.limit());
        let charged = entries.charges.iter().filter(is_selected);
        let charged = charged.map(|entry| {
            let refused = entry.refused.as_deref().cloned();
            (entry.rule, refused.unwrap_or_else(|| entry.grant.snapshot()))
        });
        let unasked = entries.unasked.iter();
        let unasked = unasked.filter(|(_, snapshot)| in_shadow && is_named(snapshot.limit()));
        let mut all: Vec<_> = charged.chain(unasked.cloned()).collect();
        all.sort_by_key(|(rule, _)| *rule);
        all.into_iter().map(|(_, snapshot)| snapshot).collect()
    }

    /// Takes this many more tokens from the enforced limits, from the shards that were charged
    /// before: from all of them or from none. `None` if none is selected.
    pub(super) async fn charge_more(
        &self,
        name: Option<&str>,
        tokens: u64,
    ) -> Result<Option<ExtraCharge<'_>>, RateLimited> {
        let (positions, mut demands) = {
            let Entries { charges, .. } = &*self.entries();
            let selected = charges.iter().enumerate();
            let selected =
                selected.filter(|(_, entry)| !entry.is_shadow && entry.is_paid_by(name, charges));
            let selected = selected.map(|(position, entry)| (position, entry.grant.more(tokens)));
            selected.unzip::<_, _, Vec<_>, Vec<_>>()
        };
        let Some(limit) = demands.first().map(|first| Arc::clone(&first.limit)) else {
            return Ok(None);
        };
        let limiter = &self.plan.limiter;
        let asking = Asking::take(DecisionSource::Handler, self.plan.settings.on_failure);
        // Until its answer is in the ledger, no settlement and no refund covers it.
        let asking = Asking { refunds_dropped: true, ..asking };
        let decided = match limiter.ask(&mut demands, asking) {
            Asked::Decided(decided) => decided,
            Asked::Pending(pending) => limiter.decided(&demands, asking, pending.await),
        };
        match decided {
            Decided::Admitted(answer) => {
                let grants = positions.into_iter().zip(answer.grants(demands.into_iter()));
                Ok(Some(ExtraCharge { ledger: self, grants: grants.collect() }))
            }
            Decided::Uncounted => Ok(None),
            denied => Err(denied.error(limiter, &demands, &limit, Duration::ZERO)),
        }
    }

    /// Takes out a permit for all that is still to be settled, of the limit with this name or of all.
    pub(super) fn close(&self, name: Option<&str>, kept: Kept) -> Option<Permit<'static>> {
        self.take(kept, |entry, _| entry.is_open && entry.is_of(name))
    }

    /// Like [`close`](Self::close), of the limits that a cost concerns.
    pub(super) fn close_by_cost(&self, name: Option<&str>, kept: Kept) -> Option<Permit<'static>> {
        self.take(kept, |entry, all| entry.is_open && entry.is_paid_by(name, all))
    }

    /// Like [`close`](Self::close), without shadows.
    pub(super) fn permit(&self, name: Option<&str>) -> Option<Permit<'static>> {
        let is_taken = |entry: &ChargeEntry| entry.is_open && !entry.is_shadow;
        self.take(Kept::Unknown, |entry, _| is_taken(entry) && entry.is_of(name))
    }

    /// Resets the buckets. Also returns the limit to name in an error.
    pub(super) fn reset(&self, name: Option<&str>) -> Option<(Limit, DetachOnDrop<()>)> {
        let permit = self.take(Kept::Reset, |entry, _| entry.is_of(name))?;
        Some((permit.limit().clone(), permit.reset_buckets()))
    }

    fn take(
        &self,
        kept: Kept,
        is_taken: impl Fn(&ChargeEntry, &[ChargeEntry]) -> bool,
    ) -> Option<Permit<'static>> {
        let mut entries = self.entries();
        let charges = &mut entries.charges;
        let selected: SmallVec<[bool; 4]> =
            charges.iter().map(|entry| is_taken(entry, charges)).collect();
        let taken = charges.iter_mut().zip(selected).filter(|&(_, taken)| taken);
        let taken = taken.map(|(entry, _)| entry.close(kept)).collect();
        drop(entries);
        self.permit_of(taken)
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        lock(&self.entries)
    }

    /// Settles these grants, which completes by itself.
    fn settle(&self, grants: Vec<Grant>, settlement: Settlement) {
        drop(self.permit_of(grants).map(|permit| permit.settle_by(settlement)));
    }

    fn permit_of(&self, grants: Vec<Grant>) -> Option<Permit<'static>> {
        let at = grants.first()?.at;
        Permit::of_grants(self.plan.limiter.clone(), grants.into_iter(), at)
    }
}

/// What a ledger was charged more, until that is known to stay. Dropped before, it is given back.
pub(super) struct ExtraCharge<'l> {
    ledger: &'l RequestLedger,
    /// Each with the position of its entry; none once the charge stays.
    grants: Vec<(usize, Grant)>,
}

impl ExtraCharge<'_> {
    /// Adds the charge to the entries, which are settled with it.
    pub(super) fn keep(mut self) {
        // It was not locked while the stores were asked. Entries are only added, so the positions
        // still hold. One that was closed in between has been settled without these tokens, which
        // stay taken, unless they count a request that is no longer in flight.
        let mut entries = self.ledger.entries();
        let mut ended = Vec::new();
        for (position, grant) in std::mem::take(&mut self.grants) {
            let Some(entry) = entries.charges.get_mut(position) else { continue };
            if grant.is_in_flight() && !entry.is_open {
                ended.push(grant);
                continue;
            }
            entry.grant.add(&grant);
            entry.level = entry.grant.level();
            entry.has_changed = true;
        }
        drop(entries);
        self.ledger.settle(ended, Settlement::Ended);
    }
}

impl Drop for ExtraCharge<'_> {
    fn drop(&mut self) {
        let grants = std::mem::take(&mut self.grants).into_iter().map(|(_, grant)| grant);
        self.ledger.settle(grants.collect(), Settlement::LateRefund);
    }
}

impl ChargeEntry {
    /// Whether a call about the limit with this name, or about all, may change what was taken. Without
    /// a name, it does not mean the limits that count the request while it is in flight.
    fn is_of(&self, name: Option<&str>) -> bool {
        name.map_or(!self.grant.is_in_flight(), |name| self.grant.limit().name() == name)
    }

    /// Whether a cost of that call concerns the entry.
    fn is_paid_by(&self, name: Option<&str>, charges: &[Self]) -> bool {
        self.is_of(name) && (name.is_some() || self.is_settled_by_cost(charges))
    }

    /// Whether a cost settles this entry. If any rule has an explicit cost, rules that only count
    /// requests are not settled. Shadows have no influence on enforced rules. Requests in flight are
    /// settled when they end, whatever they cost.
    fn is_settled_by_cost(&self, charges: &[Self]) -> bool {
        let mut others = charges.iter().filter(|other| self.is_shadow || !other.is_shadow);
        let has_cost = |entry: &Self| entry.grant.explicit_cost && !entry.grant.is_in_flight();
        !self.grant.is_in_flight() && (has_cost(self) || !others.any(has_cost))
    }

    /// Closes the entry and returns its grant, to be settled.
    fn close(&mut self, kept: Kept) -> Grant {
        self.level = self.level.kept(self.grant.limit(), kept);
        self.has_changed |= !matches!(kept, Kept::Unknown);
        // The entry itself stays: its bucket can still be reset, and its cost still says which
        // others are settled.
        self.is_open = false;
        self.grant.clone()
    }
}

impl fmt::Debug for RequestLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.entries();
        let mut map = f.debug_map();
        for ChargeEntry { grant, is_shadow, is_open, .. } in &entries.charges {
            map.entry(&grant.limit().name(), &format_args!("shadow {is_shadow}, open {is_open}"));
        }
        map.finish()
    }
}
