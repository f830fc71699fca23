//! What is asked of the limits: of which, by whom, and how many tokens.

use std::borrow::Borrow;
use std::time::Duration;

use smallvec::SmallVec;

use super::random::Random;
use super::{Error, Limit, RateLimiter};
use crate::algebra::{Terms, Units};
#[cfg(feature = "middleware")]
use crate::backend::Reading;
use crate::backend::{Answer, Applied, BucketId, Charge, Key};

/// Tokens that are asked of one limit.
#[derive(Clone, Debug)]
pub(crate) struct Ask<L> {
    pub(crate) limit: L,
    pub(crate) key: Key,
    pub(crate) cost: u64,
    /// Whether somebody has said what it costs; a request is one token otherwise.
    pub(crate) priced: bool,
    /// The two shards that may pay; twice the same where there is one bucket.
    pub(super) shards: [u32; 2],
}

/// What is wanted of the tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wish {
    Look,
    Take,
    /// Wait for them, for no longer than this.
    Reserve(Duration),
}

impl Wish {
    #[inline]
    pub(crate) fn terms(self, limit: &Limit) -> Terms {
        match self {
            Self::Look | Self::Take => Terms::AT_ONCE,
            Self::Reserve(max_wait) => Terms::reserving(limit.bucket().floor()).within(max_wait),
        }
    }
}

impl<L> Ask<L> {
    /// One token of everybody's.
    #[inline]
    pub(crate) const fn of(limit: L) -> Self {
        Self { limit, key: Key::GLOBAL, cost: 1, priced: false, shards: [0; 2] }
    }

    /// Says what it costs.
    pub(crate) const fn price(&mut self, tokens: u64) {
        (self.cost, self.priced) = (tokens, true);
    }
}

impl<L: Borrow<Limit>> Ask<L> {
    #[inline]
    pub(crate) fn limit(&self) -> &Limit {
        self.limit.borrow()
    }

    /// The same on its own, for answers that come later.
    pub(crate) fn to_owned(&self) -> Ask<Limit> {
        self.of_own(self.limit().clone())
    }

    /// The same with a limit of its own.
    pub(crate) fn of_own<M>(&self, limit: M) -> Ask<M> {
        let &Self { cost, priced, shards, .. } = self;
        Ask { limit, key: self.key.clone(), cost, priced, shards }
    }

    /// How many buckets it names.
    pub(super) fn buckets(&self) -> usize {
        if self.limit().is_in_shards() { 2 } else { 1 }
    }

    /// The shards that it names, as many as there are buckets.
    pub(super) fn shards(&self) -> impl Iterator<Item = u32> + use<L> {
        self.shards.into_iter().take(self.buckets())
    }

    fn is_of_same_buckets(&self, other: &Self) -> bool {
        self.key == other.key
            && self.limit().name() == other.limit().name()
            && self.limit().bucket() == other.limit().bucket()
    }

    /// What the cost comes to, if the limit can ever grant it on these terms.
    #[inline]
    fn units(&self, terms: Terms) -> Result<Units, Error> {
        let limit = self.limit();
        match limit.bucket().units(self.cost) {
            Some(units) if !limit.too_large(self.cost, terms) => Ok(units),
            _ => Err(Error::too_large(limit, self.cost, terms)),
        }
    }

    /// Whether buckets that have answered this to a charge at once might have reserved it.
    #[cfg(feature = "middleware")]
    pub(crate) fn could_wait(&self, readings: &[Reading], wish: Wish) -> bool {
        let (limit, count) = (self.limit(), Units::try_from(readings.len()).unwrap_or(1).max(1));
        let held =
            readings.iter().fold(0_i64, |held, reading| held.saturating_add(reading.state().value));
        let units = limit.bucket().units(self.cost).unwrap_or(Units::MAX);
        let left = held.saturating_sub(units).div_euclid(count);
        let terms = wish.terms(limit);
        readings.iter().all(|reading| left >= 0 || terms.allow(left, reading.wait()))
    }

