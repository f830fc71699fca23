//! Mistakes that show only where limits are used, told once for each limit; none without the feature
//! `tracing`.

#![cfg_attr(not(feature = "tracing"), allow(unused_variables))]

use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::Limit;
use super::rate_limited::RateLimited;
use super::too_large::explain_cost;
use crate::algebra::{Terms, Tokens};
#[cfg(feature = "memory")]
use crate::backend::Key;
use crate::backend::{Adjustment, Applied};
#[cfg(feature = "memory")]
use crate::clock::Timestamp;

/// A layer, as the limiter sees it.
pub(crate) trait LimitUser: Send + Sync {
    /// Looks more closely at the next requests: another place uses one of its limits.
    fn watch(&self);

    /// Why it refuses each request while `limit` has these numbers; `None` if it does not.
    fn refuses_all(&self, limit: &Limit, numbers: &Limit) -> Option<String>;
}

/// What the layers and the calls of a limiter make of its limits.
///
/// Locked when a layer makes its first service or numbers are replaced, for a few requests of layers
/// that share the name of a limit, by a call that finds its bucket stored for another quota, and by
/// one whose cost can never fit. No decision depends on it.
#[derive(Default)]
pub(crate) struct LimitUses {
    state: Mutex<LimitUsesState>,
    /// The same of a limiter and of those that are made of it for other stores, such as for each
    /// transaction of a database.
    logged: Arc<Mutex<LoggedMistakes>>,
}

/// Which mistakes were logged, and of which limit.
type LoggedMistakes = Vec<(LimitMistake, Box<str>)>;

#[derive(Default)]
struct LimitUsesState {
    /// In the order in which they came.
    uses: Vec<LimitUse>,
    #[cfg(feature = "memory")]
    converted: Option<ConvertedBucket>,
}

/// A limit in a rule of a layer.
struct LimitUse {
    limit: Limit,
    /// Whether the rule chooses the limit of each request, and so its numbers.
    is_chosen: bool,
    user: Weak<dyn LimitUser>,
}

/// A mistake that is logged once for each limit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LimitMistake {
    DifferentNumbers,
    PaidTwice,
    /// Each request of a layer, or even one of a single token, costs more than the limit can grant.
    RefusesAll,
    /// A request has, which others may not.
    LargeCost,
    DebtCut,
}

/// A bucket of which calls change the quota.
#[cfg(feature = "memory")]
struct ConvertedBucket {
    limit: Limit,
    key: Key,
    since: Timestamp,
    /// How often its quota was changed since then.
    changes: u32,
    /// How many changes of other buckets were seen meanwhile.
    others: u32,
}

/// How many mistakes of each kind are logged at most. A service that makes limits of more names fills
/// neither the memory nor the log.
const MAX_LOGGED: usize = 100;

/// A change of plan changes the quota of a bucket once. Three changes within a minute are there and
/// back again.
#[cfg(feature = "memory")]
const MAX_CHANGES: u32 = 3;
#[cfg(feature = "memory")]
const CHANGES_WITHIN: u64 = 60_000_000;

/// After so many changes of other buckets, another bucket is looked at: the client of this one may
/// not come back.
#[cfg(feature = "memory")]
const MAX_OTHERS: u32 = 100;

impl LimitUses {
    /// That of the same limits in another store. What was logged is not logged again.
    pub(super) fn elsewhere(&self) -> Self {
        Self { logged: Arc::clone(&self.logged), ..Self::default() }
    }

    /// A layer uses these limits; of each, whether its rule chooses the limit of each request.
    ///
    /// Layers that use one name are told to watch their requests.
    pub(crate) fn enter<'l>(
        &self,
        limits: impl Iterator<Item = (&'l Limit, bool)>,
        user: &Arc<dyn LimitUser>,
    ) {
        let mut neighbors = Vec::new();
        {
            let LimitUsesState { uses, .. } = &mut *self.state();
            // A layer that is gone was perhaps replaced by this one.
            uses.retain(|other| other.user.strong_count() > 0);
            for (limit, is_chosen) in limits {
                neighbors.extend(users_of(uses, limit.name()));
                let user = Arc::downgrade(user);
                uses.push(LimitUse { limit: limit.clone(), is_chosen, user });
            }
        }
        // Not under the lock: the last handle of a layer may be dropped here.
        if !neighbors.is_empty() {
            user.watch();
            neighbors.iter().for_each(|neighbor| neighbor.watch());
        }
    }

