//! Several charges at once: lots pay first, then one call charges the rest, all or nothing.

use std::sync::Arc;

use smallvec::SmallVec;

use super::super::terms::LeaseTerms;
use super::lease_driver::{LeaseDriver, LeasedBucket, too_large};
use super::takes::TakeOutcome;
use crate::algebra::{Bucket, State, Units, Verdict};
use crate::backend::answer::Remarks;
use crate::backend::{Answer, Applied, Backend, BackendError, Charge, Key, Reading};
use crate::clock::Timestamp;

/// One charge of a list.
enum ListPart {
    /// A lot has paid.
    Lot { limit: usize, key: Key, units: Units, reading: Reading },
    /// This node knows that the tokens are not there.
    Refused { reading: Reading },
    /// The store decides, and answers with so many readings.
    Store { readings: usize, lots: Option<Box<StoredPart>> },
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

impl<B: Backend> LeaseDriver<B> {
    /// Decides about a list of charges, some of them on leased buckets.
    pub(super) fn take_list(self: &Arc<Self>, charges: &[Charge<'_>]) -> Answer<Applied> {
        let mut parts = ListParts::new();
        for charge in charges {
            match self.part(charge) {
                Ok(part) => parts.push(part),
                Err(error) => {
                    self.put_back(&mut parts);
                    return Answer::Ready(Err(error));
                }
            }
        }
        let is_refused = parts.iter().any(|part| matches!(part, ListPart::Refused { .. }));
        if is_refused {
            self.put_back(&mut parts);
        }
        let mut terms = SmallVec::<[Option<LeaseTerms>; 4]>::new();
        terms.extend(parts.iter().map(|part| match part {
            ListPart::Store { lots: Some(stored), .. } => Some(stored.terms),
            _ => None,
        }));
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
        match self.inner.apply(&rest) {
            Answer::Ready(answer) => {
                Answer::Ready(answer.and_then(|applied| self.merge(parts, is_refused, &applied)))
            }
            // If the future is dropped, the rest may have been charged, so the lots have paid.
            Answer::Pending(answer) => {
                let driver = Arc::clone(self);
                Answer::pending(async move {
                    let applied = answer.await?;
                    driver.merge(parts, is_refused, &applied)
                })
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
                Ok(ListPart::Lot { limit, key, units, reading })
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

    /// Returns what the lots have paid, to the same lots.
    fn put_back(&self, parts: &mut ListParts) {
        let now = self.clock.now();
        for part in parts {
            let ListPart::Lot { limit, key, units, reading, .. } = part else { continue };
            let state = self.with_record(*limit, key, |record| {
                record.node.put_back(&record.terms, *units, reading.state(), now);
                record.state(now)
            });
            let state = state.unwrap_or(reading.state());
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
            ListPart::Lot { limit, key, reading, .. } => {
                let now = self.clock.now();
                let state = self.with_record(*limit, key, |record| record.state(now));
                let state: State = state.unwrap_or(reading.state());
                Some(Reading::in_micros(Verdict::Admitted, state, reading.units(), 0))
            }
            ListPart::Refused { reading } => Some(*reading),
            ListPart::Store { .. } => None,
        }
    }

    /// Puts the readings of the store and those of the lots together.
    fn merge(
        &self,
        mut parts: ListParts,
        is_refused: bool,
        applied: &Applied,
    ) -> Result<Applied, BackendError> {
        if applied.verdict() == Verdict::Refused && !is_refused {
            self.put_back(&mut parts);
        }
        let (mut rest, mut kept) = (applied.readings(), Remarks::NONE);
        let mut readings = Vec::with_capacity(parts.len());
        for part in &parts {
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
    let same = same.terms(terms);
    charge.get_second_shard().map_or(same, |shard| same.second_shard(shard))
}
