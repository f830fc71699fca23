//! Calls on several buckets, for a store that swaps one value at a time.
//!
//! # Design
//!
//! * **Looks** need no single instant: they are decided on what was loaded.
//! * **A two-choices charge** is paid by the fuller of its shards, or refused by it. The shards do
//!   not pay together, as one of them would have paid already when the other refuses.
//! * **Resets and unconditional adjustments** are made bucket by bucket.
//! * **Several undos** are refused: no single instant shows whether several buckets are untouched.
//! * **Everything else** is all or nothing, and fails before anything is sent.

use std::time::Duration;

use smallvec::SmallVec;

use super::swap_store::SwapStore;
use tollgate::algebra::{State, Terms, Verdict};
use tollgate::backend::{
    Applied, BackendError, BucketId, BucketStore as _, Charge, OwnedAdjustment, OwnedCharge,
    Reading, apply_all,
};
use tollgate::kit::Remarks;
use tollgate::kit::absent;
use tollgate_kit::operation::Operation;
use tollgate_kit::stored::Draft;

/// A call for a store that swaps one value at a time.
pub(super) enum Apart {
    /// It changes one bucket at most.
    Whole(Operation),
    Parts(BucketParts),
}

/// A call that is made bucket by bucket.
pub(super) struct BucketParts {
    operations: Vec<Operation>,
    /// The place of each adjustment: which operation it is in, and which of its readings it has.
    places: Vec<(usize, usize)>,
    /// What the readings say.
    verdict: Verdict,
}

impl Apart {
    pub(super) fn new<S: SwapStore>(operation: Operation) -> Result<Self, BackendError> {
        if operation.distinct_ids().len() <= 1 {
            return Ok(Self::Whole(operation));
        }
        match operation {
            Operation::Charges(charges) => {
                let is_pair = charges.len() == 1;
                if is_pair || charges.iter().all(only_looks) {
                    return Ok(Self::Whole(Operation::Charges(charges)));
                }
                Err(several::<S>(&charges))
            }
            Operation::Adjustments(all) => Ok(Self::Parts(BucketParts::adjustments(all))),
            Operation::Resets(all) => {
                let operations =
                    all.into_iter().map(|id| Operation::Resets([id].into_iter().collect()));
                let (operations, places) = (operations.collect(), Vec::new());
                Ok(Self::Parts(BucketParts { operations, places, verdict: Verdict::Admitted }))
            }
        }
    }
}

fn only_looks(charge: &OwnedCharge) -> bool {
    let charge = charge.as_charge();
    !charge.takes() && charge.get_second_shard().is_none()
}

/// The error of a list of charges.
fn several<S: SwapStore>(charges: &[OwnedCharge]) -> BackendError {
    let mut names: Vec<_> = charges.iter().map(|one| one.as_charge().id().limit()).collect();
    names.dedup();
    let cause = format!(
        "the call charges several buckets at once, of `{}`, and this store swaps one value at a \
         time (use one limit in each call, or implement `SwapStore::swap_all` and set \
         `SWAPS_SEVERAL`)",
        names.join("`, `")
    );
    BackendError::undecidable(S::NAME, cause)
}

impl BucketParts {
    /// The adjustments of each bucket by themselves. If one is an undo, all only look.
    fn adjustments(all: SmallVec<[OwnedAdjustment; 1]>) -> Self {
        let is_made = !all.iter().any(|one| one.as_adjustment().is_conditional());
        let mut owners = Vec::new();
        let mut operations: Vec<Operation> = Vec::new();
        let mut places = Vec::new();
        for one in all {
            let id = one.as_adjustment().id().into_owned();
            let found = if is_made { owners.iter().position(|owner| *owner == id) } else { None };
            let nth = found.unwrap_or(operations.len());
            match operations.get_mut(nth) {
                Some(Operation::Adjustments(list)) => {
                    places.push((nth, list.len()));
                    list.push(one);
                }
                _ => {
                    places.push((nth, 0));
                    operations.push(if is_made {
                        Operation::Adjustments([one].into_iter().collect())
                    } else {
                        let one = one.as_adjustment();
                        Operation::charges(&[Charge::look(one.id(), one.bucket(), 0)])
                    });
                    owners.push(id);
                }
            }
        }
        let verdict = if is_made { Verdict::Admitted } else { Verdict::Refused };
        Self { operations, places, verdict }
    }

