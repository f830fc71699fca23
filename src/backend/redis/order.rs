//! What a caller asks, on its own: it travels with what others ask, whatever becomes of the caller.

use smallvec::SmallVec;

use super::key_name::{KeyName, KeyNames};
use super::number::MOST;
use crate::algebra::{Bucket, State, Terms, Units};
use crate::backend::{BackendError, BucketId, Charge, Key, Refund};

/// A bucket by its names: here, and in Redis.
#[derive(Clone, Debug)]
pub(super) struct Whose {
    limit: Box<str>,
    key: Key,
    shard: u32,
    pub(super) name: KeyName,
}

impl Whose {
    pub(super) fn of(id: BucketId<'_>, names: &KeyNames) -> Self {
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
    pub(super) other: Option<(u32, KeyName)>,
    pub(super) bucket: Bucket,
    pub(super) units: Units,
    pub(super) terms: Terms,
    pub(super) takes: bool,
}

impl OwnCharge {
    /// # Errors
    ///
    /// If the script cannot count so far.
    pub(super) fn of(charge: &Charge<'_>, names: &KeyNames) -> Result<Self, BackendError> {
        let (id, terms) = (charge.id(), charge.terms());
        if charge.units() > MOST || terms.floor() < -MOST {
            let (units, floor) = (charge.units(), terms.floor());
            let problem = format!(
                "a charge of {units} units down to {floor} cannot be counted (use at most 2^53 of either)"
            );
            return Err(BackendError::unavailable("redis", problem));
        }
        Ok(Self {
            whose: Whose::of(id, names),
            other: charge.other().map(|shard| (shard, names.of(id.shard(shard)))),
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
        let charge = charge.on(self.terms);
        self.other.as_ref().map_or(charge, |&(shard, _)| charge.or_shard(shard))
    }

    /// The names of its buckets.
    pub(super) fn names(&self) -> impl Iterator<Item = &KeyName> {
        std::iter::once(&self.whose.name).chain(self.other.as_ref().map(|(_, name)| name))
    }
}

/// A [`Refund`] on its own.
#[derive(Clone, Debug)]
pub(super) struct OwnRefund {
    pub(super) whose: Whose,
    pub(super) bucket: Bucket,
    pub(super) change: Change,
    pub(super) left: Option<State>,
    pub(super) since: Option<State>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Give(Units),
    /// In microseconds.
    Block(u64),
}

impl OwnRefund {
    pub(super) fn of(refund: &Refund<'_>, names: &KeyNames) -> Self {
        Self::of_whose(Whose::of(refund.id(), names), refund)
    }

    pub(super) fn of_whose(whose: Whose, refund: &Refund<'_>) -> Self {
        let change = match refund.blocks() {
            Some(time) => Change::Block(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)),
            None => Change::Give(refund.units()),
        };
        Self {
            whose,
            bucket: *refund.bucket(),
            change,
            left: refund.left(),
            since: refund.gained_since(),
        }
    }

    /// What is asked to see how its bucket stands.
    pub(super) fn look(&self) -> OwnCharge {
        let (whose, bucket, terms) = (self.whose.clone(), self.bucket, Terms::AT_ONCE);
        OwnCharge { whose, other: None, bucket, units: 0, terms, takes: false }
    }

    pub(super) fn refund(&self) -> Refund<'_> {
        let (id, bucket) = (self.whose.id(), &self.bucket);
        let mut refund = match self.change {
            Change::Give(units) => Refund::new(id, bucket, units),
            Change::Block(micros) => {
                Refund::block(id, bucket, std::time::Duration::from_micros(micros))
            }
        };
        if let Some(left) = self.left {
            refund = refund.if_untouched(left);
        }
        if let Some(since) = self.since {
            refund = refund.less_gained_since(since);
        }
        refund
    }
}

/// One step that is asked for.
#[derive(Clone, Debug)]
pub(super) enum Order {
    Charges(SmallVec<[OwnCharge; 1]>),
    Refunds(SmallVec<[OwnRefund; 1]>),
    Resets(SmallVec<[KeyName; 1]>),
}

impl Order {
    /// How many buckets it names.
    pub(super) fn buckets(&self) -> usize {
        match self {
            Self::Charges(charges) => charges.iter().map(|charge| charge.names().count()).sum(),
            Self::Refunds(refunds) => refunds.len(),
            Self::Resets(names) => names.len(),
        }
    }

    /// The names of its buckets, in order; one that is named twice is there twice.
    pub(super) fn names(&self) -> SmallVec<[&KeyName; 8]> {
        match self {
            Self::Charges(charges) => charges.iter().flat_map(OwnCharge::names).collect(),
            Self::Refunds(refunds) => refunds.iter().map(|refund| &refund.whose.name).collect(),
            Self::Resets(names) => names.iter().collect(),
        }
    }
}
