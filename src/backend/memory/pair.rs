//! A two-choices charge that is alone, as those of a hot limit are: no list has to be kept.

use super::fingerprint::Hasher;
use super::shards::Shards;
use super::{Applied, Charge, Reading};
use crate::algebra::charge_pair;
use crate::backend::transaction::{Kept, changes};
use crate::clock::Timestamp;

/// Decides a charge that the bucket it is for may pay, or the same limit's shard `other`.
///
/// Buckets of one limit are anywhere in the store, so up to two locks are held at once. They are
/// taken in the order of their numbers, like those of a transaction: whoever waits for a lock holds
/// only lower ones, so nobody can wait in a circle.
pub(super) fn apply(
    shards: &Shards,
    hasher: &Hasher,
    charge: &Charge<'_>,
    other: u32,
    now: impl FnOnce() -> Timestamp,
) -> Applied {
    let (id, bucket) = (charge.id(), charge.bucket());
    let prints = [id, id.shard(other)].map(|id| hasher.fingerprint(id));
    let [first, second] = prints.map(|print| shards.index_of(print));
    let (low, high) = (first.min(second), first.max(second));
    let mut low_shard = shards.at(low).lock();
    let mut high_shard = (low < high).then(|| shards.at(high).lock());
    let now = now();

    let states = prints.map(|print| match &high_shard {
        Some(shard) if shards.index_of(print) == high => shard.read(print, id, bucket, now),
        _ => low_shard.read(print, id, bucket, now),
    });
    let charged = charge_pair(bucket, states, charge.units(), charge.terms(), now);
    if changes(charge) {
        let left = prints.into_iter().zip(charged.state()).zip(charged.paid());
        for ((print, state), paid) in left {
            let kept = if paid > 0 { Kept::Taken(state) } else { Kept::NotTaken(state) };
            match &mut high_shard {
                Some(shard) if shards.index_of(print) == high => {
                    shard.write(print, bucket, kept, now);
                }
                _ => low_shard.write(print, bucket, kept, now),
            }
        }
    }
    drop((low_shard, high_shard));
    Applied::two(now, Reading::of_pair(charge, &charged))
}
