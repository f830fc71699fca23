//! Operations on buckets in several slots of a cluster, which one call must not name together.
//!
//! # Design
//!
//! * **Looks, resets and unconditional adjustments** need no single instant, so they are sent slot
//!   by slot.
//! * **A two-choices charge** usually has its shards in two slots. It tries one shard, and the
//!   other only if the first refuses. If both refuse, both states are known, and
//!   [`charge_pair_slower`] decides. Its result is then carried out on one shard, or on both one
//!   after the other.
//! * **Everything else** is all or nothing, and refused before anything is sent.
//!
//! For example, shards A and B hold 3 tokens each, and a charge costs 4. A refuses, then B refuses.
//! `charge_pair` says: 2 from each. A pays 2. If B has only 1 by then, because another process was
//! faster, A gets its 2 back, and the charge starts over with the new states. A reservation is only
//! given back if no other charge came to its shard since; otherwise later reservations count on it,
//! and its tokens stay taken.

use std::sync::Arc;
use std::time::Duration;

use super::carrier::RedisCarrier;
use tokio::time::Instant;
use tollgate::algebra::{Bucket, Charged, State, Terms, Units, Verdict, charge_pair_slower};
use tollgate::backend::{
    Adjustment, Applied, BackendError, BucketId, BucketRecord, Charge, OwnedCharge, Reading,
};
use tollgate::clock::Timestamp;
use tollgate::kit::Remarks;
use tollgate_kit::batch::Batcher;
use tollgate_kit::key_name::{KeyName, KeyNames};
use tollgate_kit::operation::{NamedOperation, Operation};

/// Carries out charges that only look, each by itself.
pub(super) async fn look(
    batcher: Batcher<RedisCarrier>,
    looks: Vec<NamedOperation>,
    deadline: Instant,
) -> Result<Applied, BackendError> {
    // Send all before awaiting the first.
    let answers: Vec<_> = looks.into_iter().map(|look| batcher.send(look, deadline)).collect();
    let (mut now, mut readings, mut kept) = (None, Vec::new(), Remarks::NONE);
    for answer in answers {
        let applied = answer.await?;
        now = now.max(Some(applied.now()));
        kept.append(readings.len(), &applied);
        readings.extend_from_slice(applied.readings());
    }
    Ok(Applied::many(now.unwrap_or_default(), readings).with_remarks(kept))
}

