//! How many buckets are in debt or blocked. The store keeps fingerprints, so it cannot name them, unless
//! it keeps [names](super::names).

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::shard::Shard;
use super::shards::Shards;
use crate::backend::debtors::DebtorKind;
use crate::backend::{BackendError, BucketRecord, DebtorQuery, DebtorReport};
use crate::clock::Timestamp;

/// After so many slots a count ends, at the end of a shard: in less than a millisecond.
const MAX_LOOKS: usize = 65_536;

/// Counts the buckets with numbers of the query, from its cursor on: the index of a shard.
pub(super) fn count_debtors(
    shards: &Shards,
    query: &DebtorQuery,
    now: impl Fn() -> Timestamp,
) -> Result<DebtorReport, BackendError> {
    let first = match query.get_after() {
        None => 0,
        Some(cursor) => {
            let index = cursor.parse().ok().filter(|index| *index < shards.count());
            index.ok_or_else(|| BackendError::unknown_cursor("memory", cursor))?
        }
    };
    let at = now();
    let (mut in_debt, mut blocked, mut looks, mut next) = (0_u64, 0_u64, 0_usize, None);
    for (index, shard) in shards.iter().enumerate().skip(first) {
        if looks >= MAX_LOOKS {
            next = Some(index.to_string());
            break;
        }
        let slots = count_shard(shard, query, &now, |kind| match kind {
            DebtorKind::InDebt => in_debt = in_debt.saturating_add(1),
            DebtorKind::Blocked => blocked = blocked.saturating_add(1),
        });
        looks = looks.saturating_add(slots);
    }
    Ok(DebtorReport::Count { at, in_debt, blocked, next })
}

/// Counts the buckets of one shard, and returns how many slots it has.
fn count_shard(
    shard: &Mutex<Shard>,
    query: &DebtorQuery,
    now: impl Fn() -> Timestamp,
    mut found: impl FnMut(DebtorKind),
) -> usize {
    let shard = shard.lock();
    // Under the lock, as for a charge: a bucket that was charged later would seem to be blocked.
    let now = now();
    let named = shard.quotas.counts(shard.table.len());
    let named = named.filter_map(|(name, _)| Some((name, shard.quotas.get(name)?)));
    let named: SmallVec<[_; 4]> = named.filter(|(_, own)| query.counts_in(own)).collect();
    if named.is_empty() {
        return 0;
    }
    for slot in shard.table.iter() {
        let Some((_, own)) = named.iter().find(|(name, _)| slot.quota() == Some(*name)) else {
            continue;
        };
        if let Some(kind) = query.count(&BucketRecord::new(own, slot.state()), now) {
            found(kind);
        }
    }
    shard.table.slots()
}