    /// Tells the other layers with limits of the same names to watch their requests.
    pub(crate) fn watch_neighbors(&self, user: &dyn LimitUser) {
        let neighbors: Vec<_> = {
            let LimitUsesState { uses, .. } = &*self.state();
            let own = uses.iter().filter(|own| own.is_of(user));
            own.flat_map(|own| users_of(uses, own.limit.name())).collect()
        };
        let others = neighbors.iter().filter(|other| !ptr::addr_eq(Arc::as_ptr(other), user));
        others.for_each(|other| other.watch());
    }

    /// Warns if an older layer that still exists has a limit of the same name with other numbers.
    pub(crate) fn compare_numbers(&self, user: &dyn LimitUser) {
        let mut differing = Vec::new();
        {
            let LimitUsesState { uses, .. } = &*self.state();
            for (index, own) in uses.iter().enumerate().filter(|(_, own)| own.is_of(user)) {
                let older = uses.iter().take(index).find(|older| {
                    older.user.strong_count() > 0
                        && !older.is_of(user)
                        && !older.is_chosen
                        && !own.is_chosen
                        && older.limit.differs_in_numbers(&own.limit)
                });
                differing.extend(older.map(|older| (older.limit.clone(), own.limit.clone())));
            }
        }
        for (older, own) in differing {
            self.log_different_numbers(&own, Some(&older));
        }
    }

    /// Warns that a request has paid this limit in two layers around each other.
    pub(crate) fn log_paid_twice(&self, limit: &Limit) {
        #[cfg(feature = "tracing")]
        if self.is_first(LimitMistake::PaidTwice, limit.name()) {
            let warning = "two layers around each other ask this limit for the same request, so each \
                           request pays twice and clients get half of the limit (in axum: put it \
                           on the router or on its routes, and not on both; if a route is to pay \
                           more, set the `cost` of its layer)";
            tracing::warn!(
                limit = limit.name(),
                warning,
                "possible misconfiguration (logged once)"
            );
        }
    }

    /// Warns that a limit refuses each request of a layer, or of any call.
    pub(crate) fn log_refuses_all(&self, limit: &Limit, error: &dyn fmt::Display) {
        #[cfg(feature = "tracing")]
        if self.is_first(LimitMistake::RefusesAll, limit.name()) {
            tracing::warn!(limit = limit.name(), %error, "every request is refused (logged once)");
        }
    }

