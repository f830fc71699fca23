//! What a request took of each limit.

use std::borrow::Borrow;

use smallvec::SmallVec;

use super::ask::Ask;
use super::permit::Left;
use super::{Limit, Standing};
use crate::algebra::{State, Units, Verdict};
use crate::backend::{Adjustment, Applied, BackendError, BucketId, Key, Reading};
use crate::clock::Timestamp;

/// What was taken of one limit, from one bucket or two.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    pub(super) standing: Standing<'static>,
    key: Key,
    priced: bool,
    taken: [Taken; 2],
    /// What it was last taken from, after that.
    #[cfg_attr(
        not(feature = "middleware"),
        allow(dead_code, reason = "only layers give back late")
    )]
    left: [Option<State>; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    shard: u32,
    units: Units,
}

impl Share {
    fn of<L: Borrow<Limit>>(ask: &Ask<L>, readings: &[Reading], now: Timestamp) -> Self {
        let standing = Standing::of(ask.limit(), readings, now).into_owned();
        let taken = Part::of(ask, readings).taken;
        let left = left(readings);
        Self { standing, key: ask.key.clone(), priced: ask.priced, taken, left }
    }

    #[cfg(feature = "middleware")]
    pub(crate) fn limit(&self) -> &Limit {
        self.standing.limit()
    }

    #[cfg(feature = "middleware")]
    pub(crate) const fn key(&self) -> &Key {
        &self.key
    }

    /// Whether somebody has said what it costs.
    #[cfg(feature = "middleware")]
    pub(crate) const fn is_priced(&self) -> bool {
        self.priced
    }

    #[cfg(feature = "middleware")]
    pub(crate) const fn standing(&self) -> &Standing<'static> {
        &self.standing
    }

    /// What to ask to take so many tokens more of the same buckets.
    #[cfg(feature = "middleware")]
    pub(crate) fn ask(&self, tokens: u64) -> Ask<Limit> {
        let mut ask = Ask::of(self.limit().clone());
        ask.key = self.key.clone();
        ask.price(tokens);
        ask.shards = self.taken.map(|taken| taken.shard);
        ask
    }

    /// The same with what was taken more.
    #[cfg(feature = "middleware")]
    pub(crate) fn add(&mut self, readings: &[Reading], now: Timestamp) {
        for (taken, reading) in self.taken.iter_mut().zip(readings) {
            taken.units = taken.units.saturating_add(reading.units());
        }
        self.left = left(readings);
        self.standing = Standing::of(self.standing.limit(), readings, now).into_owned();
    }

    pub(super) fn part(&self) -> Part<'_> {
        let Self { standing, key, priced, taken, .. } = self;
        Part { limit: standing.limit(), key, priced: *priced, taken: *taken, left: [None; 2] }
    }

    /// The same, of which nothing is given back that has come in since.
    #[cfg(feature = "middleware")]
    pub(super) fn late_part(&self) -> Part<'_> {
        Part { left: self.left, ..self.part() }
    }
}

/// The same, somebody else's.
#[derive(Clone, Copy)]
pub(super) struct Part<'p> {
    pub(super) limit: &'p Limit,
    key: &'p Key,
    pub(super) priced: bool,
    taken: [Taken; 2],
    /// Since when what comes in counts.
    left: [Option<State>; 2],
}

impl<'p> Part<'p> {
    pub(super) fn of<L: Borrow<Limit>>(ask: &'p Ask<L>, readings: &[Reading]) -> Self {
        let mut units = [0; 2];
        for (units, reading) in units.iter_mut().zip(readings) {
            *units = reading.units();
        }
        Self::taking(ask, units)
    }

    /// So much of each of its buckets.
    pub(super) fn taking<L: Borrow<Limit>>(ask: &'p Ask<L>, units: [Units; 2]) -> Self {
        let ([shard, other], [first, second]) = (ask.shards, units);
        let taken = [(shard, first), (other, second)].map(|(shard, units)| Taken { shard, units });
        Self { limit: ask.limit(), key: &ask.key, priced: ask.priced, taken, left: [None; 2] }
    }

    /// The same as if somebody had said what it costs.
    #[cfg(feature = "middleware")]
    pub(super) const fn priced(mut self) -> Self {
        self.priced = true;
        self
    }

