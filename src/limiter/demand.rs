//! What a request demands of a limit: the key, the number of tokens, and whether it may wait.

use std::borrow::Borrow;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::Limit;
use super::cold_drop::ColdDrop;
use super::random::Random;
use super::rate_limited::RateLimited;
use super::replacements::Replacements;
use crate::algebra::{Terms, Units};
use crate::backend::{Charge, Key, Reading, Repeats, ResetMark};
use crate::quota::Kind;

/// The tokens that a request demands of one limit.
#[derive(Clone, Debug)]
pub(crate) struct Demand<L> {
    pub(crate) limit: L,
    pub(crate) key: Key,
    pub(crate) cost: u64,
    /// Whether the caller has set the cost. It is one otherwise.
    pub(crate) explicit_cost: bool,
    /// The two shards that may pay; both are zero if the limit has only one bucket.
    pub(super) shards: [u32; 2],
    /// Whether these shards have to pay when it is asked for next.
    pub(super) is_drawn: bool,
    /// How many resets the limiter had recorded when it asked its store. None if the store records
    /// them.
    pub(super) asked_at: ResetMark,
}

/// How to take the tokens of a demand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    Take,
    /// Into debt, if the work may run within this time.
    Reserve(Duration),
    /// Into debt, whatever instant that makes: the work waits for this long, and tokens may come
    /// back meanwhile.
    Stay(Duration),
}

impl Mode {
    /// The terms of a request that finds a full bucket. What costs more than these allow never fits.
    #[inline]
    pub(crate) fn terms(self, limit: &Limit) -> Terms {
        match self {
            Self::Take => Terms::AT_ONCE,
            Self::Reserve(max_wait) | Self::Stay(max_wait) => {
                Terms::reserving(limit.bucket().floor()).within(max_wait)
            }
        }
    }

    /// The terms on which a store is asked.
    #[inline]
    fn terms_of_charge(self, limit: &Limit) -> Terms {
        match self {
            Self::Stay(_) => Terms::reserving(limit.bucket().floor()),
            Self::Take | Self::Reserve(_) => self.terms(limit),
        }
    }
}

impl<L> Demand<L> {
    /// A demand for one token of the bucket that all callers share.
    #[inline]
    pub(crate) const fn new(limit: L) -> Self {
        let (cost, explicit_cost, shards, is_drawn) = (1, false, [0; 2], false);
        let asked_at = ResetMark::NONE;
        Self { limit, key: Key::GLOBAL, cost, explicit_cost, shards, is_drawn, asked_at }
    }

    pub(crate) const fn set_cost(&mut self, tokens: u64) {
        (self.cost, self.explicit_cost) = (tokens, true);
    }

    /// The same demand on the same shards, with the limit held by another type.
    pub(crate) fn with_limit<M>(&self, limit: M) -> Demand<M> {
        let &Self { cost, explicit_cost, shards, is_drawn, asked_at, .. } = self;
        Demand { limit, key: self.key.clone(), cost, explicit_cost, shards, is_drawn, asked_at }
    }
}

impl<L: Borrow<Limit>> Demand<L> {
    #[inline]
    pub(crate) fn limit(&self) -> &Limit {
        self.limit.borrow()
    }

