//! Mistakes that show only where limits are used, told once for each limit; none without the feature
//! `tracing`.

#![cfg_attr(not(feature = "tracing"), allow(unused_variables))]

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use smallvec::SmallVec;

use super::Limit;
use super::demand::Mode;
use super::lock::lock;
use super::name_table::NameTable;
use super::rate_limited::RateLimited;
use super::too_large::explain_cost;
use crate::algebra::{Terms, Tokens};
use crate::backend::{Adjustment, Applied};

/// How a rule of a layer uses its limit.
#[derive(Debug)]
pub(crate) struct LimitUse {
    pub(crate) limit: Limit,
    /// Whether the rule chooses the limit of each request, and so its numbers.
    pub(crate) is_chosen: bool,
    /// What each request costs, if the rule is enforced and that is known before a request.
    pub(crate) cost: Option<u64>,
    pub(crate) mode: Mode,
}

/// What the layers and the calls of a limiter make of its limits.
///
/// Locked when a layer makes its first service and when numbers are replaced. No decision depends on
/// it.
#[derive(Default)]
pub(crate) struct LimitUses {
    uses: Mutex<UsesByName>,
    /// The limits whose refusals are counted, and begin to count again with a reset; also by a limiter for
    /// a transaction of their database.
    counted: Arc<NameTable<()>>,
    /// The limits in flight of which something gives tokens back.
    ends: NameTable<()>,
    /// The same of a limiter and of those that are made of it for other stores, such as for each
    /// transaction of a database.
    logged: Arc<LoggedMistakes>,
}

/// Of which limits a mistake was logged, once for each. A flood of requests that cost too much takes no
/// lock here.
#[derive(Default)]
struct LoggedMistakes {
    different_numbers: NameTable<AtomicBool>,
    /// Each request of a layer, or even one of a single token, costs more than the limit can grant.
    refuses_all: NameTable<AtomicBool>,
    /// A request does, which others may not.
    large_cost: NameTable<AtomicBool>,
    debt_cut: NameTable<AtomicBool>,
    never_ends: NameTable<AtomicBool>,
    upgraded: NameTable<AtomicBool>,
    never_chosen: NameTable<AtomicBool>,
    /// A rule was given a key, and then another one.
    replaced_key: NameTable<AtomicBool>,
}

/// The uses of layers that still exist, by the names of their limits. Layers that use a limit alike
/// share one, so a layer is compared with few others, however many there are.
#[derive(Default)]
struct UsesByName {
    uses: HashMap<Box<str>, SmallVec<[Weak<LimitUse>; 1]>>,
    /// How many names there may be before those without a layer are dropped.
    max_names: usize,
}

/// How many mistakes of each kind are logged at most. A service that makes limits of more names fills
/// neither the memory nor the log.
const MAX_LOGGED: usize = 100;

/// How many different uses of one name are known at most. A service whose layers differ in more is
/// told of the first.
const MAX_USES: usize = 16;

/// Of how many limits something is known. What is said of `counted` and `ends` does not hold for others.
const MAX_KNOWN: usize = 1 << 16;

/// Names of layers that are gone are dropped once there are so many, and then at each doubling.
const FEW_NAMES: usize = 64;

impl LimitUse {
    /// Why a limit with these numbers refuses each request; `None` if it does not.
    fn refuses_all(&self, numbers: &Limit) -> Option<String> {
        explain_cost(numbers, self.cost?, self.mode.terms(numbers))
    }

    fn differs_in_numbers(&self, other: &Self) -> bool {
        !self.is_chosen && !other.is_chosen && !self.limit.counts_like(&other.limit)
    }

    fn is_like(&self, other: &Self) -> bool {
        let terms = |one: &Self| (one.mode.terms(&one.limit), one.is_chosen, one.cost);
        self.limit == other.limit && terms(self) == terms(other)
    }
}

