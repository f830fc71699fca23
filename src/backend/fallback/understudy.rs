//! The local store: it follows what the store does, and decides in its place.

use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use super::numbers::{LocalNumbers, adjustment_in, state_in};
use crate::algebra::{Bucket, Units, Verdict};
use crate::backend::Backend;
use crate::backend::adjustment::{Adjustment, convert_units, cost_in};
use crate::backend::answer::{Answer, Applied, Reading};
use crate::backend::charge::{BucketId, Charge};
use crate::backend::error::BackendError;
use crate::backend::on_failure::OnFailure;
use crate::backend::origin::{Origin, Unpaid};

/// The local store of a fallback.
#[derive(Debug)]
pub(super) struct Understudy<L> {
    store: L,
    pub(super) numbers: LocalNumbers,
    admitted: AtomicU64,
    refused: AtomicU64,
}

impl<L: Backend> Understudy<L> {
    pub(super) fn new(store: L) -> Self {
        let (admitted, refused) = Default::default();
        Self { store, numbers: LocalNumbers::new(), admitted, refused }
    }

    pub(super) fn charges_several(&self) -> bool {
        self.store.charges_several()
    }

    pub(super) fn answers_at_once(&self) -> bool {
        self.store.answers_at_once()
    }

    pub(super) fn admitted(&self) -> u64 {
        self.admitted.load(Ordering::Relaxed)
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Takes what the store has taken, as far as the local buckets hold it. The answer then tells
    /// what they do not.
    pub(super) fn mirror(&self, charges: &[Charge<'_>], applied: Applied) -> Applied {
        if applied.verdict() == Verdict::Refused {
            return applied;
        }
        let named = charges.iter().flat_map(|charge| charge.ids().map(move |id| (charge, id)));
        let mut unpaid = SmallVec::<[Unpaid; 4]>::new();
        for ((charge, id), reading) in named.zip(applied.readings()) {
            let is_here = reading.units() > 0 && charge.get_on_failure().is_none();
            let local = is_here.then(|| self.numbers.local(id.limit(), charge.bucket())).flatten();
            unpaid.push(local.map_or(Unpaid::NOTHING, |local| {
                let units = cost_in(reading.units(), charge.bucket(), &local);
                Unpaid::part(units.saturating_sub(self.pay(id, &local, units)), units)
            }));
        }
        applied.with_unpaid(unpaid.into_iter())
    }

    /// Takes these units from a local bucket, or else all that it holds. Returns what was taken.
    fn pay(&self, id: BucketId<'_>, local: &Bucket, units: Units) -> Units {
        let Answer::Ready(Ok(taken)) = self.store.apply(&[Charge::take(id, local, units)]) else {
            // An answer that is not ready is not waited for, so it may have taken nothing.
            return 0;
        };
        match taken.readings() {
            [short] if taken.verdict() == Verdict::Refused => {
                let held = short.state().value.max(0);
                if held > 0 {
                    drop(self.store.adjust(&[Adjustment::refund(
                        id,
                        local,
                        held.saturating_neg(),
                    )]));
                }
                held
            }
            _ => units,
        }
    }

    /// Decides in place of the store, which has failed.
    pub(super) fn decide(&self, charges: &[Charge<'_>], error: BackendError) -> Answer<Applied> {
        let says = |one: &Charge<'_>| one.get_on_failure();
        let decides = error.is_outage()
            && charges.iter().all(|one| says(one) != Some(OnFailure::Refuse))
            && charges.iter().any(|one| says(one).is_none());
        let local = |one: &Charge<'_>| match says(one) {
            None => self.numbers.local(one.id().limit(), one.bucket()),
            Some(_) => Some(*one.bucket()),
        };
        let buckets = charges.iter().map(local).collect::<Option<Vec<Bucket>>>();
        let Some(buckets) = buckets.filter(|_| decides) else { return Answer::Ready(Err(error)) };
        let mut locals = Vec::with_capacity(charges.len());
        for (charge, bucket) in charges.iter().zip(&buckets) {
            let units = cost_in(charge.units(), charge.bucket(), bucket);
            let most = match charge.get_second_shard() {
                Some(_) => bucket.capacity().saturating_mul(2),
                None => bucket.capacity(),
            };
            let local = match (says(charge), charge.takes()) {
                (None, _) if units > most => return Answer::Ready(Err(error)),
                (None, true) => Charge::take(charge.id(), bucket, units),
                (None, false) => Charge::look(charge.id(), bucket, units),
                // It passes uncounted.
                (Some(_), _) => Charge::look(charge.id(), bucket, 0),
            };
            locals.push(match charge.get_second_shard() {
                Some(shard) => local.second_shard(shard),
                None => local,
            });
        }
        match self.store.apply(&locals) {
            Answer::Ready(Ok(applied)) => {
                Answer::Ready(Ok(self.count(charges, &buckets, &applied).in_outage(error)))
            }
            // The local store is not to be waited for, and it has failed as well.
            Answer::Ready(Err(_)) | Answer::Pending(_) => Answer::Ready(Err(error)),
        }
    }

    /// Counts a decision, and converts its answer to the numbers of the charges.
    fn count(&self, charges: &[Charge<'_>], buckets: &[Bucket], applied: &Applied) -> Applied {
        let is_refused = applied.verdict() == Verdict::Refused;
        let count = if is_refused { &self.refused } else { &self.admitted };
        count.fetch_add(1, Ordering::Relaxed);
        let mut readings = applied.readings().iter();
        let mut converted = Vec::with_capacity(applied.readings().len());
        for (charge, bucket) in charges.iter().zip(buckets) {
            let is_paid = !is_refused && charge.takes() && charge.get_on_failure().is_none();
            let mut owed = if is_paid { charge.units().max(0) } else { 0 };
            let shards = charge.ids().count();
            for (nth, reading) in readings.by_ref().take(shards).enumerate() {
                let state = state_in(reading.state(), bucket, charge.bucket());
                // The last shard pays what rounding has left over, so that the sum is exact.
                let units = match nth.saturating_add(1) < shards {
                    true => convert_units(reading.units(), bucket, charge.bucket()).clamp(0, owed),
                    false => owed,
                };
                owed = owed.saturating_sub(units);
                converted
                    .push(Reading::new(reading.verdict(), state, reading.wait()).taking(units));
            }
        }
        Applied::collect(applied.now(), converted.len(), converted).with_origin(Origin::Fallback)
    }

    /// Settles what was paid here.
    pub(super) fn settle(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        let bucket = |one: &Adjustment<'_>| {
            self.numbers.local(one.id().limit(), one.bucket()).unwrap_or(*one.bucket())
        };
        let buckets: Vec<_> = adjustments.iter().map(bucket).collect();
        let both = || adjustments.iter().zip(&buckets);
        let locals: Vec<_> = both().map(|(one, bucket)| adjustment_in(one, bucket)).collect();
        let own: Vec<_> = both().map(|(one, bucket)| (*one.bucket(), *bucket)).collect();
        self.store.adjust(&locals).map(move |applied| {
            let readings = applied.readings().iter().zip(&own).map(|(reading, (from, local))| {
                let state = state_in(reading.state(), local, from);
                Reading::new(reading.verdict(), state, reading.wait())
            });
            let readings: Vec<_> = readings.collect();
            Applied::collect(applied.now(), readings.len(), readings).with_origin(Origin::Fallback)
        })
    }

    /// Repeats adjustments that the store has `made`. If it has failed, they are made here all the same:
    /// the work has ended, and what this store has paid for it is no longer in use. Only whether a
    /// charge can be undone is the store's to say.
    pub(super) fn repeat(&self, adjustments: &[Adjustment<'_>], made: Option<&Applied>) {
        if made.is_some_and(|made| made.verdict() == Verdict::Refused) {
            return;
        }
        for one in adjustments.iter().filter(|one| made.is_some() || !one.is_conditional()) {
            if let Some(bucket) = self.numbers.local(one.id().limit(), one.bucket()) {
                drop(self.store.adjust(&[adjustment_in(one, &bucket)]));
            }
        }
    }

    pub(super) fn forget(&self, ids: &[BucketId<'_>]) {
        drop(self.store.reset(ids));
    }
}
