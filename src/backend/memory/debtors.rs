//! How many buckets are in debt or blocked. The store keeps fingerprints, so it cannot name them.

use parking_lot::Mutex;

use super::shard::Shard;
use super::shards::Shards;
use crate::backend::{BackendError, DebtorCount, DebtorCursor, DebtorKind, DebtorQuery};
use crate::clock::Timestamp;

/// After so many slots a count ends, at the end of a shard: in less than a millisecond.
const MAX_LOOKS: usize = 65_536;

/// Counts the buckets with the numbers of the query, from its cursor on: the index of a shard.
pub(super) fn count_debtors(
    shards: &Shards,
    query: &DebtorQuery,
    now: impl Fn() -> Timestamp,
) -> Result<DebtorCount, BackendError> {
    let first = match query.get_after() {
        None => 0,
        Some(cursor) => {
            let index = cursor.as_str().parse().ok().filter(|index| *index < shards.count());
            index.ok_or_else(|| BackendError::unknown_cursor("memory", cursor))?
        }
    };
    let mut count = DebtorCount::new(now());
    let mut looks = 0_usize;
    for (index, shard) in shards.iter().enumerate().skip(first) {
        if looks >= MAX_LOOKS {
            let next = DebtorCursor::new(index.to_string());
            return Ok(count.with_next(Some(next)));
        }
        looks = looks.saturating_add(count_shard(shard, query, &now, &mut count));
    }
    Ok(count)
}

/// Counts the buckets of one shard, and returns how many slots it has.
fn count_shard(
    shard: &Mutex<Shard>,
    query: &DebtorQuery,
    now: impl Fn() -> Timestamp,
    count: &mut DebtorCount,
) -> usize {
    let shard = shard.lock();
    // Under the lock, as for a charge: a bucket that was charged later would seem to be blocked.
    let now = now();
    let Some(name) = shard.quotas.find(query.bucket()) else { return 0 };
    for slot in shard.table.iter().filter(|slot| slot.quota() == Some(name)) {
        let state = query.bucket().refresh(slot.state(), now);
        if query.asks_for(state, now)
            && let Some(kind) = DebtorKind::of(state, now)
        {
            count.add(kind);
        }
    }
    shard.table.slots()
}
