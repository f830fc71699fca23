//! The calls of a store as owned values: they wait for others, or for a lock, and must outlive a
//! caller that is dropped.

use smallvec::SmallVec;

use super::key_name::{KeyName, KeyNames};
use crate::hashed::PrehashedMap;
use crate::stored::bucket_name;
use tollgate::algebra::{Bucket, Units};
use tollgate::backend::{
    Adjustment, Applied, BackendError, BucketId, BucketStore, Charge, OwnedAdjustment,
    OwnedBucketId, OwnedCharge, adjust_all, apply_all, reset_all,
};
use tollgate::kit::MAX_UNITS;

/// What one caller asks for, in one step.
#[derive(Clone, Debug)]
pub enum Operation {
    Charges(SmallVec<[OwnedCharge; 1]>),
    Adjustments(SmallVec<[OwnedAdjustment; 1]>),
    Resets(SmallVec<[OwnedBucketId; 1]>),
}

impl Operation {
    pub fn charges(charges: &[Charge<'_>]) -> Self {
        Self::Charges(charges.iter().map(|charge| charge.into_owned()).collect())
    }

    pub fn adjustments(adjustments: &[Adjustment<'_>]) -> Self {
        Self::Adjustments(adjustments.iter().map(|one| one.into_owned()).collect())
    }

    pub fn resets(ids: &[BucketId<'_>]) -> Self {
        Self::Resets(ids.iter().map(|id| id.into_owned()).collect())
    }

    /// The buckets that it names in order, with repetitions.
    pub fn ids(&self) -> SmallVec<[BucketId<'_>; 2]> {
        let mut ids = SmallVec::new();
        self.each_id(|id| ids.push(id));
        ids
    }

    /// As [`ids`](Self::ids), without a list.
    fn each_id<'s>(&'s self, each: impl FnMut(BucketId<'s>)) {
        match self {
            Self::Charges(all) => {
                all.iter().flat_map(|one| one.as_charge().ids()).for_each(each);
            }
            Self::Adjustments(all) => all.iter().map(|one| one.as_adjustment().id()).for_each(each),
            Self::Resets(all) => all.iter().map(OwnedBucketId::as_id).for_each(each),
        }
    }

    /// The buckets that it names: each once, sorted.
    pub fn distinct_ids(&self) -> SmallVec<[BucketId<'_>; 2]> {
        let mut ids = self.ids();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// As [`distinct_ids`](Self::distinct_ids), each with the name of its bucket in a store of bytes.
    pub fn named_ids(&self) -> SmallVec<[(BucketId<'_>, KeyName); 1]> {
        self.distinct_ids().into_iter().map(|id| (id, bucket_name(id))).collect()
    }

    /// The numbers by which it first names a bucket; a reset has none.
    pub fn bucket_of(&self, id: BucketId<'_>) -> Option<Bucket> {
        match self {
            Self::Charges(all) => {
                let mut all = all.iter().map(OwnedCharge::as_charge);
                all.find(|one| one.ids().any(|named| named == id)).map(|one| *one.bucket())
            }
            Self::Adjustments(all) => {
                let mut all = all.iter().map(OwnedAdjustment::as_adjustment);
                all.find(|one| one.id() == id).map(|one| *one.bucket())
            }
            Self::Resets(_) => None,
        }
    }

    /// Decides it on the records of its buckets. A reset answers with no reading.
    pub fn decide(&self, records: &mut impl BucketStore) -> Applied {
        match self {
            Self::Charges(all) => {
                let charges: SmallVec<[_; 2]> = all.iter().map(OwnedCharge::as_charge).collect();
                apply_all(records, &charges)
            }
            Self::Adjustments(all) => {
                let adjustments: SmallVec<[_; 2]> =
                    all.iter().map(OwnedAdjustment::as_adjustment).collect();
                adjust_all(records, &adjustments)
            }
            Self::Resets(_) => {
                reset_all(records, &self.ids());
                Applied::many(records.now(), Vec::new())
            }
        }
    }
}

/// An operation that travels in a shared call, with the names of its buckets in the store.
///
/// It has one place in memory, as it changes hands often.
#[derive(Clone, Debug)]
pub struct NamedOperation(Box<OperationAndNames>);

#[derive(Clone, Debug)]
struct OperationAndNames {
    operation: Operation,
    /// In the order of [`Operation::ids`].
    names: SmallVec<[KeyName; 1]>,
}

impl NamedOperation {
    pub fn new(operation: Operation, names: &KeyNames) -> Self {
        let mut named = SmallVec::new();
        operation.each_id(|id| named.push(names.name(id)));
        Self(Box::new(OperationAndNames { operation, names: named }))
    }

    /// # Errors
    ///
    /// If the numbers are beyond 2^53, which some stores cannot count. The error names `store`.
    pub fn charges(
        store: &'static str,
        charges: &[Charge<'_>],
        names: &KeyNames,
    ) -> Result<Self, BackendError> {
        // Checked before the call is sent: one such charge would otherwise spoil the calls of all
        // that share it.
        let (units, floor) = (Charge::units, |charge: &Charge<'_>| charge.get_terms().floor());
        if let Some(charge) = charges.iter().find(|one| units(one) > MAX || floor(one) < -MAX) {
            let problem = format!(
                "a charge of {} units down to {} cannot be counted (use at most 2^53 of either)",
                units(charge),
                floor(charge),
            );
            return Err(BackendError::undecidable(store, problem));
        }
        Ok(Self::new(Operation::charges(charges), names))
    }

    pub const fn operation(&self) -> &Operation {
        &self.0.operation
    }

    /// The names of its buckets in order, with repetitions.
    pub fn names(&self) -> &[KeyName] {
        &self.0.names
    }

    /// Whether a caller that has left no longer wants it.
    pub const fn is_charge(&self) -> bool {
        matches!(self.0.operation, Operation::Charges(_))
    }

    /// Whether both charge the same.
    pub fn charges_as(&self, other: &Self) -> bool {
        match (&self.0.operation, &other.0.operation) {
            (Operation::Charges(one), Operation::Charges(other)) => one == other,
            _ => false,
        }
    }
}

/// Numbers the buckets of operations. One that is named several times gets one number.
///
/// Returns the distinct names, and for each bucket that an operation names, in order, its place among
/// them.
pub fn number_buckets<'o>(
    operations: impl Iterator<Item = &'o NamedOperation>,
) -> (Vec<&'o KeyName>, Vec<usize>) {
    let least = operations.size_hint().0;
    let (mut keys, mut places) = (Vec::with_capacity(least), Vec::with_capacity(least));
    let mut known: Option<PrehashedMap<&KeyName, usize>> = None;
    for name in operations.flat_map(NamedOperation::names) {
        let next = keys.len();
        // A single bucket needs no table.
        let place = match &mut known {
            Some(known) => *known.entry(name).or_insert(next),
            None if keys.first() == Some(&name) => 0,
            None if keys.is_empty() => 0,
            None => {
                let first = keys.first().map(|first| (*first, 0));
                known = Some(first.into_iter().chain([(name, next)]).collect());
                next
            }
        };
        if place == next {
            keys.push(name);
        }
        places.push(place);
    }
    (keys, places)
}

/// The largest number of units that every store counts exactly.
pub(super) const MAX: Units = MAX_UNITS.cast_signed();