    /// Whether it counts a request in flight.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.limit().quota().is_in_flight()
    }

    /// The same with a copy of the limit.
    pub(super) fn own(&self) -> Demand<Arc<Limit>> {
        self.with_limit(Arc::new(self.limit().clone()))
    }

    /// How many buckets a charge of this limit names.
    pub(super) fn bucket_count(&self) -> usize {
        if self.limit().is_in_shards() { 2 } else { 1 }
    }

    /// Equal for demands on the same buckets. The step of a calendar's windows names the calendar.
    fn bucket_order(&self) -> impl Ord + use<'_, L> {
        let (limit, bucket) = (self.limit(), self.limit().bucket());
        let gains = (bucket.kind() == Kind::TokenBucket, bucket.step(), bucket.gain());
        let holds = (bucket.token(), bucket.capacity(), bucket.floor(), bucket.initial());
        let shards = limit.quota().get_shards();
        (limit.bucket_of(&self.key), gains, holds, bucket.window_start(), shards)
    }

    /// Whether the buckets could have granted this demand alone in this mode, going by their
    /// readings.
    pub(crate) fn could_wait(&self, readings: &[Reading], mode: Mode) -> bool {
        let (limit, count) = (self.limit(), Units::try_from(readings.len()).unwrap_or(1).max(1));
        let held =
            readings.iter().fold(0_i64, |held, reading| held.saturating_add(reading.state().value));
        let units = limit.bucket().units(self.cost).unwrap_or(Units::MAX);
        let left = held.saturating_sub(units).div_euclid(count);
        let terms = mode.terms_of_charge(limit);
        readings.iter().all(|reading| left >= 0 || terms.allow(left, reading.wait()))
    }

    /// The charge for this demand.
    ///
    /// # Errors
    ///
    /// If the cost is more than the limit could ever grant in the mode `longest`, the most patient
    /// one that the caller would try.
    #[inline(always)]
    pub(crate) fn charge(&self, mode: Mode, longest: Mode) -> Result<Charge<'_>, RateLimited> {
        Ok(self.charge_of(self.units(longest)?, mode))
    }

    /// The cost in units.
    ///
    /// # Errors
    ///
    /// As [`charge`](Self::charge).
    #[inline(always)]
    pub(super) fn units(&self, longest: Mode) -> Result<Units, RateLimited> {
        units_of(self.limit(), self.cost, longest.terms(self.limit()))
    }

    /// A charge of this many units.
    #[inline(always)]
    pub(super) fn charge_of(&self, units: Units, mode: Mode) -> Charge<'_> {
        let (limit, [shard, other]) = (self.limit(), self.shards);
        let id = limit.bucket_of(&self.key).shard(shard);
        let charge = Charge::take(id, limit.bucket(), units).terms(mode.terms_of_charge(limit));
        charge.second_shard(other).on_failure(limit.get_on_failure())
    }

    /// A charge that takes the cost at once of the only bucket; of nothing if it needs more, or if the
    /// bucket could never grant that.
    #[cfg(feature = "memory")]
    #[inline(always)]
    pub(super) fn usual_charge(&self) -> Charge<'_> {
        let (limit, bucket) = (self.limit(), self.limit().bucket());
        let units = bucket.units(self.cost).filter(|&units| units <= bucket.capacity());
        let units = units.filter(|_| !limit.is_in_shards()).unwrap_or(0);
        Charge::take(limit.bucket_of(&self.key), bucket, units)
    }

    /// A charge that looks whether the cost could be taken at once, and takes nothing.
    pub(super) fn look(&self) -> Charge<'_> {
        let (limit, [shard, other]) = (self.limit(), self.shards);
        let (id, units) =
            (limit.bucket_of(&self.key).shard(shard), limit.bucket().units(self.cost));
        let look = Charge::look(id, limit.bucket(), units.unwrap_or(Units::MAX));
        look.second_shard(other).on_failure(limit.get_on_failure())
    }

    pub(super) fn draw_shards(&mut self, random: &Random) {
        let is_drawn = mem::take(&mut self.is_drawn);
        if self.limit().is_in_shards() && !is_drawn {
            self.shards = random.draw_pair(self.limit().quota().get_shards());
        }
    }
}

/// The cost in units.
///
/// # Errors
///
/// If the limit could never grant the cost on these terms.
#[inline(always)]
pub(crate) fn units_of(limit: &Limit, cost: u64, terms: Terms) -> Result<Units, RateLimited> {
    match limit.bucket().units(cost) {
        // The common case first: a cost that one bucket can hold is never too large.
        Some(units) if units <= limit.bucket().capacity() => Ok(units),
        Some(units) if !limit.is_too_large(cost, terms) => Ok(units),
        _ => Err(RateLimited::too_large(limit, cost, terms)),
    }
}

/// Draws the shards that may pay, for each demand.
///
/// Demands on the same limit and key get the same two shards. With different ones, they could
/// together be granted more than two shards hold, which one demand never is.
///
/// # Errors
///
/// If demands on the same buckets together cost more than these could ever grant.
#[inline(always)]
pub(super) fn draw_all_shards<L: Borrow<Limit>>(
    demands: &mut [Demand<L>],
    random: &Random,
    longest: Mode,
) -> Result<(), RateLimited> {
    if let [demand] = demands {
        demand.draw_shards(random);
        return Ok(());
    }
    if all_fit_one_bucket(demands) { Ok(()) } else { draw_each(demands, random, longest) }
}