/// The limits with a mistake.
impl NameTable<AtomicBool> {
    /// Whether this is logged for the first time.
    fn is_first(&self, limit: &str) -> bool {
        let logged = self.get_or_add(limit, MAX_LOGGED, AtomicBool::default);
        // Read first: most of the time, it is logged. Relaxed, as nothing else depends on it.
        let is_new = |logged: &AtomicBool| !logged.load(Ordering::Relaxed);
        logged.is_some_and(|logged| is_new(logged) && !logged.swap(true, Ordering::Relaxed))
    }

    /// Warns of a limit for the first time.
    fn warn(&self, limit: &str, warning: &str) {
        #[cfg(feature = "tracing")]
        if self.is_first(limit) {
            tracing::warn!(limit, warning, "possible misconfiguration (logged once)");
        }
    }

    fn has(&self, limit: &str) -> bool {
        self.get(limit).is_some_and(|logged| logged.load(Ordering::Relaxed))
    }

    fn forget(&self, limit: &str) {
        if let Some(logged) = self.get(limit) {
            logged.store(false, Ordering::Relaxed);
        }
    }
}

impl UsesByName {
    /// Adds a use, or finds the one that it is like. Also returns the limit of another layer that
    /// has other numbers, if that was not known.
    fn enter(&mut self, new: LimitUse) -> (Arc<LimitUse>, Option<Limit>) {
        if self.uses.len() >= self.max_names {
            self.uses.retain(|_, uses| uses.iter().any(|one| one.strong_count() > 0));
            self.max_names = self.uses.len().saturating_mul(2).max(FEW_NAMES);
        }
        let uses = self.uses.entry(new.limit.name().into()).or_default();
        // A layer that is gone was perhaps replaced by this one.
        uses.retain(|one| one.strong_count() > 0);
        let others: SmallVec<[Arc<LimitUse>; 1]> = uses.iter().filter_map(Weak::upgrade).collect();
        if let Some(known) = others.iter().find(|known| known.is_like(&new)) {
            return (Arc::clone(known), None);
        }
        let differing = others.iter().find(|other| other.differs_in_numbers(&new));
        let (differing, new) = (differing.map(|other| other.limit.clone()), Arc::new(new));
        if uses.len() < MAX_USES {
            uses.push(Arc::downgrade(&new));
        }
        (new, differing)
    }
}

impl LimitUses {
    /// That of the same limits in another store. What was logged is not logged again.
    pub(super) fn elsewhere(&self) -> Self {
        let (counted, logged) = (Arc::clone(&self.counted), Arc::clone(&self.logged));
        Self { counted, logged, ..Self::default() }
    }

    /// A layer uses a limit so, and `current` are the numbers in force. Warns if another layer has
    /// other numbers under the same name, and if all requests are refused. The layer keeps what is
    /// returned for as long as it exists.
    pub(crate) fn enter(&self, new: LimitUse, current: &Limit) -> Arc<LimitUse> {
        let (entered, differing) = lock(&self.uses).enter(new);
        #[cfg(feature = "tracing")]
        if let Some(other) = differing
            && self.logged.different_numbers.is_first(entered.limit.name())
        {
            let warning = "this limit has other numbers in another layer, and both share its \
                           buckets: a client that one layer refuses may be admitted by the other, \
                           and sees two policies of one name (use one `Limit` in both layers, or \
                           rename one; for plans of clients, use `limit_with` in each layer; if \
                           this layer replaces the other one, nothing is wrong)";
            tracing::warn!(
                limit = entered.limit.name(),
                numbers = %entered.limit.quota(),
                other = %other.quota(),
                warning,
                "possible misconfiguration (logged once)"
            );
        }
        if let Some(why) = entered.refuses_all(current) {
            self.log_refuses_all(current, &why);
        }
        entered
    }

    /// Notes that refusals of a limit are counted, so that a reset begins the count again.
    pub(crate) fn note_counted(&self, limit: &str) {
        self.counted.get_or_add(limit, MAX_KNOWN, || ());
    }

