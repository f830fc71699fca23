//! Refunds, settlements, penalties, blocks and resets of leased buckets.

use std::sync::Arc;

use smallvec::SmallVec;

use super::super::node::{LeaseNode, PermitReturn};
use super::super::terms::LeaseTerms;
use super::lease_driver::{LeaseDriver, LeasedBucket};
use super::table::wake;
use tollgate::algebra::{State, Units, Verdict};
use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BackendError, BucketId, Change, Key, OwnedBucketId,
    Reading,
};
use tollgate::clock::Timestamp;

/// What becomes of an adjustment.
enum ChangePart<'a> {
    /// It was made here.
    Here(Reading),
    /// The store makes it.
    Store(Adjustment<'a>),
    /// The store makes this change, by the terms of the lease.
    Leased(Change, Box<LeaseTerms>),
}

impl<B: Backend> LeaseDriver<B> {
    /// Makes all adjustments, some of them to leased buckets, or none if a bucket does not allow
    /// one.
    pub(super) fn change(self: &Arc<Self>, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        if adjustments.iter().any(|one| self.is_paid_by_lot(one)) {
            return Answer::Ready(Ok(self.refuse_all(adjustments)));
        }
        let parts: SmallVec<[ChangePart<'_>; 4]> =
            match adjustments.iter().any(Adjustment::is_conditional) {
                // The store may refuse the list, so no part of it can be made here before.
                true => adjustments.iter().map(|one| self.part_of_store(one)).collect(),
                false => adjustments.iter().map(|one| self.change_part(one)).collect(),
            };
        let rest: SmallVec<[Adjustment<'_>; 4]> = adjustments
            .iter()
            .zip(&parts)
            .filter_map(|(one, part)| match part {
                ChangePart::Here(_) => None,
                ChangePart::Store(one) => Some(*one),
                ChangePart::Leased(change, terms) => {
                    let changed = Adjustment::new(one.id(), terms.store(), *change);
                    Some(changed.with_receipt(one.receipt()))
                }
            })
            .collect();
        let here: SmallVec<[Option<Reading>; 4]> = parts
            .iter()
            .map(|part| match part {
                ChangePart::Here(reading) => Some(*reading),
                _ => None,
            })
            .collect();
        if rest.is_empty() {
            let readings = here.into_iter().flatten().collect();
            return Answer::Ready(Ok(Applied::many(self.clock.now(), readings)));
        }
        let blocked = self.blocked(adjustments);
        let (driver, answer) = (Arc::clone(self), self.inner.adjust(&rest));
        let merge = move |applied: Applied| {
            // Once more: a question may have been answered before the block was made.
            driver.forget_all(&blocked);
            merge(&here, &applied)
        };
        match answer {
            Answer::Ready(answer) => Answer::Ready(answer.and_then(merge)),
            Answer::Pending(answer) => Answer::pending(async move { merge(answer.await?) }),
        }
    }

    /// Whether this undoes a charge that a lot has paid: the store cannot know whether its bucket is
    /// untouched since.
    fn is_paid_by_lot(&self, one: &Adjustment<'_>) -> bool {
        let Change::Undo { left, .. } = one.change() else { return false };
        let Some(leased) = self.leased(one.id(), one.bucket()) else { return false };
        self.last_paid(&leased).is_some_and(|last| left.ts <= last)
    }

    fn refuse_all(&self, adjustments: &[Adjustment<'_>]) -> Applied {
        let now = self.clock.now();
        let reading = |one: &Adjustment<'_>| {
            let leased = self.leased(one.id(), one.bucket());
            let state = leased.and_then(|leased| {
                self.with_record(leased.limit, one.id().key(), |record| record.state(now))
            });
            let state = state.unwrap_or(State { value: 0, ts: now });
            Reading::in_micros(Verdict::Refused, state, 0, 0)
        };
        Applied::many(now, adjustments.iter().map(reading).collect())
    }

    /// An adjustment that the store alone makes.
    fn part_of_store<'a>(&self, one: &Adjustment<'a>) -> ChangePart<'a> {
        let leased = self.leased(one.id(), one.bucket());
        let terms =
            leased.and_then(|leased| self.terms(leased.limit, leased.bucket).zip(Some(leased)));
        let Some((terms, leased)) = terms else { return ChangePart::Store(*one) };
        let (units, origin) = match (one.change(), one.receipt().charged()) {
            (Change::Refund { units }, Some(origin)) if units > 0 => (units, origin),
            (Change::RefundSince { units, since }, _) if units > 0 => (units, since),
            (other, _) => return ChangePart::Leased(other, Box::new(terms)),
        };
        let last_paid = self.last_paid(&leased);
        let change = match LeaseNode::return_to_store(&terms, units, origin, last_paid) {
            PermitReturn::Store(back) => {
                Change::RefundSince { units: back.units, since: back.since }
            }
            PermitReturn::Lot | PermitReturn::Lost => Change::Refund { units: 0 },
        };
        ChangePart::Leased(change, Box::new(terms))
    }

