//! Buckets in several slots of a cluster, which no call can name together.
//!
//! # Design
//!
//! What needs no single instant (a look, a reset, adjustments without a condition) is asked slot by slot. The shards of
//! a limit lie in different slots on purpose, so a two-choices charge asks one, and only if that refuses the
//! other. If both do, it is known what they hold: what [`charge_pair`] makes of that is carried out on
//! one shard, or on both one after the other. What the second does not have is given back to the first; what the
//! first has reserved, only if nobody came after it.
//!
//! Everything else is all or nothing, and refused before anything is sent.

use std::time::Duration;

use super::dispatcher::Dispatcher;
use super::names::Name;
use super::order::{Order, OwnAdjustment, OwnCharge, Whose};
use crate::algebra::{State, Terms, Units, Verdict, charge_pair};
use crate::backend::{Adjustment, Applied, BackendError, BucketId, Charge, Reading};
use crate::clock::Timestamp;
use smallvec::{SmallVec, smallvec};
use tokio::time::Instant;

/// Carries charges out of which none takes anything.
pub(super) async fn look(
    dispatcher: Dispatcher,
    charges: SmallVec<[OwnCharge; 1]>,
    deadline: Instant,
) -> Result<Applied, BackendError> {
    let orders = charges.into_iter().map(|charge| Order::Charges(smallvec![charge]));
    // All are on their way before the first is awaited.
    let answers: Vec<_> = orders.map(|order| dispatcher.send(order, deadline)).collect();
    let (mut now, mut readings) = (None, Vec::new());
    for answer in answers {
        let applied = answer.await?;
        now = now.max(Some(applied.now()));
        readings.extend_from_slice(applied.readings());
    }
    Ok(Applied::many(now.unwrap_or_default(), readings))
}

/// Makes adjustments, each by itself.
pub(super) async fn adjust(
    dispatcher: Dispatcher,
    adjustments: SmallVec<[OwnAdjustment; 1]>,
    deadline: Instant,
) -> Result<Applied, BackendError> {
    // Whether all of several buckets are untouched cannot be known at one instant: they count as touched.
    let made = !adjustments.iter().any(|one| one.adjustment().is_conditional());
    let verdict = if made { Verdict::Admitted } else { Verdict::Refused };
    let orders = adjustments.into_iter().map(|one| match made {
        true => Order::Adjustments(smallvec![one]),
        false => Order::Charges(smallvec![one.look()]),
    });
    let answers: Vec<_> = orders.map(|order| dispatcher.send(order, deadline)).collect();
    let (mut now, mut readings) = (None, Vec::new());
    for answer in answers {
        let applied = answer.await?;
        now = now.max(Some(applied.now()));
        let states = applied.readings().iter().map(Reading::state);
        readings.extend(states.map(|state| Reading::new(verdict, state, Duration::ZERO)));
    }
    Ok(Applied::many(now.unwrap_or_default(), readings))
}

/// A two-choices charge on shards in different slots.
pub(super) struct Pair {
    pub(super) dispatcher: Dispatcher,
    /// Each shard by itself.
    pub(super) shards: [Whose; 2],
    pub(super) charge: OwnCharge,
    pub(super) deadline: Instant,
}

/// How often two shards are looked at anew of which others have taken meanwhile.
const TRIES: usize = 3;

impl Pair {
    pub(super) async fn apply(self) -> Result<Applied, BackendError> {
        let (at_once, units) = (Terms::AT_ONCE, self.charge.units.max(0));
        if !self.charge.takes {
            let [(now, first), (then, second)] =
                [self.take(0, 0, at_once).await?, self.take(1, 0, at_once).await?];
            return Ok(self.judged([first.state(), second.state()], now.max(then)));
        }
        let (now, first) = self.take(0, units, at_once).await?;
        if first.verdict() == Verdict::Admitted {
            // Nobody has looked at the other: it is taken to hold as much as this one did.
            let State { value, ts } = first.state();
            let like = State { value: value.saturating_add(first.units()), ts };
            return Ok(Applied::two(
                now,
                [first, Reading::new(first.verdict(), like, Duration::ZERO)],
            ));
        }
        let (then, second) = self.take(1, units, at_once).await?;
        if second.verdict() == Verdict::Admitted {
            let first = Reading::new(second.verdict(), first.state(), Duration::ZERO);
            return Ok(Applied::two(then, [first, second]));
        }
        self.together([first.state(), second.state()], now.max(then)).await
    }