/// As [`draw_all_shards`], for the demands that its short way does not cover.
#[inline(never)]
fn draw_each<L: Borrow<Limit>>(
    demands: &mut [Demand<L>],
    random: &Random,
    longest: Mode,
) -> Result<(), RateLimited> {
    let repeats = Repeats::find(demands.iter().map(Demand::bucket_order));
    let mut sums = SmallVec::<[u64; INLINE_DEMANDS]>::from_elem(0, demands.len());
    for nth in 0..demands.len() {
        let order = |nth: usize| demands.get(nth).map(Demand::bucket_order);
        let first = repeats.first(nth, |earlier| order(earlier) == order(nth));
        let (before, rest) = demands.split_at_mut(nth);
        let (Some(demand), Some(sum)) = (rest.first_mut(), sums.get_mut(first)) else { continue };
        *sum = sum.saturating_add(demand.cost);
        match before.get(first) {
            None => demand.draw_shards(random),
            Some(first) => {
                demand.shards = first.shards;
                units_of(demand.limit(), *sum, longest.terms(demand.limit()))?;
            }
        }
    }
    Ok(())
}

/// Whether each demand is on a single bucket that could grant all costs together. Then no sum is
/// too large and there are no shards to draw. Nearly all calls are like that.
#[inline(always)]
fn all_fit_one_bucket<L: Borrow<Limit>>(demands: &[Demand<L>]) -> bool {
    let all = demands.iter().fold(0_u64, |all, demand| all.saturating_add(demand.cost));
    demands.iter().all(|demand| {
        let (limit, bucket) = (demand.limit(), demand.limit().bucket());
        !limit.is_in_shards() && bucket.units(all).is_some_and(|units| units <= bucket.capacity())
    })
}

/// The demands of one call. A single one needs no allocation.
pub(super) enum Demands<'l> {
    One([Demand<&'l Limit>; 1]),
    /// Two or more. Empty once they are taken out.
    Several {
        first: &'l Limit,
        demands: ColdDrop<Vec<Demand<&'l Limit>>>,
    },
}

/// Calls with at most this many demands need no allocation to check them.
const INLINE_DEMANDS: usize = 8;

/// The initial capacity for a call on several limits.
const USUAL_LIMITS: usize = 4;

impl<'l> Demands<'l> {
    #[inline]
    pub(super) const fn new(limit: &'l Limit) -> Self {
        Self::One([Demand::new(limit)])
    }

    /// The limit that was named first.
    #[inline]
    pub(super) const fn limit(&self) -> &'l Limit {
        match self {
            Self::One([demand]) => demand.limit,
            Self::Several { first, .. } => first,
        }
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[Demand<&'l Limit>] {
        match self {
            Self::One(one) => one,
            Self::Several { demands, .. } => demands,
        }
    }

    #[inline]
    pub(super) fn as_mut_slice(&mut self) -> &mut [Demand<&'l Limit>] {
        match self {
            Self::One(one) => one,
            Self::Several { demands, .. } => demands,
        }
    }

    /// The demand on the limit that was named last.
    #[inline]
    pub(super) fn last_mut(&mut self) -> Option<&mut Demand<&'l Limit>> {
        self.as_mut_slice().last_mut()
    }

    /// The demand, if it is the only one and its limit has a single bucket.
    #[inline]
    pub(super) fn lone_bucket(&mut self) -> Option<&mut Demand<&'l Limit>> {
        match self {
            Self::One([demand]) if !demand.limit.is_in_shards() => Some(demand),
            _ => None,
        }
    }

    /// Puts the numbers in force in place of those with which the limits were made.
    #[inline]
    pub(super) fn update_numbers(&mut self, replacements: &'l Replacements) {
        for demand in self.as_mut_slice() {
            demand.limit = replacements.current(demand.limit);
            // Drawn among other shards, if the call starts again.
            demand.shards = [0; 2];
        }
    }

    pub(super) fn push(&mut self, limit: &'l Limit) {
        let more = Demand::new(limit);
        match self {
            Self::Several { demands, .. } => demands.push(more),
            Self::One([demand]) => {
                let (first, mut demands) = (demand.limit, Vec::with_capacity(USUAL_LIMITS));
                demands.push(mem::replace(demand, more));
                demands.push(Demand::new(limit));
                *self = Self::Several { first, demands: ColdDrop::new(demands) };
            }
        }
    }
}