    /// Warns of a request that costs more than its limit can ever grant, if it was denied for that.
    #[cold]
    pub(crate) fn note_unfit(&self, error: &RateLimited) {
        let Some((limit, terms)) = error.unfit() else { return };
        if limit.is_too_large(1, terms) {
            return self.log_refuses_all(limit, error);
        }
        // Not beside a line about all requests: its layer has been told of.
        #[cfg(feature = "tracing")]
        if !self.is_logged(LimitMistake::RefusesAll, limit)
            && self.is_first(LimitMistake::LargeCost, limit.name())
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
        let users: Vec<_> = users_of(&self.state().uses, of.name()).collect();
        let why = match &*users {
            // Used in calls alone, of which those of a limit without capacity are to reserve.
            [] if numbers.quota().get_capacity() > 0 => explain_cost(numbers, 1, Terms::AT_ONCE),
            users => users.iter().find_map(|user| user.refuses_all(of, numbers)),
        };
        match why {
            Some(why) => self.log_refuses_all(numbers, &why),
            // The next numbers that refuse all are another mistake.
            None => self.logged().retain(|(mistake, name)| {
                *mistake != LimitMistake::RefusesAll || **name != *of.name()
            }),
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
        if self.is_first(LimitMistake::DebtCut, limit) {
            let warning = "a settlement or a penalty took more than can be counted, so the bucket \
                           owes less than was taken (set `max_reserved` of the quota to the deepest \
                           debt that is to be paid)";
            tracing::warn!(limit, %left, warning, "possible misconfiguration (logged once)");
        }
    }

    /// A call found its bucket stored for other numbers than its own, and has changed that.
    #[cfg(feature = "memory")]
    #[cold]
    pub(super) fn note_conversion(&self, limit: &Limit, key: &Key, at: Timestamp) {
        if !cfg!(feature = "tracing") {
            return;
        }
        // Without waiting: while another call holds the lock, that one is looked at.
        let Ok(mut state) = self.state.try_lock() else { return };
        let LimitUsesState { uses, converted, .. } = &mut *state;
        let bucket = converted.get_or_insert_with(|| ConvertedBucket::new(limit, key, at));
        let is_same = bucket.limit.name() == limit.name() && bucket.key == *key;
        let is_recent = at.micros_since(bucket.since) <= CHANGES_WITHIN;
        if !(is_same && is_recent) {
            bucket.others = bucket.others.saturating_add(1);
            if is_same || !is_recent || bucket.others > MAX_OTHERS {
                *bucket = ConvertedBucket::new(limit, key, at);
            } else {
                return;
            }
        }
        bucket.changes = bucket.changes.saturating_add(1);
        // The numbers of the change before, or those of a layer.
        let other = Some(std::mem::replace(&mut bucket.limit, limit.clone()));
        let other = other.filter(|other| other.differs_in_numbers(limit)).or_else(|| {
            let of_layer = uses.iter().find(|one| one.limit.differs_in_numbers(limit));
            of_layer.map(|one| one.limit.clone())
        });
        let is_mistake = bucket.changes >= MAX_CHANGES;
        drop(state);
        if is_mistake {
            self.log_different_numbers(limit, other.as_ref());
        }
    }

    fn log_different_numbers(&self, limit: &Limit, other: Option<&Limit>) {
        #[cfg(feature = "tracing")]
        if self.is_first(LimitMistake::DifferentNumbers, limit.name()) {
            let numbers = limit.quota();
            let other = other.map(|other| tracing::field::display(other.quota()));
            let warning = "this limit has other numbers in another place. Both places share the \
                           buckets of the name, so a client that one refuses may be admitted by \
                           the other, and it reads two policies of one name (use one `Limit` in \
                           both places, or give one of them another name; if the numbers are the \
                           plan of a client, choose them in each place by `limit_with`)";
            tracing::warn!(
                limit = limit.name(),
                %numbers,
                other,
                warning,
                "possible misconfiguration (logged once)"
            );
        }
    }

    #[cfg(feature = "tracing")]
    fn is_logged(&self, mistake: LimitMistake, limit: &Limit) -> bool {
        self.logged().iter().any(|(known, name)| *known == mistake && **name == *limit.name())
    }

    /// Whether this is logged for the first time.
    fn is_first(&self, mistake: LimitMistake, limit: &str) -> bool {
        let mut logged = self.logged();
        let mut of_kind = logged.iter().filter(|(known, _)| *known == mistake);
        let is_logged = of_kind.clone().any(|(_, name)| **name == *limit);
        if is_logged || of_kind.nth(MAX_LOGGED - 1).is_some() {
            return false;
        }
        logged.push((mistake, limit.into()));
        true
    }

    fn logged(&self) -> MutexGuard<'_, LoggedMistakes> {
        // A poisoned lock is harmless: nothing panics while it is held.
        self.logged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, LimitUsesState> {
        // A poisoned lock is harmless: nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LimitUse {
    fn is_of(&self, user: &dyn LimitUser) -> bool {
        ptr::addr_eq(self.user.as_ptr(), user)
    }
}

/// The layers that use a limit of this name.
fn users_of(uses: &[LimitUse], name: &str) -> impl Iterator<Item = Arc<dyn LimitUser>> {
    let named = uses.iter().filter(move |one| one.limit.name() == name);
    named.filter_map(|one| one.user.upgrade())
}

#[cfg(feature = "memory")]
impl ConvertedBucket {
    fn new(limit: &Limit, key: &Key, since: Timestamp) -> Self {
        Self { limit: limit.clone(), key: key.clone(), since, changes: 0, others: 0 }
    }
}

// The keys of clients are not shown.
impl fmt::Debug for LimitUses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitUses").finish_non_exhaustive()
    }
}