    #[inline]
    pub(crate) fn charge(&self, wish: Wish, longest: Wish) -> Result<Charge<'_>, Error> {
        let (limit, [shard, other]) = (self.limit(), self.shards);
        let terms = wish.terms(limit);
        let units = self.units(longest.terms(limit))?;
        let id = BucketId::new(limit.name(), &self.key).shard(shard);
        let charge = match wish {
            Wish::Look => Charge::look(id, limit.bucket(), units),
            Wish::Take | Wish::Reserve(_) => Charge::take(id, limit.bucket(), units),
        };
        Ok(charge.terms(terms).second_shard(other))
    }

    fn draw(&mut self, random: &Random) {
        if self.limit().is_in_shards() {
            self.shards = random.two_of(self.limit().quota().shard_count());
        }
    }
}

/// Most ask of one limit.
#[derive(Clone, Debug)]
pub(super) enum Asks<'l> {
    One([Ask<&'l Limit>; 1]),
    Many {
        /// The first.
        limit: &'l Limit,
        asks: Vec<Ask<&'l Limit>>,
    },
}

impl<'l> Asks<'l> {
    /// The limit that was named first, which errors name.
    #[inline]
    pub(super) const fn limit(&self) -> &'l Limit {
        match self {
            Self::One([ask]) => ask.limit,
            Self::Many { limit, .. } => limit,
        }
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[Ask<&'l Limit>] {
        match self {
            Self::One(one) => one,
            Self::Many { asks, .. } => asks,
        }
    }

    #[inline]
    pub(super) fn as_mut_slice(&mut self) -> &mut [Ask<&'l Limit>] {
        match self {
            Self::One(one) => one,
            Self::Many { asks, .. } => asks,
        }
    }
}

/// Asks for all of it or nothing. What can never be granted, not even to who waits as `longest` says,
/// is an error.
pub(crate) fn ask<L: Borrow<Limit>>(
    limiter: &RateLimiter,
    asks: &mut [Ask<L>],
    wish: Wish,
    longest: Wish,
) -> Result<Answer<Applied>, Error> {
    if let [ask] = asks {
        ask.draw(limiter.random());
        return Ok(limiter.backend().apply(&[ask.charge(wish, longest)?]));
    }
    draw_all(asks, limiter.random(), longest)?;
    let mut charges = SmallVec::<[Charge<'_>; 8]>::new();
    for ask in asks.iter() {
        charges.push(ask.charge(wish, longest)?);
    }
    Ok(limiter.backend().apply(&charges))
}

/// As [`ask`], without drawing: of the shards that have paid before.
#[cfg(feature = "middleware")]
pub(super) fn ask_again<L: Borrow<Limit>>(
    limiter: &RateLimiter,
    asks: &[Ask<L>],
) -> Result<Answer<Applied>, Error> {
    let mut charges = SmallVec::<[Charge<'_>; 8]>::new();
    for ask in asks {
        charges.push(ask.charge(Wish::Take, Wish::Take)?);
    }
    Ok(limiter.backend().apply(&charges))
}

/// Draws the shards of each, and the same for what is named again: so all of it can be judged.
fn draw_all<L: Borrow<Limit>>(
    asks: &mut [Ask<L>],
    random: &Random,
    longest: Wish,
) -> Result<(), Error> {
    for nth in 0..asks.len() {
        let (before, rest) = asks.split_at_mut(nth);
        let Some(ask) = rest.first_mut() else { continue };
        let mut same = before.iter().filter(|earlier| earlier.is_of_same_buckets(ask));
        let Some(first) = same.next() else {
            ask.draw(random);
            continue;
        };
        let again = same.fold(ask.cost, |all, same| all.saturating_add(same.cost));
        let all = again.saturating_add(first.cost);
        ask.shards = first.shards;
        let terms = longest.terms(ask.limit());
        if ask.limit().too_large(all, terms) {
            return Err(Error::too_large(ask.limit(), all, terms));
        }
    }
    Ok(())
}
