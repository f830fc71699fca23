//! What a caller asks, on its own: it travels with what others ask, whatever becomes of the caller.

use smallvec::SmallVec;

use super::names::{Name, Names};
use super::number::MOST;
use crate::algebra::{Bucket, Terms, Units};
use crate::backend::{Adjustment, BackendError, BucketId, Change, Charge, Key};

/// A bucket by its names: here, and in Redis.
#[derive(Clone, Debug)]
pub(super) struct Whose {
    limit: Box<str>,
    key: Key,
    shard: u32,
    pub(super) name: Name,
}

impl Whose {
    pub(super) fn of(id: BucketId<'_>, names: &Names) -> Self {
        let (limit, key) = (id.limit().into(), id.key().clone());
        Self { limit, key, shard: id.shard_index(), name: names.of(id) }
    }

    pub(super) fn id(&self) -> BucketId<'_> {
        BucketId::new(&self.limit, &self.key).shard(self.shard)
    }
}

/// A [`Charge`] on its own.
#[derive(Clone, Debug)]
pub(super) struct OwnCharge {
    pub(super) whose: Whose,
    /// The second shard of a two-choices charge.
    pub(super) other: Option<(u32, Name)>,
    pub(super) bucket: Bucket,
    pub(super) units: Units,
    pub(super) terms: Terms,
    pub(super) takes: bool,
}

impl OwnCharge {
    /// # Errors
    ///
    /// If the script cannot count so far.
    pub(super) fn of(charge: &Charge<'_>, names: &Names) -> Result<Self, BackendError> {
        let (id, terms) = (charge.id(), charge.get_terms());
        if charge.units() > MOST || terms.floor() < -MOST {
            let (units, floor) = (charge.units(), terms.floor());
            let problem = format!(
                "a charge of {units} units down to {floor} cannot be counted (use at most 2^53 of either)"
            );
            return Err(BackendError::unavailable("redis", problem));
        }
        Ok(Self {
            whose: Whose::of(id, names),
            other: charge.get_second_shard().map(|shard| (shard, names.of(id.shard(shard)))),
            bucket: *charge.bucket(),
            units: charge.units(),
            terms,
            takes: charge.takes(),
        })
    }

    pub(super) fn charge(&self) -> Charge<'_> {
        let (id, bucket) = (self.whose.id(), &self.bucket);
        let charge = match self.takes {
            true => Charge::take(id, bucket, self.units),
            false => Charge::look(id, bucket, self.units),
        };
        let charge = charge.terms(self.terms);
        self.other.as_ref().map_or(charge, |&(shard, _)| charge.second_shard(shard))
    }

    /// The names of its buckets.
    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        std::iter::once(&self.whose.name).chain(self.other.as_ref().map(|(_, name)| name))
    }
}

/// An [`Adjustment`] on its own.
#[derive(Clone, Debug)]
pub(super) struct OwnAdjustment {
    pub(super) whose: Whose,
    pub(super) bucket: Bucket,
    pub(super) change: Change,
}

impl OwnAdjustment {
    pub(super) fn of(adjustment: &Adjustment<'_>, names: &Names) -> Self {
        Self::of_whose(Whose::of(adjustment.id(), names), adjustment)
    }

    pub(super) fn of_whose(whose: Whose, adjustment: &Adjustment<'_>) -> Self {
        Self { whose, bucket: *adjustment.bucket(), change: adjustment.change() }
    }

    /// What is asked to see how its bucket stands.
    pub(super) fn look(&self) -> OwnCharge {
        let (whose, bucket, terms) = (self.whose.clone(), self.bucket, Terms::AT_ONCE);
        OwnCharge { whose, other: None, bucket, units: 0, terms, takes: false }
    }

    pub(super) fn adjustment(&self) -> Adjustment<'_> {
        Adjustment::new(self.whose.id(), &self.bucket, self.change)
    }
}

/// One step that is asked for.
#[derive(Clone, Debug)]
pub(super) enum Order {
    Charges(SmallVec<[OwnCharge; 1]>),
    Adjustments(SmallVec<[OwnAdjustment; 1]>),
    Resets(SmallVec<[Name; 1]>),
}

impl Order {
    /// How many buckets it names.
    pub(super) fn buckets(&self) -> usize {
        match self {
            Self::Charges(charges) => charges.iter().map(|charge| charge.names().count()).sum(),
            Self::Adjustments(adjustments) => adjustments.len(),
            Self::Resets(names) => names.len(),
        }
    }

    /// The names of its buckets, in order; one that is named twice is there twice.
    pub(super) fn names(&self) -> SmallVec<[&Name; 8]> {
        match self {
            Self::Charges(charges) => charges.iter().flat_map(OwnCharge::names).collect(),
            Self::Adjustments(adjustments) => {
                adjustments.iter().map(|adjustment| &adjustment.whose.name).collect()
            }
            Self::Resets(names) => names.iter().collect(),
        }
    }
}
