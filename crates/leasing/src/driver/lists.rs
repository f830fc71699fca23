//! Several charges at once: lots pay first, then one call charges the rest, all or nothing.

use std::pin::Pin;
use std::sync::Arc;

use smallvec::SmallVec;

use super::super::node::PermitReturn;
use super::super::terms::LeaseTerms;
use super::lease_driver::{LeaseDriver, LeasedBucket, too_large};
use super::takes::{TakeOutcome, check_life, within_life};
use tollgate::algebra::{Bucket, State, Units, Verdict};
use tollgate::backend::{Answer, Applied, Backend, BackendError, BucketId, Charge, Key, Reading};
use tollgate::clock::Timestamp;
use tollgate::kit::Remarks;

/// One charge of a list.
enum ListPart {
    /// A lot has paid.
    Lot(Box<LotPart>),
    /// This node knows that the tokens are not there.
    Refused { reading: Reading },
    /// The store decides, and answers with so many readings.
    Store { readings: usize, lots: Option<Box<StoredPart>> },
}

/// A charge that a lot has paid.
struct LotPart {
    limit: usize,
    key: Key,
    terms: LeaseTerms,
    units: Units,
    reading: Reading,
}

/// A charge on a leased bucket that the store decides.
struct StoredPart {
    limit: usize,
    key: Key,
    terms: LeaseTerms,
    units: Units,
    is_look: bool,
}

type ListParts = SmallVec<[ListPart; 4]>;

type StoreAnswer = Pin<Box<dyn Future<Output = Result<Applied, BackendError>> + Send>>;

/// A list of which the store decides a part. Unless the store admits that, no lot has paid.
struct ListTrip<B: Backend> {
    driver: Arc<LeaseDriver<B>>,
    parts: ListParts,
    /// Whether the list is refused already, and the store only looks.
    is_refused: bool,
    sent: Timestamp,
    /// For how long the tokens of leased buckets may be used.
    life: Option<u64>,
    /// What the store is about to say.
    answer: Option<StoreAnswer>,
    /// Whether its caller has gone.
    is_left: bool,
}

impl ListPart {
    /// The terms of a leased bucket that has paid, or that the store decides about.
    fn terms(&self) -> Option<&LeaseTerms> {
        match self {
            Self::Lot(part) => Some(&part.terms),
            Self::Store { lots, .. } => lots.as_deref().map(|stored| &stored.terms),
            Self::Refused { .. } => None,
        }
    }

    /// For how long what it takes of a leased bucket may be used.
    fn life(&self) -> Option<u64> {
        match self {
            Self::Store { lots: Some(stored), .. } if stored.is_look => None,
            part => part.terms().map(LeaseTerms::safe_life),
        }
    }
}

impl<B: Backend> ListTrip<B> {
    /// Waits for the part of the store.
    async fn run(mut self) -> Result<Applied, BackendError> {
        let answer = match &mut self.answer {
            Some(answer) => answer.await,
            None => return Err(BackendError::incomplete()),
        };
        self.answer = None;
        self.end(answer)
    }

    /// Puts the answer of the store and what the lots have paid together.
    fn end(&mut self, answer: Result<Applied, BackendError>) -> Result<Applied, BackendError> {
        let now = self.driver.clock.now();
        let (is_refused, driver) = (self.is_refused, &self.driver);
        let answer = answer.and_then(|applied| match self.life {
            Some(life) if !is_refused && applied.verdict() != Verdict::Refused => {
                check_life(life, self.sent, now).map(|()| applied)
            }
            _ => Ok(applied),
        });
        let is_admitted =
            answer.as_ref().is_ok_and(|applied| applied.verdict() != Verdict::Refused);
        if !is_admitted && !is_refused {
            driver.put_back_list(&mut self.parts);
        }
        driver.merge(&self.parts, &answer?)
    }
}