    pub(super) fn are_counted(&self, limit: &str) -> bool {
        self.counted.get(limit).is_some()
    }

    /// Notes that tokens of a limit in flight are given back.
    pub(crate) fn note_end(&self, limit: &Limit) {
        if limit.quota().is_in_flight() {
            self.ends.get_or_add(limit.name(), MAX_KNOWN, || ());
        }
    }

    /// Says of a limit in flight that lacks tokens if nothing has ever given tokens of it back. A bucket in
    /// debt is blocked, or an operator has penalized it.
    #[cfg(feature = "memory")]
    #[cold]
    pub(super) fn check_ends(&self, limit: &Limit, value: i64) {
        if limit.quota().is_in_flight()
            && (0..limit.bucket().capacity()).contains(&value)
            && self.ends.get(limit.name()).is_none()
        {
            let warning = "a limit that counts requests in flight refuses, and no permit of it was ever \
                           held as a guard or given back: a permit that is only dropped keeps its token \
                           for good (`let _in_flight = permit.in_flight();` while the work runs; if each \
                           permit is settled or refunded later, nothing is wrong)";
            self.logged.never_ends.warn(limit.name(), warning);
        }
    }

    /// Warns that a limit refuses each request of a layer, or of any call.
    pub(crate) fn log_refuses_all(&self, limit: &Limit, error: &dyn fmt::Display) {
        #[cfg(feature = "tracing")]
        if self.logged.refuses_all.is_first(limit.name()) {
            tracing::warn!(limit = limit.name(), %error, "every request is refused (logged once)");
        }
    }

    /// Warns of a request that costs more than its limit can ever grant, if it was denied for that.
    #[cold]
    pub(crate) fn note_unfit(&self, error: &RateLimited) {
        let Some((limit, terms)) = error.unfit() else { return };
        let refuses_all = limit.is_too_large(1, terms);
        if refuses_all {
            self.log_refuses_all(limit, error);
        }
        // Not beside a line about all requests: its layer has been told of.
        #[cfg(feature = "tracing")]
        if !refuses_all
            && !self.logged.refuses_all.has(limit.name())
            && self.logged.large_cost.is_first(limit.name())
        {
            let hint = "a request costs more than its limit can ever grant (logged once)";
            tracing::warn!(limit = limit.name(), %error, "{hint}");
        }
    }

    /// Other numbers have taken the place of those of a limit. Warns if all is refused by them.
    pub(super) fn check_numbers(&self, of: &Limit, numbers: &Limit) {
        if !cfg!(feature = "tracing") {
            return;
        }
        let users = lock(&self.uses).uses.get(of.name()).cloned().unwrap_or_default();
        let users: Vec<_> = users.iter().filter_map(Weak::upgrade).collect();
        let why = match &*users {
            // Used in calls alone, of which those of a limit without capacity are to reserve.
            [] if numbers.quota().get_capacity() > 0 => explain_cost(numbers, 1, Terms::AT_ONCE),
            users => {
                let mut of_limit = users.iter().filter(|user| user.limit == *of);
                of_limit.find_map(|user| user.refuses_all(numbers))
            }
        };
        match why {
            Some(why) => self.log_refuses_all(numbers, &why),
            // The next numbers that refuse all are another mistake.
            None => self.logged.refuses_all.forget(of.name()),
        }
    }