    /// What there is to give back, or to take, if it really cost this much; and with each the units
    /// that stay taken of that bucket.
    pub(super) fn refunds(self, actual: u64) -> impl Iterator<Item = (Adjustment<'p>, Units)> {
        let bucket = self.limit.bucket();
        // More than can be counted leaves a bucket as deep as numbers go.
        let cost = bucket.units(actual).unwrap_or(Units::MAX);
        let [first, second] = self.taken;
        let all = first.units.saturating_add(second.units);
        let back = all.saturating_sub(cost);
        // Neither gets more than it has paid, and what is short is taken from the first.
        let to_second = back.clamp(0, second.units.max(0));
        let to_first = back.saturating_sub(to_second);
        let parts = [(first, to_first, true), (second, to_second, second.units != 0)];
        let parts = parts.into_iter().zip(self.left).filter(|&((.., named), _)| named);
        parts.map(move |((taken, units, _), left)| {
            let id = BucketId::new(self.limit.name(), self.key).shard(taken.shard);
            let refund = match left {
                Some(left) => Adjustment::refund_since(id, bucket, units, left),
                None => Adjustment::refund(id, bucket, units),
            };
            (refund, taken.units.saturating_sub(units))
        })
    }
}

/// What a request took of all limits that it was held to, of which there is at least one.
#[derive(Clone, Debug)]
pub(crate) struct Shares {
    first: Share,
    rest: Vec<Share>,
}

impl Shares {
    /// What was taken, by a complete answer to these; `None` if nothing was asked.
    pub(crate) fn of<L: Borrow<Limit>>(asks: &[Ask<L>], applied: &Applied) -> Option<Self> {
        let share =
            |(ask, readings): (&Ask<L>, &[Reading])| Share::of(ask, readings, applied.now());
        let mut shares = said(asks, applied).map(share);
        Some(Self { first: shares.next()?, rest: shares.collect() })
    }

    /// What one limit has admitted.
    pub(super) fn of_one<L: Borrow<Limit>>(ask: &Ask<L>, left: Left, now: Timestamp) -> Self {
        let standing = Standing::admitted(ask.limit(), left.state, now).into_owned();
        let taken = Part::taking(ask, left.taken).taken;
        let (key, priced, left) = (ask.key.clone(), ask.priced, [None; 2]);
        let first = Share { standing, key, priced, taken, left };
        Self { first, rest: Vec::new() }
    }

    /// Nothing, of this limit.
    pub(super) fn none(limit: &Limit, now: Timestamp) -> Self {
        Self { first: Share::of(&Ask::of(limit), &[], now), rest: Vec::new() }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Share> + Clone {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// How the first limit stood.
    pub(super) const fn standing(&self) -> &Standing<'static> {
        &self.first.standing
    }

    /// All of these; `None` if there are none.
    #[cfg(feature = "middleware")]
    pub(crate) fn gathered(shares: impl IntoIterator<Item = Share>) -> Option<Self> {
        let mut shares = shares.into_iter();
        Some(Self { first: shares.next()?, rest: shares.collect() })
    }

    #[cfg(feature = "middleware")]
    pub(crate) fn into_iter(self) -> impl Iterator<Item = Share> {
        std::iter::once(self.first).chain(self.rest)
    }
}

/// What the buckets hold that have said this.
fn left(readings: &[Reading]) -> [Option<State>; 2] {
    let mut left = [None; 2];
    for (left, reading) in left.iter_mut().zip(readings) {
        *left = Some(reading.state());
    }
    left
}

/// What was asked, and what the buckets said to each, in a complete answer.
pub(crate) fn said<'x, L: Borrow<Limit>>(
    asks: &'x [Ask<L>],
    applied: &'x Applied,
) -> impl Iterator<Item = (&'x Ask<L>, &'x [Reading])> + Clone {
    let mut rest = applied.readings();
    asks.iter().map(move |ask| {
        let (readings, others) = rest.split_at_checked(ask.buckets()).unwrap_or((rest, &[]));
        rest = others;
        (ask, readings)
    })
}

/// The answer, if every bucket has said something.
pub(crate) fn complete<L: Borrow<Limit>>(
    asks: &[Ask<L>],
    applied: Applied,
) -> Result<Applied, BackendError> {
    let buckets = asks.iter().map(Ask::buckets).sum::<usize>();
    if applied.readings().len() < buckets.max(1) {
        return Err(BackendError::incomplete());
    }
    Ok(applied)
}

/// How those limits stand that have refused.
pub(super) fn refused<'l>(
    asks: &[Ask<&'l Limit>],
    applied: &Applied,
) -> SmallVec<[Standing<'l>; 1]> {
    let standing = |(ask, readings): (&Ask<&'l Limit>, &[Reading])| {
        Standing::of(ask.limit, readings, applied.now())
    };
    let standings = said(asks, applied).map(standing);
    standings.filter(|standing| standing.verdict() == Verdict::Refused).collect()
}