/// A caller that goes away does not learn what the store does, so a task waits for that. If there is
/// none any more, the lots have not paid.
impl<B: Backend> Drop for ListTrip<B> {
    fn drop(&mut self) {
        let Some(answer) = self.answer.take() else { return };
        let has_paid = |part: &ListPart| matches!(part, ListPart::Lot(_));
        if self.is_refused || !self.parts.iter().any(has_paid) {
            return;
        }
        let mut parts = std::mem::take(&mut self.parts);
        match self.driver.runtime().filter(|_| !self.is_left) {
            Some(runtime) => {
                let (driver, answer) = (Arc::clone(&self.driver), Some(answer));
                let Self { is_refused, sent, life, .. } = *self;
                let left = Self { driver, parts, is_refused, sent, life, answer, is_left: true };
                runtime.spawn(left.run());
            }
            None => self.driver.put_back_list(&mut parts),
        }
    }
}

impl<B: Backend> LeaseDriver<B> {
    /// Decides about a list of charges, some of them on leased buckets.
    pub(super) fn take_list(self: &Arc<Self>, charges: &[Charge<'_>]) -> Answer<Applied> {
        let mut parts = ListParts::new();
        for charge in charges {
            match self.part(charge) {
                Ok(part) => parts.push(part),
                Err(error) => {
                    self.put_back_list(&mut parts);
                    return Answer::Ready(Err(error));
                }
            }
        }
        let is_refused = parts.iter().any(|part| matches!(part, ListPart::Refused { .. }));
        if is_refused {
            self.put_back_list(&mut parts);
        }
        let terms: SmallVec<[Option<LeaseTerms>; 4]> =
            parts.iter().map(|part| part.terms().copied()).collect();
        let mut rest = SmallVec::<[Charge<'_>; 4]>::new();
        for ((charge, part), terms) in charges.iter().zip(&parts).zip(&terms) {
            if let ListPart::Store { .. } = part {
                let bucket = terms.as_ref().map_or(charge.bucket(), LeaseTerms::store);
                rest.push(charge_of(charge, bucket, is_refused));
            }
        }
        if rest.is_empty() {
            let (at, readings) = (self.store_time(charges), self.here(&parts));
            return Answer::Ready(Ok(Applied::many(at, readings)));
        }
        let life = parts.iter().filter_map(ListPart::life).min().filter(|_| !is_refused);
        let (driver, sent) = (Arc::clone(self), self.clock.now());
        let answer = self.inner.apply(&rest);
        let mut trip =
            ListTrip { driver, parts, is_refused, sent, life, answer: None, is_left: false };
        match answer {
            Answer::Ready(answer) => Answer::Ready(trip.end(answer)),
            Answer::Pending(answer) => {
                trip.answer = Some(match life {
                    Some(life) => Box::pin(within_life(self.runtime(), life, answer)),
                    None => answer,
                });
                Answer::pending(trip.run())
            }
        }
    }

    /// What a charge is, after its lots have paid if they can.
    fn part(self: &Arc<Self>, charge: &Charge<'_>) -> Result<ListPart, BackendError> {
        let readings = if charge.get_second_shard().is_some() { 2 } else { 1 };
        let unleased = ListPart::Store { readings, lots: None };
        let Some(leased) = self.leased_by(charge) else { return Ok(unleased) };
        let Some(terms) = self.terms(leased.limit, leased.bucket) else { return Ok(unleased) };
        let (units, limit, key) = (charge.units(), leased.limit, leased.id.key().clone());
        let is_look = !charge.takes();
        if is_look || units <= 0 {
            let stored = StoredPart { limit, key, terms, units, is_look };
            return Ok(ListPart::Store { readings, lots: Some(Box::new(stored)) });
        }
        match self.step(&leased, units, true) {
            Some(TakeOutcome::Decided(_, reading)) if reading.verdict() == Verdict::Admitted => {
                Ok(ListPart::Lot(Box::new(LotPart { limit, key, terms, units, reading })))
            }
            Some(TakeOutcome::Decided(_, reading)) => Ok(ListPart::Refused { reading }),
            Some(TakeOutcome::Failed(error)) => Err(error),
            _ if units > terms.store().capacity() => {
                Err(too_large(self.limit_name(limit), units, &terms))
            }
            // A list does not wait for a lot: it makes a trip anyway.
            _ => {
                let stored = StoredPart { limit, key, terms, units, is_look };
                Ok(ListPart::Store { readings, lots: Some(Box::new(stored)) })
            }
        }
    }

    /// Returns what the lots have paid to them. If they are void, it goes where tokens of a permit go.
    fn put_back_list(self: &Arc<Self>, parts: &mut ListParts) {
        for part in parts {
            let ListPart::Lot(part) = part else { continue };
            let LotPart { limit, key, terms, units, reading } = &mut **part;
            let (back, state) = self.put_back(*limit, key, terms, *units, reading.state());
            if let PermitReturn::Store(back) = back {
                self.send_back(BucketId::new(self.limit_name(*limit), key), terms, &back);
            }
            *reading = Reading::in_micros(Verdict::Admitted, state, 0, 0);
        }
    }

    /// The readings of a list that was decided here. A bucket that is named twice is reported as it
    /// is in the end.
    fn here(&self, parts: &ListParts) -> Vec<Reading> {
        parts.iter().flat_map(|part| self.reading(part)).collect()
    }

    fn reading(&self, part: &ListPart) -> Option<Reading> {
        match part {
            ListPart::Lot(part) => {
                let (now, LotPart { limit, key, terms, reading, .. }) = (self.clock.now(), &**part);
                let state = self.with_record_in(terms, *limit, key, |record| record.state(now));
                let state: State = state.unwrap_or(reading.state());
                Some(Reading::in_micros(Verdict::Admitted, state, reading.units(), 0))
            }
            ListPart::Refused { reading } => Some(*reading),
            ListPart::Store { .. } => None,
        }
    }

    /// Puts the readings of the store and those of the lots together.
    fn merge(&self, parts: &ListParts, applied: &Applied) -> Result<Applied, BackendError> {
        let (mut rest, mut kept) = (applied.readings(), Remarks::NONE);
        let mut readings = Vec::with_capacity(parts.len());
        for part in parts {
            let ListPart::Store { readings: count, lots } = part else {
                readings.extend(self.reading(part));
                continue;
            };
            let (own, others) =
                rest.split_at_checked(*count).ok_or_else(BackendError::incomplete)?;
            let first = applied.readings().len().saturating_sub(rest.len());
            rest = others;
            match (lots, own) {
                (Some(stored), [reading]) => {
                    let is_kept = applied.kept(first).is_some();
                    readings.push(self.stored(stored, reading, is_kept));
                }
                _ => {
                    for (nth, reading) in (first..).zip(own) {
                        let record = applied.kept(nth);
                        record.into_iter().for_each(|record| kept.add(readings.len(), *record));
                        readings.push(*reading);
                    }
                }
            }
        }
        Ok(Applied::many(applied.now(), readings).with_remarks(kept))
    }

    /// The reading of a charge on a leased bucket that the store has decided.
    fn stored(&self, part: &StoredPart, reading: &Reading, is_kept: bool) -> Reading {
        let StoredPart { limit, key, terms, units, is_look } = part;
        if *is_look {
            return self.with_lots(*limit, key, terms, *units, reading, is_kept);
        }
        if reading.verdict() == Verdict::Refused {
            let now = self.clock.now();
            let wait = u64::try_from(reading.wait().as_micros()).unwrap_or(u64::MAX);
            self.with_record_in(terms, *limit, key, |record| {
                record.node.deny(terms, *units, wait, now);
            });
        }
        *reading
    }

    /// The time of the store, as the first leased bucket of the list reckons it.
    fn store_time(&self, charges: &[Charge<'_>]) -> Timestamp {
        let now = self.clock.now();
        let times = charges.iter().filter_map(|charge| {
            let leased: LeasedBucket<'_> = self.leased_by(charge)?;
            let key = leased.id.key();
            self.with_record(leased.limit, key, |record| record.node.store_time(now))
        });
        times.max().unwrap_or(now)
    }
}

/// A charge for the store. If the list is refused already, it only looks.
fn charge_of<'c>(charge: &Charge<'c>, bucket: &'c Bucket, is_refused: bool) -> Charge<'c> {
    let (id, units, terms) = (charge.id(), charge.units(), charge.get_terms());
    let same = match charge.takes() && !is_refused {
        true => Charge::take(id, bucket, units),
        false => Charge::look(id, bucket, units),
    };
    let same = same.terms(terms).on_failure(charge.get_on_failure());
    charge.get_second_shard().map_or(same, |shard| same.second_shard(shard))
}
