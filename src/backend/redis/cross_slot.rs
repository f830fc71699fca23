//! Operations on buckets in several slots of a cluster, which no call can name together.
//!
//! # Design
//!
//! Operations that need no single instant (looks, resets, unconditional refunds) are sent slot by slot.
//! The shards of a limit lie in different slots on purpose, so a two-choices charge tries one, and the
//! other only if that refuses. If both refuse, their states are known: the result of [`charge_pair`] is
//! carried out on one shard, or on both one after the other. If the second lacks the units by then, the
//! first gets its own back; a reservation only if it is untouched.
//!
//! Everything else is all or nothing, and refused before anything is sent.

use std::time::Duration;

use super::batch::Batcher;
use super::operation::{Operation, OwnedBucketId, OwnedCharge, OwnedRefund};
use super::script::OperationOutcome;
use crate::algebra::{State, Terms, Units, Verdict, charge_pair};
use crate::backend::{Applied, BackendError, BucketId, Charge, Reading, Refund, Refunded};
use crate::clock::Timestamp;
use smallvec::{SmallVec, smallvec};
use tokio::time::Instant;

/// Carries out charges that only look.
pub(super) async fn look(
    batcher: Batcher,
    charges: SmallVec<[OwnedCharge; 1]>,
    deadline: Instant,
) -> Result<Applied, BackendError> {
    let operations = charges.into_iter().map(|charge| Operation::Charges(smallvec![charge]));
    // All are sent before the first is awaited.
    let answers: Vec<_> = operations.map(|operation| batcher.send(operation, deadline)).collect();
    let (mut now, mut readings) = (None, Vec::new());
    for answer in answers {
        let applied = answer.await?.applied()?;
        now = now.max(Some(applied.now()));
        readings.extend_from_slice(applied.readings());
    }
    Ok(Applied::many(now.unwrap_or_default(), readings))
}

/// Carries out refunds, each by itself.
pub(super) async fn refund(
    batcher: Batcher,
    refunds: SmallVec<[OwnedRefund; 1]>,
    deadline: Instant,
) -> Result<Refunded, BackendError> {
    // No single instant shows whether several buckets are untouched, so they count as touched.
    let given = refunds.iter().all(|refund| refund.left.is_none());
    let operations = refunds.into_iter().map(|refund| match given {
        true => Operation::Refunds(smallvec![refund]),
        false => Operation::Charges(smallvec![refund.look()]),
    });
    let answers: Vec<_> = operations.map(|operation| batcher.send(operation, deadline)).collect();
    let (mut now, mut states) = (None, Vec::new());
    for answer in answers {
        match answer.await? {
            OperationOutcome::Refunded(refunded) => {
                now = now.max(Some(refunded.now()));
                states.extend_from_slice(refunded.states());
            }
            OperationOutcome::Applied(applied) => {
                now = now.max(Some(applied.now()));
                states.extend(applied.readings().iter().map(Reading::state));
            }
            OperationOutcome::Reset => return Err(BackendError::incomplete()),
        }
    }
    Ok(Refunded::many(now.unwrap_or_default(), given, states))
}

/// A two-choices charge on shards in different slots.
pub(super) struct CrossSlotPair {
    pub(super) batcher: Batcher,
    /// Each shard by itself.
    pub(super) shards: [OwnedBucketId; 2],
    pub(super) charge: OwnedCharge,
    pub(super) deadline: Instant,
}

/// How often a pair is tried again from which other calls took meanwhile.
const TRIES: usize = 3;

impl CrossSlotPair {
    pub(super) async fn apply(self) -> Result<Applied, BackendError> {
        let (at_once, units) = (Terms::AT_ONCE, self.charge.units.max(0));
        if !self.charge.takes {
            let [(now, first), (then, second)] =
                [self.take(0, 0, at_once).await?, self.take(1, 0, at_once).await?];
            return Ok(self.judged([first.state(), second.state()], now.max(then)));
        }
        let (now, first) = self.take(0, units, at_once).await?;
        if first.verdict() == Verdict::Admitted {
            // The other shard was not read: the answer assumes that it holds as much as this one did.
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

    /// Charges two shards together that have both refused alone.
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
                // There is nothing to take: their states are the answer.
                return Ok(Applied::two(now, Reading::of_pair(&self.charge.charge(), &charged)));
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

    /// Charges one shard.
    pub(super) async fn take(
        &self,
        place: usize,
        units: Units,
        terms: Terms,
    ) -> Result<(Timestamp, Reading), BackendError> {
        let id = self.id(place)?;
        let one = OwnedCharge { id, other: None, units, terms, ..self.charge.clone() };
        let applied = self
            .batcher
            .send(Operation::Charges(smallvec![one]), self.deadline)
            .await?
            .applied()?;
        let reading = applied.readings().first().copied();
        reading.map(|reading| (applied.now(), reading)).ok_or_else(BackendError::incomplete)
    }

    /// Gives back what was taken from one shard, and returns what it then holds.
    pub(super) async fn give_back(
        &self,
        place: usize,
        taken: &Reading,
    ) -> Result<State, BackendError> {
        let id = self.id(place)?;
        let refund = Refund::new(id.get(), &self.charge.bucket, taken.units());
        let refund = match taken.verdict() {
            // Later reservations count on this one: unless it is the last, it cannot be undone.
            Verdict::Reserved => refund.if_untouched(taken.state()),
            Verdict::Admitted | Verdict::Refused => refund.less_gained_since(taken.state()),
        };
        let refund = OwnedRefund::with_id(id.clone(), &refund);
        let operation = Operation::Refunds(smallvec![refund]);
        let refunded = self.batcher.send(operation, self.deadline).await?.refunded()?;
        refunded.states().first().copied().ok_or_else(BackendError::incomplete)
    }

    fn id(&self, place: usize) -> Result<OwnedBucketId, BackendError> {
        self.shards.get(place).cloned().ok_or_else(BackendError::incomplete)
    }

    /// The answer of two shards with these states, from which nothing was taken.
    fn judged(&self, held: [State; 2], now: Timestamp) -> Applied {
        let OwnedCharge { bucket, units, terms, .. } = &self.charge;
        let charged = charge_pair(bucket, held, *units, *terms, now);
        let look = Charge::look(self.charge.id.get(), bucket, *units);
        let mut readings = Reading::of_pair(&look, &charged);
        if self.charge.takes && charged.verdict() != Verdict::Refused {
            // They had the units when read, and other calls were faster: worth another try at once.
            readings = readings
                .map(|it| Reading::new(Verdict::Refused, it.state(), Duration::from_micros(1)));
        }
        Applied::two(now, readings)
    }
}

/// Whether one call can name these buckets.
pub(super) fn is_single_slot(operation: &Operation) -> bool {
    let names = operation.names();
    let mut slots = names.iter().map(|name| name.slot());
    let first = slots.next();
    slots.all(|slot| Some(slot) == first)
}

/// The names of the limits, for an error.
pub(super) fn limits<'a>(ids: impl Iterator<Item = BucketId<'a>>) -> String {
    let mut names: Vec<_> = ids.map(|id| id.limit()).collect();
    names.dedup();
    names.join("`, `")
}