    /// Does what the rules say of two shards that have both refused by themselves.
    async fn together(
        &self,
        mut held: [State; 2],
        mut now: Timestamp,
    ) -> Result<Applied, BackendError> {
        let terms = self.charge.terms;
        for _ in 0..TRIES {
            let charged = charge_pair(&self.charge.bucket, held, self.charge.units, terms, now);
            if charged.verdict() == Verdict::Refused {
                break;
            }
            if charged.paid() == [0, 0] {
                // There is nothing to take: how they stand is the answer.
                return Ok(Applied::two(
                    now,
                    Reading::from_charged_pair(&self.charge.charge(), &charged),
                ));
            }
            let mut readings = charged
                .before()
                .map(|state| Reading::new(Verdict::Admitted, state, Duration::ZERO));
            let mut enough = true;
            for (place, (units, reading)) in
                charged.paid().into_iter().zip(&mut readings).enumerate()
            {
                if units > 0 && enough {
                    let (then, said) = self.take(place, units, terms).await?;
                    enough = said.verdict() != Verdict::Refused;
                    (*reading, now) = (said, now.max(then));
                }
            }
            if enough {
                let wait = readings.iter().map(Reading::wait).max().unwrap_or_default();
                let verdict = if wait.is_zero() { Verdict::Admitted } else { Verdict::Reserved };
                let readings =
                    readings.map(|it| Reading::new(verdict, it.state(), wait).taking(it.units()));
                return Ok(Applied::two(now, readings));
            }
            held = readings.map(|reading| reading.state());
            for (place, (taken, held)) in readings.iter().zip(&mut held).enumerate() {
                if taken.units() > 0 {
                    *held = self.give_back(place, taken).await?;
                }
            }
        }
        Ok(self.judged(held, now))
    }

    /// Asks one shard for so much.
    pub(super) async fn take(
        &self,
        place: usize,
        units: Units,
        terms: Terms,
    ) -> Result<(Timestamp, Reading), BackendError> {
        let whose = self.whose(place)?;
        let one = OwnCharge { whose, other: None, units, terms, ..self.charge.clone() };
        let applied = self.dispatcher.send(Order::Charges(smallvec![one]), self.deadline).await?;
        let reading = applied.readings().first().copied();
        reading.map(|reading| (applied.now(), reading)).ok_or_else(|| internal(NO_READING))
    }

    /// Gives back what was taken from one shard, and says what it holds then.
    pub(super) async fn give_back(
        &self,
        place: usize,
        taken: &Reading,
    ) -> Result<State, BackendError> {
        let whose = self.whose(place)?;
        let (id, bucket, units) = (whose.id(), &self.charge.bucket, taken.units());
        let adjustment = match taken.verdict() {
            // Others may be in line behind a place: one that is not the last is spent.
            Verdict::Reserved => Adjustment::undo(id, bucket, units, taken.state()),
            Verdict::Admitted | Verdict::Refused => {
                Adjustment::refund_since(id, bucket, units, taken.state())
            }
        };
        let own = OwnAdjustment::of_whose(whose.clone(), &adjustment);
        let order = Order::Adjustments(smallvec![own]);
        let applied = self.dispatcher.send(order, self.deadline).await?;
        applied.readings().first().map(Reading::state).ok_or_else(|| internal(NO_READING))
    }

    fn whose(&self, place: usize) -> Result<Whose, BackendError> {
        self.shards.get(place).cloned().ok_or_else(|| internal("a pair has two shards"))
    }

    /// What two shards say that hold this, and from which nothing is taken.
    fn judged(&self, held: [State; 2], now: Timestamp) -> Applied {
        let OwnCharge { bucket, units, terms, .. } = &self.charge;
        let charged = charge_pair(bucket, held, *units, *terms, now);
        let look = Charge::look(self.charge.whose.id(), bucket, *units);
        let mut readings = Reading::from_charged_pair(&look, &charged);
        if self.charge.takes && charged.verdict() != Verdict::Refused {
            // They had it, and others were quicker: the next may come as soon as the shortest wait.
            readings = readings
                .map(|it| Reading::new(Verdict::Refused, it.state(), Duration::from_micros(1)));
        }
        Applied::two(now, readings)
    }
}

const NO_READING: &str = "a bucket has no reading";

const fn internal(what: &'static str) -> BackendError {
    BackendError::internal("redis", what)
}

/// Whether these buckets can be named by one call.
pub(super) fn share_a_slot<'n>(names: impl IntoIterator<Item = &'n Name>) -> bool {
    let mut slots = names.into_iter().map(Name::slot);
    let first = slots.next();
    slots.all(|slot| Some(slot) == first)
}

/// The names of the limits, for an error.
pub(super) fn limits<'a>(ids: impl Iterator<Item = BucketId<'a>>) -> String {
    let mut names: Vec<_> = ids.map(|id| id.limit()).collect();
    names.dedup();
    names.join("`, `")
}