/// The parts of a list of adjustments, each by itself, and the verdict on all of them: no single instant
/// shows whether several buckets are untouched, so with an undo among them they are refused, and only
/// looked at.
pub(super) fn parts(
    adjustments: &[Adjustment<'_>],
    names: &KeyNames,
) -> (Vec<NamedOperation>, Verdict) {
    let made = !adjustments.iter().any(Adjustment::is_conditional);
    let parts = adjustments.iter().map(|one| {
        let operation = match made {
            true => Operation::adjustments(&[*one]),
            false => Operation::charges(&[Charge::look(one.id(), one.bucket(), 0)]),
        };
        NamedOperation::new(operation, names)
    });
    (parts.collect(), if made { Verdict::Admitted } else { Verdict::Refused })
}

/// Makes adjustments, each by itself.
pub(super) async fn adjust(
    batcher: Batcher<RedisCarrier>,
    parts: Vec<NamedOperation>,
    verdict: Verdict,
    deadline: Instant,
) -> Result<Applied, BackendError> {
    let answers: Vec<_> = parts.into_iter().map(|part| batcher.send(part, deadline)).collect();
    let (mut now, mut readings, mut kept) = (None, Vec::new(), Remarks::NONE);
    for applied in all(answers).await? {
        now = now.max(Some(applied.now()));
        kept.append(readings.len(), &applied);
        let states = applied.readings().iter().map(Reading::state);
        readings.extend(states.map(|state| Reading::new(verdict, state, Duration::ZERO)));
    }
    Ok(Applied::many(now.unwrap_or_default(), readings).with_remarks(kept))
}

/// Waits for the answers to all parts of an operation.
///
/// # Errors
///
/// The first one. A part that is dropped before it was sent is not sent, so the others are awaited
/// all the same.
pub(super) async fn all<T>(
    answers: impl IntoIterator<Item: Future<Output = Result<T, BackendError>>>,
) -> Result<Vec<T>, BackendError> {
    let mut answered = Vec::new();
    for answer in answers {
        answered.push(answer.await);
    }
    answered.into_iter().collect()
}

/// A two-choices charge on shards in different slots.
pub(super) struct CrossSlotPair {
    pub(super) batcher: Batcher<RedisCarrier>,
    pub(super) names: Arc<KeyNames>,
    pub(super) charge: OwnedCharge,
    pub(super) deadline: Instant,
}

/// How often a pair is tried while other calls take from it.
const TRIES: usize = 3;

/// What is known of a shard: its state, and the numbers by which it gains. These are those of the
/// charge, or faster ones of its limit that the shard keeps.
type HeldShard = (Bucket, State);

impl CrossSlotPair {
    pub(super) async fn apply(self) -> Result<Applied, BackendError> {
        let (at_once, charge) = (Terms::AT_ONCE, self.charge.as_charge());
        let units = charge.units().max(0);
        if !charge.takes() {
            let [first, second] =
                [self.take(0, 0, at_once).await?, self.take(1, 0, at_once).await?];
            return Ok(self.judge([first.held, second.held], first.now.max(second.now)));
        }
        let first = self.take(0, units, at_once).await?;
        if first.reading.verdict() == Verdict::Admitted {
            // The other shard was not read. The answer assumes that it holds as much as this one
            // did.
            let State { value, ts } = first.reading.state();
            let like = State { value: value.saturating_add(first.reading.units()), ts };
            let like = Reading::new(Verdict::Admitted, like, Duration::ZERO);
            return Ok(Applied::two(first.now, [first.reading, like]));
        }
        let second = self.take(1, units, at_once).await?;
        if second.reading.verdict() == Verdict::Admitted {
            let other = first.reading.state();
            let other = Reading::new(Verdict::Admitted, other, Duration::ZERO);
            return Ok(Applied::two(second.now, [other, second.reading]));
        }
        self.charge_both([first.held, second.held], first.now.max(second.now)).await
    }

    /// Charges two shards together, after each has refused alone.
    async fn charge_both(
        &self,
        mut held: [HeldShard; 2],
        mut now: Timestamp,
    ) -> Result<Applied, BackendError> {
        let terms = self.charge.as_charge().get_terms();
        for _ in 0..TRIES {
            let charged = self.charge_pair(held, now);
            if charged.verdict() == Verdict::Refused {
                break;
            }
            if charged.paid() == [0, 0] {
                // Nothing is to be taken, so the states are the answer.
                return Ok(Applied::two(
                    now,
                    Reading::from_charged_pair(&self.charge.as_charge(), &charged),
                ));
            }
            let mut readings = charged
                .before()
                .map(|state| Reading::new(Verdict::Admitted, state, Duration::ZERO));
            let (mut enough, mut failure) = (true, None);
            for (place, (units, (reading, held))) in
                charged.paid().into_iter().zip(readings.iter_mut().zip(&mut held)).enumerate()
            {
                if units <= 0 || !enough {
                    continue;
                }
                match self.take(place, units, terms).await {
                    Ok(said) => {
                        enough = said.reading.verdict() != Verdict::Refused;
                        (*reading, *held, now) = (said.reading, said.held, now.max(said.now));
                    }
                    Err(error) => (enough, failure) = (false, Some(error)),
                }
            }
            if enough {
                let wait = readings.iter().map(Reading::wait).max().unwrap_or_default();
                let verdict = if wait.is_zero() { Verdict::Admitted } else { Verdict::Reserved };
                let readings =
                    readings.map(|it| Reading::new(verdict, it.state(), wait).taking(it.units()));
                return Ok(Applied::two(now, readings));
            }
            for (place, (taken, held)) in readings.iter().zip(&mut held).enumerate() {
                if taken.units() > 0 {
                    match self.give_back(place, taken).await {
                        Ok(left) => *held = left,
                        Err(error) => _ = failure.get_or_insert(error),
                    }
                }
            }
            // No shard keeps its tokens because the other one failed.
            if let Some(error) = failure {
                return Err(error);
            }
        }
        Ok(self.judge(held, now))
    }

    fn charge_pair(&self, held: [HeldShard; 2], now: Timestamp) -> Charged<[State; 2]> {
        let charge = self.charge.as_charge();
        let (bucket, phase) = (charge.bucket(), charge.id().phase(charge.bucket()));
        charge_pair_slower(held, bucket, charge.units(), charge.get_terms(), now, phase)
    }

    /// Charges one shard.
    pub(super) async fn take(
        &self,
        place: usize,
        units: Units,
        terms: Terms,
    ) -> Result<TakenShard, BackendError> {
        let (id, charge) = (self.id(place)?, self.charge.as_charge());
        let one = match charge.takes() {
            true => Charge::take(id, charge.bucket(), units),
            false => Charge::look(id, charge.bucket(), units),
        };
        let operation = NamedOperation::new(Operation::charges(&[one.terms(terms)]), &self.names);
        let applied = self.batcher.send(operation, self.deadline).await?;
        let reading = *applied.readings().first().ok_or_else(|| internal(NO_READING))?;
        Ok(TakenShard { now: applied.now(), reading, held: self.held(&applied, &reading) })
    }

    /// What an answer on one shard tells of it.
    fn held(&self, applied: &Applied, reading: &Reading) -> HeldShard {
        let own = applied.kept(0).map(|own| (*own.bucket(), own.state()));
        own.unwrap_or((*self.charge.as_charge().bucket(), reading.state()))
    }

    /// Gives back what was taken from one shard, and returns what it then holds.
    pub(super) async fn give_back(
        &self,
        place: usize,
        taken: &Reading,
    ) -> Result<HeldShard, BackendError> {
        let (id, charge) = (self.id(place)?, self.charge.as_charge());
        let (bucket, units) = (charge.bucket(), taken.units());
        let adjustment = match taken.verdict() {
            // Later reservations count on this one. Unless it is the last, it cannot be undone.
            Verdict::Reserved => Adjustment::undo(id, bucket, units, taken.state()),
            _ => Adjustment::refund_since(id, bucket, units, taken.state()),
        };
        let operation = NamedOperation::new(Operation::adjustments(&[adjustment]), &self.names);
        // The deadline of the charge may have passed: that can be why it failed.
        let applied = self.batcher.send(operation, self.batcher.deadline()).await?;
        let reading = applied.readings().first().ok_or_else(|| internal(NO_READING))?;
        Ok(self.held(&applied, reading))
    }

    fn id(&self, place: usize) -> Result<BucketId<'_>, BackendError> {
        let id = self.charge.as_charge().ids().nth(place);
        id.ok_or_else(|| internal("a pair has two shards"))
    }

    /// The answer of two shards that hold this, of which nothing was taken.
    fn judge(&self, held: [HeldShard; 2], now: Timestamp) -> Applied {
        let (charge, charged) = (self.charge.as_charge(), self.charge_pair(held, now));
        let bucket = charge.bucket();
        let look = Charge::look(charge.id(), bucket, charge.units());
        let mut readings = Reading::from_charged_pair(&look, &charged);
        if charge.takes() && charged.verdict() != Verdict::Refused {
            // They had the units when they were read, but other calls were faster: a retry at once
            // may succeed.
            readings = readings
                .map(|it| Reading::new(Verdict::Refused, it.state(), Duration::from_micros(1)));
        }
        let mut kept = Remarks::NONE;
        for (nth, (own, state)) in held.iter().enumerate().filter(|(_, (own, _))| own != bucket) {
            kept.add(nth, BucketRecord::new(own, *state));
        }
        Applied::two(now, readings).with_remarks(kept)
    }
}

/// What a store has answered about one shard.
pub(super) struct TakenShard {
    pub(super) now: Timestamp,
    pub(super) reading: Reading,
    held: HeldShard,
}

const NO_READING: &str = "a bucket has no reading";

const fn internal(what: &'static str) -> BackendError {
    BackendError::internal("redis", what)
}

/// Whether one call can name these buckets.
pub(super) fn share_a_slot(names: &[KeyName]) -> bool {
    let mut slots = names.iter().map(KeyName::slot);
    let first = slots.next();
    slots.all(|slot| Some(slot) == first)
}

/// The names of the limits, for an error.
pub(super) fn limits<'a>(ids: impl Iterator<Item = BucketId<'a>>) -> String {
    let mut names: Vec<_> = ids.map(|id| id.limit()).collect();
    names.dedup();
    names.join("`, `")
}
