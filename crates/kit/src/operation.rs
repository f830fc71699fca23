//! The operations of callers as owned values: they travel in shared batches, and must outlive a
//! caller that is dropped.

use smallvec::SmallVec;

use super::key_name::{KeyName, KeyNames};
use crate::hashed::PrehashedMap;
use tollgate::algebra::{Bucket, Terms, Units};
use tollgate::backend::{Adjustment, BackendError, BucketId, Change, Charge, OwnedBucketId};
use tollgate::kit::MAX_UNITS;

/// The owned id of a bucket, with its name in the store.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedBucketId {
    id: OwnedBucketId,
    pub name: KeyName,
}

impl NamedBucketId {
    pub fn new(id: BucketId<'_>, names: &KeyNames) -> Self {
        Self { id: id.into_owned(), name: names.name(id) }
    }

    pub fn get(&self) -> BucketId<'_> {
        self.id.as_id()
    }
}

/// A [`Charge`] as an owned value, with the names of its buckets in the store.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedCharge {
    pub id: NamedBucketId,
    /// The second shard of a two-choices charge.
    pub other: Option<(u32, KeyName)>,
    pub bucket: Bucket,
    pub units: Units,
    pub terms: Terms,
    pub takes: bool,
}

impl NamedCharge {
    /// # Errors
    ///
    /// If the numbers are beyond 2^53, which some stores cannot count. The error names `store`.
    pub fn new(
        store: &'static str,
        charge: &Charge<'_>,
        names: &KeyNames,
    ) -> Result<Self, BackendError> {
        let (id, terms) = (charge.id(), charge.get_terms());
        // Checked before the call is sent: one such charge would otherwise spoil the calls of all
        // that share it.
        if charge.units() > MAX || terms.floor() < -MAX {
            let (units, floor) = (charge.units(), terms.floor());
            let problem = format!(
                "a charge of {units} units down to {floor} cannot be counted (use at most 2^53 of either)"
            );
            return Err(BackendError::undecidable(store, problem));
        }
        Ok(Self {
            id: NamedBucketId::new(id, names),
            other: charge.get_second_shard().map(|shard| (shard, names.name(id.shard(shard)))),
            bucket: *charge.bucket(),
            units: charge.units(),
            terms,
            takes: charge.takes(),
        })
    }

    pub fn charge(&self) -> Charge<'_> {
        let (id, bucket) = (self.id.get(), &self.bucket);
        let charge = match self.takes {
            true => Charge::take(id, bucket, self.units),
            false => Charge::look(id, bucket, self.units),
        };
        let charge = charge.terms(self.terms);
        self.other.as_ref().map_or(charge, |&(shard, _)| charge.second_shard(shard))
    }

    /// The names of its buckets.
    pub fn names(&self) -> impl Iterator<Item = &KeyName> {
        std::iter::once(&self.id.name).chain(self.other.as_ref().map(|(_, name)| name))
    }
}

/// An [`Adjustment`] as an owned value, with the name of its bucket in the store.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedAdjustment {
    pub id: NamedBucketId,
    pub bucket: Bucket,
    pub change: Change,
}

impl NamedAdjustment {
    pub fn new(adjustment: &Adjustment<'_>, names: &KeyNames) -> Self {
        Self::with_id(NamedBucketId::new(adjustment.id(), names), adjustment)
    }

    pub fn with_id(id: NamedBucketId, adjustment: &Adjustment<'_>) -> Self {
        Self { id, bucket: *adjustment.bucket(), change: adjustment.change() }
    }

    /// The charge that looks at its bucket and takes nothing.
    pub fn look(&self) -> NamedCharge {
        let (id, bucket, terms) = (self.id.clone(), self.bucket, Terms::AT_ONCE);
        NamedCharge { id, other: None, bucket, units: 0, terms, takes: false }
    }

    pub fn adjustment(&self) -> Adjustment<'_> {
        Adjustment::new(self.id.get(), &self.bucket, self.change)
    }
}

/// What one caller asks for, in one step.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    Charges(SmallVec<[NamedCharge; 1]>),
    Adjustments(SmallVec<[NamedAdjustment; 1]>),
    Resets(SmallVec<[KeyName; 1]>),
}

impl Operation {
    /// The number of buckets that the operation names.
    pub fn buckets(&self) -> usize {
        match self {
            Self::Charges(charges) => charges.iter().map(|charge| charge.names().count()).sum(),
            Self::Adjustments(adjustments) => adjustments.len(),
            Self::Resets(names) => names.len(),
        }
    }

    /// The names of its buckets in order, with repetitions.
    pub fn names(&self) -> SmallVec<[&KeyName; 8]> {
        match self {
            Self::Charges(charges) => charges.iter().flat_map(NamedCharge::names).collect(),
            Self::Adjustments(adjustments) => {
                adjustments.iter().map(|adjustment| &adjustment.id.name).collect()
            }
            Self::Resets(names) => names.iter().collect(),
        }
    }

    /// The limits of its buckets, in the order of their names. A reset does not know its limits.
    pub fn limits(&self) -> impl Iterator<Item = &str> {
        let (charges, adjustments) = match self {
            Self::Charges(charges) => (charges.as_slice(), &[][..]),
            Self::Adjustments(adjustments) => (&[][..], adjustments.as_slice()),
            Self::Resets(_) => (&[][..], &[][..]),
        };
        let charged =
            charges.iter().flat_map(|charge| charge.names().map(|_| charge.id.get().limit()));
        charged.chain(adjustments.iter().map(|adjustment| adjustment.id.get().limit()))
    }
}

/// Numbers the buckets of operations. One that is named several times gets one number.
///
/// Returns the distinct names, and for each bucket that an operation names, in order, its place among
/// them.
pub fn number_buckets<'o>(
    operations: impl Iterator<Item = &'o Operation>,
) -> (Vec<&'o KeyName>, Vec<usize>) {
    let least = operations.size_hint().0;
    let (mut keys, mut places) = (Vec::with_capacity(least), Vec::with_capacity(least));
    let mut known: Option<PrehashedMap<&KeyName, usize>> = None;
    for operation in operations {
        for name in operation.names() {
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
    }
    (keys, places)
}

/// The largest number of units that every store counts exactly.
pub(super) const MAX: Units = MAX_UNITS.cast_signed();
