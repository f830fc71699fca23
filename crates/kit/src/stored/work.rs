//! A call that outlives its caller.

use smallvec::SmallVec;

use super::draft::Draft;
use tollgate::algebra::Bucket;
use tollgate::backend::{
    Adjustment, Applied, BucketId, BucketStore as _, Charge, OwnedAdjustment, OwnedBucketId,
    OwnedCharge, adjust_all, apply_all, reset_all,
};

/// A call of a store, as owned values.
#[derive(Clone, Debug)]
pub enum Work {
    Charges(SmallVec<[OwnedCharge; 1]>),
    Adjustments(SmallVec<[OwnedAdjustment; 1]>),
    Resets(SmallVec<[OwnedBucketId; 1]>),
}

impl Work {
    pub fn charges(charges: &[Charge<'_>]) -> Self {
        Self::Charges(charges.iter().map(|charge| charge.into_owned()).collect())
    }

    pub fn adjustments(adjustments: &[Adjustment<'_>]) -> Self {
        Self::Adjustments(adjustments.iter().map(|one| one.into_owned()).collect())
    }

    pub fn resets(ids: &[BucketId<'_>]) -> Self {
        Self::Resets(ids.iter().map(|id| id.into_owned()).collect())
    }

    /// The buckets that the call names: each once, in their order.
    pub fn ids(&self) -> SmallVec<[BucketId<'_>; 2]> {
        let mut ids: SmallVec<[_; 2]> = match self {
            Self::Charges(all) => {
                all.iter().map(OwnedCharge::as_charge).flat_map(|charge| charge.ids()).collect()
            }
            Self::Adjustments(all) => all.iter().map(|one| one.as_adjustment().id()).collect(),
            Self::Resets(all) => all.iter().map(OwnedBucketId::as_id).collect(),
        };
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// The numbers by which the call first names a bucket; a reset has none.
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

    /// Decides the call on the records of its buckets. A reset answers with no reading.
    pub fn decide(&self, draft: &mut Draft<'_>) -> Applied {
        match self {
            Self::Charges(all) => {
                let charges: SmallVec<[_; 2]> = all.iter().map(OwnedCharge::as_charge).collect();
                apply_all(draft, &charges)
            }
            Self::Adjustments(all) => {
                let adjustments: SmallVec<[_; 2]> =
                    all.iter().map(OwnedAdjustment::as_adjustment).collect();
                adjust_all(draft, &adjustments)
            }
            Self::Resets(all) => {
                let ids: SmallVec<[_; 2]> = all.iter().map(OwnedBucketId::as_id).collect();
                reset_all(draft, &ids);
                Applied::many(draft.now(), Vec::new())
            }
        }
    }
}