    /// Makes the part of an adjustment that concerns the lots of this node.
    fn change_part<'a>(self: &Arc<Self>, one: &Adjustment<'a>) -> ChangePart<'a> {
        let Some(leased) = self.leased(one.id(), one.bucket()) else {
            return ChangePart::Store(*one);
        };
        let Some(terms) = self.terms(leased.limit, leased.bucket) else {
            return ChangePart::Store(*one);
        };
        match one.change() {
            Change::Refund { units } if units < 0 => self.penalize(&leased, terms, units),
            Change::RefundSince { units, .. } if units < 0 => self.penalize(&leased, terms, units),
            Change::Refund { units } => match one.receipt().charged() {
                Some(origin) => self.take_back(&leased, terms, units, origin),
                // Nothing is known of the charge, so the store has to go by its own rule.
                None => ChangePart::Leased(Change::Refund { units }, Box::new(terms)),
            },
            Change::RefundSince { units, since } => self.take_back(&leased, terms, units, since),
            Change::Block { time } if !time.is_zero() => {
                self.forget(&leased.id);
                ChangePart::Leased(Change::Block { time }, Box::new(terms))
            }
            other => ChangePart::Leased(other, Box::new(terms)),
        }
    }

    /// Takes units: first from the lots, and the rest from the store, into debt if need be.
    fn penalize<'a>(
        &self,
        leased: &LeasedBucket<'_>,
        terms: LeaseTerms,
        units: Units,
    ) -> ChangePart<'a> {
        let now = self.clock.now();
        let taken = self.with_record_in(&terms, leased.limit, leased.id.key(), |record| {
            let rest = record.node.penalize(units.saturating_neg(), now);
            (rest, record.state(now))
        });
        match taken {
            Some((0, state)) => {
                ChangePart::Here(Reading::in_micros(Verdict::Admitted, state, 0, 0))
            }
            rest => {
                let units = rest.map_or(units, |(rest, _)| rest.saturating_neg());
                ChangePart::Leased(Change::Refund { units }, Box::new(terms))
            }
        }
    }

    /// Takes tokens of a permit back into the lot that has paid them, or sends them to the store.
    fn take_back<'a>(
        self: &Arc<Self>,
        leased: &LeasedBucket<'_>,
        terms: LeaseTerms,
        units: Units,
        origin: State,
    ) -> ChangePart<'a> {
        let (back, state) = self.put_back(leased.limit, leased.id.key(), &terms, units, origin);
        match back {
            PermitReturn::Store(back) => {
                let change = Change::RefundSince { units: back.units, since: back.since };
                ChangePart::Leased(change, Box::new(terms))
            }
            PermitReturn::Lot | PermitReturn::Lost => {
                ChangePart::Here(Reading::in_micros(Verdict::Admitted, state, 0, 0))
            }
        }
    }

    /// Puts tokens which have left the bucket as `origin` back into the lot that has paid them.
    /// Returns what is to be done about them otherwise, and what the bucket holds here.
    pub(super) fn put_back(
        self: &Arc<Self>,
        limit: usize,
        key: &Key,
        terms: &LeaseTerms,
        units: Units,
        origin: State,
    ) -> (PermitReturn, State) {
        let now = self.clock.now();
        let place = self.table.place(limit, key);
        let Some(mut part) = self.table.part(place) else { return (PermitReturn::Lost, origin) };
        let forgotten = part.forgotten();
        let put = match part.find(place, key) {
            Some(record) if record.terms == *terms => {
                let node = &mut record.node;
                let back = node.take_back(terms, units, origin, forgotten, now);
                (back, record.state(now))
            }
            // The lots in those numbers are gone, and the refill has replaced what they had paid.
            other => {
                let last_paid = other.and_then(|record| record.node.last_paid());
                let last_paid = last_paid.max(forgotten);
                (LeaseNode::return_to_store(terms, units, origin, last_paid), origin)
            }
        };
        if put.0 == PermitReturn::Lot {
            // A lot with more in it may have something to give back.
            part.plan_look(place, now);
            let has_looks = part.has_looks();
            drop(part);
            if has_looks {
                self.look_after_lots();
            }
        }
        put
    }

    /// When a lot of this bucket has last paid, as far as this node remembers.
    fn last_paid(&self, leased: &LeasedBucket<'_>) -> Option<Timestamp> {
        let key = leased.id.key();
        let place = self.table.place(leased.limit, key);
        let mut part = self.table.part(place)?;
        let forgotten = part.forgotten();
        let known = part.find(place, key).and_then(|record| record.node.last_paid());
        known.max(forgotten)
    }

    /// The leased buckets that are blocked by these adjustments.
    fn blocked(&self, adjustments: &[Adjustment<'_>]) -> SmallVec<[OwnedBucketId; 1]> {
        let blocks = adjustments.iter().filter(|one| matches!(one.change(), Change::Block { .. }));
        let ids = blocks.map(Adjustment::id).filter(|id| self.is_leased(id));
        ids.map(BucketId::into_owned).collect()
    }

    /// Forgets these buckets at the store, and all that this node knows of them.
    pub(super) fn forget_buckets(self: &Arc<Self>, ids: &[BucketId<'_>]) -> Answer<()> {
        let leased: SmallVec<[OwnedBucketId; 1]> =
            ids.iter().filter(|id| self.is_leased(id)).map(|id| id.into_owned()).collect();
        self.forget_all(&leased);
        let driver = Arc::clone(self);
        // Once more after the answer: a question may have been answered before the reset.
        self.inner.reset(ids).map(move |()| driver.forget_all(&leased))
    }

    fn is_leased(&self, id: &BucketId<'_>) -> bool {
        self.limits.iter().any(|limit| *limit.name == *id.limit())
    }

    fn forget_all(&self, ids: &[OwnedBucketId]) {
        ids.iter().for_each(|id| self.forget(&id.as_id()));
    }

    fn forget(&self, id: &BucketId<'_>) {
        let limit = self.limits.iter().position(|limit| *limit.name == *id.limit());
        if let Some(limit) = limit {
            let waiting = self.with_record(limit, id.key(), |record| {
                record.node.forget();
                record.answered.take()
            });
            wake(waiting.flatten());
        }
    }
}

/// Puts what was made here and what the store has answered together. If the store made nothing, its
/// refusal is that of all.
fn merge(here: &[Option<Reading>], applied: &Applied) -> Result<Applied, BackendError> {
    let mut rest = applied.readings().iter();
    let mut readings = Vec::with_capacity(here.len());
    for here in here {
        let reading = here.as_ref().or_else(|| rest.next()).ok_or_else(BackendError::incomplete)?;
        readings.push(*reading);
    }
    Ok(Applied::many(applied.now(), readings))
}