    /// Warns of each bucket that owes less than these adjustments took, as no more can be counted.
    pub(super) fn note_debts<'a>(
        &self,
        adjustments: impl Iterator<Item = Adjustment<'a>>,
        applied: &Applied,
    ) {
        for (one, reading) in adjustments.zip(applied.readings()) {
            let least = one.bucket().min_value();
            if one.change().returns_at_most() < 0 && reading.state().value <= least {
                self.log_debt_cut(one.id().limit(), one.bucket().tokens(least));
            }
        }
    }

    #[cold]
    fn log_debt_cut(&self, limit: &str, left: Tokens) {
        #[cfg(feature = "tracing")]
        if self.logged.debt_cut.is_first(limit) {
            let warning = "a settlement or a penalty took more than the bucket can owe, so the \
                           rest is never paid (set `max_reserved` of the quota to the deepest debt \
                           that clients should pay)";
            tracing::warn!(limit, %left, warning, "possible misconfiguration (logged once)");
        }
    }

    /// Warns of a connection that its layer no longer counts.
    #[cold]
    pub(crate) fn note_upgrade(&self, limit: &Limit) {
        let warning = "this limit counts requests in flight, and one of them has become a connection, \
                       such as a WebSocket, which is counted no longer (to count it until it is \
                       closed, move `permit.into_owned().in_flight()` of a call into its task; if \
                       only the handshake is meant, nothing is wrong)";
        self.logged.upgraded.warn(limit.name(), warning);
    }

    /// Warns that the function of a rule has chosen no limit for many requests.
    #[cold]
    pub(crate) fn note_never_chosen(&self, limit: &Limit) {
        let warning = "`limit_with` has chosen no limit for the first 1,000 requests, so none of them was \
                       limited (does the layer that inserts what it reads run before this one? return \
                       a limit for all others, as by `.unwrap_or(..)`; if they are meant to pass, \
                       nothing is wrong)";
        self.logged.never_chosen.warn(limit.name(), warning);
    }

    /// Warns of a rule with two keys, of which the first one has no effect.
    pub(crate) fn note_replaced_key(&self, limit: &Limit) {
        let warning = "a rule was given two keys, and only the last one counts (for a bucket of \
                       each combination, give both as one key: `.key((a, b))`; to limit by each, \
                       use a limit for each, in rules of one layer: `.and(Rule::new(&OTHER).key(b))`; \
                       if the last one is meant, nothing is wrong)";
        self.logged.replaced_key.warn(limit.name(), warning);
    }
}

impl fmt::Debug for LimitUses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitUses").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::{HOUR, Quota};

    fn limit(name: &str, rate: u64) -> Limit {
        Limit::try_new(name, Quota::try_token_bucket(rate, HOUR).unwrap()).unwrap()
    }

    fn enter(uses: &LimitUses, limit: Limit) -> Arc<LimitUse> {
        let current = limit.clone();
        uses.enter(LimitUse { limit, is_chosen: false, cost: Some(1), mode: Mode::Take }, &current)
    }

    /// The others that a layer with a limit of this name would be compared with.
    fn compared(uses: &LimitUses, name: &str) -> usize {
        lock(&uses.uses).uses.get(name).map_or(0, SmallVec::len)
    }

    /// A server that makes a layer for each connection, or for each of its tenants.
    #[test]
    fn a_layer_is_compared_with_few_others_however_many_there_are() {
        let uses = LimitUses::default();
        let mut layers = Vec::new();
        for nth in 1..=10_000 {
            layers.push(enter(&uses, limit("alike", 1)));
            layers.push(enter(&uses, limit("differing", nth)));
            layers.push(enter(&uses, limit(&format!("tenant {nth}"), 1)));
            assert_eq!(compared(&uses, "alike"), 1);
            assert!(compared(&uses, "differing") <= MAX_USES);
        }
        assert!(Arc::ptr_eq(&layers[0], &layers[3]), "layers that are alike share their use");
    }

    #[test]
    fn layers_that_come_and_go_leave_nothing_behind() {
        let uses = LimitUses::default();
        for nth in 1..=10_000 {
            drop(enter(&uses, limit("alike", nth)));
            drop(enter(&uses, limit(&format!("tenant {nth}"), 1)));
            assert!(compared(&uses, "alike") <= 1);
            assert!(lock(&uses.uses).uses.len() <= FEW_NAMES);
        }
    }
}