    /// The calls to make, one after the other.
    pub(super) fn take_operations(&mut self) -> Vec<Operation> {
        std::mem::take(&mut self.operations)
    }

    /// The answer of the whole call, from those of its operations.
    pub(super) fn join(&self, answers: &[Applied]) -> Applied {
        let now = answers.iter().map(Applied::now).max().unwrap_or_default();
        let mut kept = Remarks::NONE;
        let reading = |(place, &(operation, nth)): (usize, &(usize, usize))| {
            let answer = answers.get(operation)?;
            answer.kept(nth).into_iter().for_each(|record| kept.add(place, *record));
            Some(Reading::new(self.verdict, answer.readings().get(nth)?.state(), Duration::ZERO))
        };
        let readings = self.places.iter().enumerate().filter_map(reading).collect();
        Applied::many(now, readings).with_remarks(kept)
    }
}

/// Decides a call so that it changes one bucket at most.
pub(super) fn decide_apart<S: SwapStore>(
    operation: &Operation,
    draft: &mut Draft<'_>,
) -> Result<Applied, BackendError> {
    if let Operation::Charges(charges) = operation
        && let [charge] = charges.as_slice()
        && let charge = charge.as_charge()
        && let Some(other) = charge.get_second_shard()
    {
        return charge_fuller::<S>(draft, &charge, other);
    }
    Ok(operation.decide(draft))
}

/// Charges the fuller of two shards.
fn charge_fuller<S: SwapStore>(
    draft: &mut Draft<'_>,
    charge: &Charge<'_>,
    other: u32,
) -> Result<Applied, BackendError> {
    let (id, bucket, terms, now) = (charge.id(), charge.bucket(), charge.get_terms(), draft.now());
    let floor = if terms == Terms::AT_ONCE { 0 } else { bucket.floor() };
    if charge.units() > bucket.capacity().saturating_sub(floor) {
        let cause = format!(
            "the call costs more than one shard of `{}` can grant, and this store cannot charge two \
             in one step (use fewer shards, or implement `SwapStore::swap_all` and set \
             `SWAPS_SEVERAL`)",
            id.limit()
        );
        return Err(BackendError::undecidable(S::NAME, cause));
    }
    let [own, second] = [id, id.shard(other)].map(|id| held(draft, id, charge));
    let is_own = own.value >= second.value;
    let payer = if is_own { id } else { id.shard(other) };
    let one = match charge.takes() {
        true => Charge::take(payer, bucket, charge.units()),
        false => Charge::look(payer, bucket, charge.units()),
    };
    let applied = apply_all(draft, &[one.terms(terms)]);
    let Some(paid) = applied.readings().first().copied() else {
        return Err(BackendError::incomplete());
    };
    let idle = if is_own { second } else { own };
    let idle = Reading::new(paid.verdict(), idle, paid.wait());
    let mut kept = Remarks::NONE;
    for (nth, id) in [id, id.shard(other)].into_iter().enumerate() {
        let record = draft.read(id).filter(|record| record.is_kept_from(bucket, now));
        record.into_iter().for_each(|record| kept.add(nth, record));
    }
    let readings = if is_own { [paid, idle] } else { [idle, paid] };
    Ok(Applied::two(now, readings).with_remarks(kept))
}

/// What a shard holds now.
fn held(draft: &mut Draft<'_>, id: BucketId<'_>, charge: &Charge<'_>) -> State {
    let (bucket, now) = (charge.bucket(), draft.now());
    let stored = draft.read(id).and_then(|record| record.state_in(id, bucket, now));
    bucket.refresh(stored.unwrap_or_else(|| absent(id, bucket, now)), now)
}
