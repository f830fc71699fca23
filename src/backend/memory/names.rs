//! The names of buckets, for a store that is asked to [keep keys](Memory::keep_keys): they list which
//! keys are in debt.
//!
//! # Design
//!
//! A table has no names, and a charge on a known bucket does not look for one. So a name is kept when
//! its bucket may be new, after the call that stored it and outside of the locks of the shards.
//! **Each bucket that is stored has its name here**, at the latest when that call returns.
//!
//! A bucket goes without telling. So each name that is kept looks after the next two in turn, and
//! forgets those whose buckets are gone: at the end of each round, at most as many names are left over
//! as there are buckets.

use std::sync::Arc;

use super::Memory;
use super::known_names::{MAX_LOOKS, Names};
use crate::backend::charge::BucketId;
use crate::backend::owned::OwnedBucketId;
use crate::backend::{BackendError, BucketRecord, DebtorQuery, DebtorReport, Key};
use crate::clock::Timestamp;

/// So many names are looked after for each one that is kept.
const SWEPT: usize = 2;

impl Memory {
    /// Keeps the names of buckets that a call may have stored.
    pub(super) fn keep_names<'i>(&self, ids: impl Iterator<Item = BucketId<'i>>) {
        let Some(names) = &self.names else { return };
        for id in ids.filter(|id| self.record(*id).is_some()) {
            let mut known = names.0.lock();
            known.all.insert(Arc::new(id.into_owned()));
            for _ in 0..SWEPT {
                known.sweep(|id| self.record(id).is_some());
            }
        }
    }

    /// What is stored of a bucket, and the time of the look.
    fn record(&self, id: BucketId<'_>) -> Option<(BucketRecord, Timestamp)> {
        let print = self.hasher.fingerprint(id);
        let shard = self.shards.shard_of(print).lock();
        let slot = shard.table.get(shard.table.find(print.tag())?)?;
        let numbers = shard.quotas.get(slot.quota()?)?;
        Some((BucketRecord::new(numbers, slot.state()), self.now()))
    }

    /// A page of the buckets that a query is for.
    pub(super) fn list_debtors(
        &self,
        names: &Names,
        query: &DebtorQuery,
    ) -> Result<DebtorReport, BackendError> {
        let limit = query.limit();
        let after = match query.get_after() {
            None => None,
            Some(cursor) => Some(
                read_cursor(limit, cursor)
                    .ok_or_else(|| BackendError::unknown_cursor("memory", cursor))?,
            ),
        };
        let looks = names.0.lock().of_limit(limit, after.as_ref());
        let mut at = self.now();
        let mut found = Vec::new();
        for name in &looks {
            if let Some((record, now)) = self.record(name.as_id()) {
                at = at.max(now);
                found.push((name, record));
            }
        }
        // All at the time of the last look, as the page has one time.
        let (mut debtors, mut last) = (Vec::new(), None);
        for (name, record) in found {
            let id = name.as_id();
            debtors.extend(query.debtor(id.key().clone(), id.shard_index(), &record, at));
            if debtors.len() >= query.get_max() {
                last = Some(name);
                break;
            }
        }
        let is_full = looks.len() >= MAX_LOOKS;
        let last = last.or_else(|| looks.last().filter(|_| is_full));
        Ok(DebtorReport::Page { at, debtors, next: last.map(|name| cursor_at(name.as_id())) })
    }
}

fn cursor_at(id: BucketId<'_>) -> String {
    format!("{}.{}", id.shard_index(), id.key().to_text())
}

fn read_cursor(limit: &str, cursor: &str) -> Option<OwnedBucketId> {
    let (shard, key) = cursor.split_once('.')?;
    let key = Key::from_text(key).ok()?;
    Some(BucketId::new(limit, &key).shard(shard.parse().ok()?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::charge::Charge;
    use crate::backend::{Answer, Backend as _};
    use crate::clock::ManualClock;
    use crate::limiter::Limit;
    use crate::quota::{HOUR, MINUTE, Quota};

    static LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));

    fn take(memory: &Memory, key: u64) {
        let key = Key::from(key);
        let units = LOGIN.bucket().units(1).unwrap();
        let charge = Charge::take(LOGIN.bucket_of(&key), LOGIN.bucket(), units);
        assert!(matches!(memory.apply(&[charge]), Answer::Ready(Ok(_))));
    }

    /// Buckets that are evicted, and buckets that are full again.
    #[test]
    fn names_of_buckets_that_are_gone_are_forgotten() {
        let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
        let kept = |memory: &Memory| memory.names.as_ref().unwrap().0.lock().all.len();
        let memory = Memory::new().max_keys(1_000).keep_keys().clock(clock.clone());
        (0..8_000).for_each(|key| take(&memory, key));
        let (names, buckets) = (kept(&memory), memory.len());
        assert!((buckets..=buckets * 2 + 2).contains(&names), "{names} names of {buckets}");
        let memory = Memory::new().max_keys(4_000).keep_keys().clock(clock.clone());
        // Buckets go at any time of a round: there may be fewer at its end.
        let mut buckets = 0;
        for key in 0..8_000 {
            take(&memory, key);
            clock.advance(MINUTE);
            buckets = buckets.max(if key < 7_000 { 0 } else { memory.len() });
        }
        let names = kept(&memory);
        assert!(memory.evicted() == 0 && names <= buckets * 2 + 2, "{names} names of {buckets}");
    }
}
