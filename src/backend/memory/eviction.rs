//! Which bucket is evicted when a shard is full.
//!
//! # Design
//!
//! **The choice.** The victim comes from the quota that holds the most buckets of the shard, with
//! the newcomer counted. Of that quota's buckets, it is the one that has used the smallest share of
//! its capacity. So a limit that fills the store pays for that itself: a flood of made-up keys of
//! one limit evicts these keys, and no bucket of a limit with fewer keys. If several quotas hold
//! equally many, the newcomer's quota pays if it is one of them; otherwise the smallest share of
//! all of them goes.
//!
//! For example, a shard is full with 6 buckets of `login` (5 an hour) and 4 of `search` (1,000 a
//! day), and a new bucket of `login` comes. `login` holds 7 then, so it loses one: of those that
//! have used 1/5, 3/5 and 5/5, the bucket with 1/5.
//!
//! **Blocks.** Blocked buckets go last, because evicting one lifts its block. But they may hold at
//! most half of the shard. Above that, the quota with the most blocked buckets loses the one whose
//! block ends first. Otherwise keys that are blocked could fill the store, and every other key
//! would be forgotten at once.
//!
//! **Cost.** One scan of the shard finds the least buckets of each quota, up to a quarter of the
//! shard, and puts them into a heap for each quota. Each eviction takes one of them. So on average
//! a new bucket pays for a few slots and not for a scan, even if several quotas take turns in
//! holding the most.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::num::NonZeroU32;

use smallvec::SmallVec;

use super::fingerprint::Tag;
use super::quota_table::index;
use super::rank::{Rank, Share};
use super::shard_view::{ShardView, is_blocked};
use super::table::Slot;
use crate::clock::Timestamp;

/// The eviction candidates of a shard. It is empty until an eviction is due.
#[derive(Debug, Default)]
pub(super) struct EvictionQueue {
    /// The queue of each quota, by the index of the quota's name.
    queues: Vec<VictimQueue>,
    /// How many buckets are blocked.
    blocked: usize,
    /// When the shard was scanned; `None` if the queues are not valid.
    scanned_at: Option<Timestamp>,
    /// How many candidates were added since the scan.
    notes: usize,
    /// Where the next comparison of tied quotas begins: only [`TIED`] are compared at a time.
    turn: usize,
    #[cfg(test)]
    pub(super) scans: usize,
}

/// The eviction candidates of one quota.
///
/// Invariant: **every bucket below the `horizon` is in the heap**, with the rank that it had when
/// it was put there.
///
/// * A charge only raises the rank of a bucket. Then the heap has a rank that is too low, which is
///   noticed when the bucket comes out: it goes back in with its new rank.
/// * Whatever lowers a rank puts the bucket into the heap once more: a refund, another quota, the
///   end of a line or of a block.
/// * The end of a window lowers ranks too, and is only noticed by the next scan. That is why a scan
///   is outdated after a period.
#[derive(Debug, Default)]
struct VictimQueue {
    least: BinaryHeap<Reverse<Candidate>>,
    /// The rank of the last bucket that the scan kept; `None` if it kept all buckets of the quota.
    horizon: Option<Rank>,
    /// The blocked buckets, by the ends of their blocks.
    blocked: BTreeSet<(Timestamp, Tag)>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: Rank,
    tag: Tag,
}

/// The heap has no valid candidate left, or is outdated: the shard has to be scanned.
struct NeedsScan;

/// A scan keeps a quarter of the shard's buckets at most, for each quota.
const SCAN_SHARE: usize = 4;

/// Of how many quotas that hold equally many the shares are compared.
const TIED: usize = 16;

impl EvictionQueue {
    /// The slot of the bucket to evict for `newcomer`; the quota of the newcomer counts it already.
    pub(super) fn victim(
        &mut self,
        view: ShardView<'_>,
        newcomer: &Slot,
        capacity: usize,
    ) -> Option<usize> {
        if self.scanned_at.is_none() {
            self.scan(view);
        }
        let found = self.search(view, newcomer, capacity).or_else(|NeedsScan| {
            self.scan(view);
            self.search(view, newcomer, capacity)
        });
        found.unwrap_or(None)
    }

    /// Whether any bucket is known to be blocked.
    #[inline]
    pub(super) const fn has_blocked(&self) -> bool {
        self.blocked > 0
    }

    /// Adds a bucket that was just added to the shard, or that may now have a lower rank.
    pub(super) fn note_candidate(&mut self, slot: &Slot, view: ShardView<'_>) {
        if self.scanned_at.is_none() {
            return;
        }
        if self.notes >= view.table.len() {
            // Buckets come and go without evictions, so most candidates are stale: scan again.
            *self = self.restarted();
            return;
        }
        let Some(queue) = slot.quota().and_then(|name| self.queue_mut(name)) else { return };
        if is_blocked(slot.state(), view.now) {
            let is_new = queue.blocked.insert((slot.state().ts, slot.tag()));
            self.blocked = self.blocked.saturating_add(usize::from(is_new));
        } else if let Some(rank) = view.rank(slot)
            && queue.horizon.is_none_or(|horizon| rank < horizon)
        {
            queue.least.push(Reverse(Candidate { rank, tag: slot.tag() }));
            self.notes = self.notes.saturating_add(1);
        }
    }

    /// Removes a bucket from the blocked ones, as it is removed or changed by something else than a
    /// charge. Returns whether it was there: if it stays, it has to be noted again.
    pub(super) fn forget_block(&mut self, slot: &Slot) -> bool {
        // A quick answer for nearly all slots: a block is a state in debt.
        if self.blocked == 0 || slot.state().value >= 0 {
            return false;
        }
        let queue = slot.quota().and_then(|name| self.queues.get_mut(index(name)));
        let was_blocked =
            queue.is_some_and(|queue| queue.blocked.remove(&(slot.state().ts, slot.tag())));
        self.blocked = self.blocked.saturating_sub(usize::from(was_blocked));
        was_blocked
    }

    /// An empty queue that keeps its turn.
    fn restarted(&self) -> Self {
        Self {
            turn: self.turn,
            #[cfg(test)]
            scans: self.scans,
            ..Self::default()
        }
    }

    fn queue_mut(&mut self, name: NonZeroU32) -> Option<&mut VictimQueue> {
        let place = index(name);
        if place >= self.queues.len() {
            self.queues.resize_with(place.saturating_add(1), VictimQueue::default);
        }
        self.queues.get_mut(place)
    }

    fn search(
        &mut self,
        view: ShardView<'_>,
        newcomer: &Slot,
        capacity: usize,
    ) -> Result<Option<usize>, NeedsScan> {
        self.end_blocks(view);
        let is_blocked = is_blocked(newcomer.state(), view.now);
        if self.blocked.saturating_add(usize::from(is_blocked)) > capacity / 2
            && let Some(index) = self.blocked_victim(view)
        {
            return Ok(Some(index));
        }
        let all = view.table.len().saturating_add(1);
        let mut below = usize::MAX;
        // A quota of which all buckets are blocked or have waiters has no victim: take the quota
        // with the next lower count.
        while let Some(most) = view.quotas.most(below, all) {
            // Of quotas that hold equally many, the newcomer's pays.
            let own = newcomer.quota().filter(|&own| view.quotas.count(own, all) == most);
            let own = match own {
                Some(own) => self.least(own, view)?.map(|(index, _)| (own, index)),
                None => None,
            };
            let victim = match own {
                Some(own) => Some(own),
                None => self.least_of(most, all, view)?,
            };
            if let Some((name, index)) = victim {
                // `least` has left it at the top of its heap, and the caller removes it from the
                // table.
                self.pop(name);
                return Ok(Some(index));
            }
            below = most;
        }
        Ok(self.blocked_victim(view))
    }

    /// Of the quotas that hold `count` buckets, the one with the smallest share in its least
    /// bucket.
    fn least_of(
        &mut self,
        count: usize,
        all: usize,
        view: ShardView<'_>,
    ) -> Result<Option<(NonZeroU32, usize)>, NeedsScan> {
        let tied = view.quotas.counts(all).filter(|&(_, slots)| slots == count);
        let tied: SmallVec<[NonZeroU32; 8]> = tied.map(|(name, _)| name).collect();
        // It begins where the last comparison ended. From the same place each time, quotas beyond
        // the first 16 might never lose a bucket.
        let start = self.turn.checked_rem(tied.len()).unwrap_or(0);
        self.turn = start.saturating_add(TIED);
        let mut best: Option<(NonZeroU32, usize, Share)> = None;
        let mut compared = 0_usize;
        for &name in tied.iter().cycle().skip(start).take(tied.len()) {
            let Some((index, slot)) = self.least(name, view)? else { continue };
            let Some(share) = view.share(slot) else { continue };
            if best.as_ref().is_none_or(|(.., best)| share.cmp(best).is_lt()) {
                best = Some((name, index, share));
            }
            compared = compared.saturating_add(1);
            if compared >= TIED {
                break;
            }
        }
        Ok(best.map(|(name, index, _)| (name, index)))
    }

    /// The least bucket of a quota that may be evicted, if any. It stays in the heap.
    fn least<'v>(
        &mut self,
        name: NonZeroU32,
        view: ShardView<'v>,
    ) -> Result<Option<(usize, &'v Slot)>, NeedsScan> {
        let scanned_at = self.scanned_at;
        let Some(queue) = self.queues.get_mut(index(name)) else { return Ok(None) };
        if !queue.least.is_empty() && view.is_outdated(name, scanned_at) {
            return Err(NeedsScan);
        }
        while let Some(Reverse(candidate)) = queue.least.peek() {
            // By the tag and not by an index: buckets move when others are removed.
            let found = view.table.find(candidate.tag);
            let found = found.and_then(|index| Some((index, view.table.get(index)?)));
            let found = found.filter(|(_, slot)| slot.quota() == Some(name));
            match found.and_then(|(_, slot)| view.rank(slot)) {
                // The ranks in the heap are lower bounds, and this one is exact: no other is less.
                Some(rank) if rank <= candidate.rank => return Ok(found),
                // It has been charged since: put it back with its present rank.
                Some(rank) if queue.horizon.is_none_or(|horizon| rank < horizon) => {
                    let tag = candidate.tag;
                    queue.least.pop();
                    queue.least.push(Reverse(Candidate { rank, tag }));
                }
                // It is gone, has another quota, must not be evicted, or has risen above the
                // horizon.
                _ => {
                    queue.least.pop();
                }
            }
        }
        // Without a horizon the heap had all buckets, so there is none to evict. Otherwise the scan
        // left some out.
        if queue.horizon.is_none() { Ok(None) } else { Err(NeedsScan) }
    }

    fn pop(&mut self, name: NonZeroU32) {
        if let Some(queue) = self.queues.get_mut(index(name)) {
            queue.least.pop();
        }
    }

    /// Of the quota with the most blocked buckets, the bucket with the block that ends first.
    fn blocked_victim(&self, view: ShardView<'_>) -> Option<usize> {
        if self.blocked == 0 {
            return None;
        }
        let first = |queue: &VictimQueue| {
            let mut free = queue.blocked.iter().filter(|&&(_, tag)| !view.is_pinned(tag));
            free.next().and_then(|&(_, tag)| view.table.find(tag))
        };
        let firsts = self.queues.iter().filter(|queue| !queue.blocked.is_empty());
        let firsts = firsts.filter_map(|queue| Some((queue.blocked.len(), first(queue)?)));
        firsts.max_by_key(|&(count, _)| count).map(|(_, index)| index)
    }

    /// Makes ordinary candidates of the buckets that are no longer blocked.
    fn end_blocks(&mut self, view: ShardView<'_>) {
        if self.blocked == 0 {
            return;
        }
        for queue in &mut self.queues {
            while let Some((_, tag)) =
                queue.blocked.first().copied().filter(|&(end, _)| end <= view.now)
            {
                queue.blocked.pop_first();
                self.blocked = self.blocked.saturating_sub(1);
                let slot = view.table.find(tag).and_then(|index| view.table.get(index));
                if let Some(rank) = slot.and_then(|slot| view.rank(slot))
                    && queue.horizon.is_none_or(|horizon| rank < horizon)
                {
                    queue.least.push(Reverse(Candidate { rank, tag }));
                }
            }
        }
    }

    /// Scans the shard, and fills the heaps with the least buckets of each quota.
    fn scan(&mut self, view: ShardView<'_>) {
        *self = Self { scanned_at: Some(view.now), ..self.restarted() };
        #[cfg(test)]
        {
            self.scans = self.scans.saturating_add(1);
        }
        let kept = view.table.len().div_ceil(SCAN_SHARE);
        let mut found = Vec::<Vec<Candidate>>::new();
        for (name, count) in view.quotas.counts(view.table.len()) {
            let place = index(name);
            found.resize_with(found.len().max(place.saturating_add(1)), Vec::new);
            if let Some(found) = found.get_mut(place) {
                // Once for each quota, so that the loop below does not allocate under the lock of
                // the shard.
                found.reserve_exact(count);
            }
        }
        self.queues.resize_with(found.len(), VictimQueue::default);
        for slot in view.table.iter() {
            let (Some(name), tag) = (slot.quota(), slot.tag()) else { continue };
            if let Some(rank) = view.rank(slot) {
                if let Some(found) = found.get_mut(index(name)) {
                    found.push(Candidate { rank, tag });
                }
            } else if is_blocked(slot.state(), view.now)
                && let Some(queue) = self.queues.get_mut(index(name))
            {
                queue.blocked.insert((slot.state().ts, tag));
                self.blocked = self.blocked.saturating_add(1);
            }
        }
        for (queue, mut found) in self.queues.iter_mut().zip(found) {
            if found.len() > kept {
                // Selection in linear time. Each bucket that is left out has at least the rank of
                // the last one that is kept, which becomes the horizon.
                let (_, last, _) = found
                    .select_nth_unstable_by_key(kept.saturating_sub(1), |candidate| candidate.rank);
                queue.horizon = Some(last.rank);
                found.truncate(kept);
            }
            // A new allocation of the right size, so that the larger one is freed.
            let mut least = Vec::with_capacity(found.len());
            least.extend(found.into_iter().map(Reverse));
            queue.least = least.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::fingerprint::Fingerprint;
    use super::super::rank::Share;
    use super::super::shard::Shard;
    use super::{Tag, is_blocked};
    use crate::algebra::{Bucket, State};
    use crate::backend::apply::absent;
    use crate::backend::{Adjustment, BucketId, Key, ResetLog};
    use crate::clock::Timestamp;
    use crate::{DAY, HOUR, MINUTE, Quota};

    const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

    fn bucket(nth: usize) -> Bucket {
        let quotas = [
            Quota::token_bucket(5, HOUR),
            Quota::token_bucket(1_000, DAY),
            Quota::token_bucket(1, DAY),
            Quota::token_bucket(100, MINUTE).capacity(0),
        ];
        Bucket::new(&quotas[nth % quotas.len()]).unwrap()
    }

    /// The fingerprint of the `nth` bucket: spread over the table as hashes are.
    fn print(nth: u64) -> Fingerprint {
        Fingerprint::new(nth.wrapping_mul(0x9e37_79b9_7f4a_7c15), 0)
    }

    fn read(shard: &Shard, nth: u64, id: BucketId<'_>, bucket: &Bucket, now: Timestamp) -> State {
        let found = shard.find(print(nth), id, bucket, now);
        found.state_in(id, bucket, now).unwrap_or_else(|| absent(id, bucket, now))
    }

    fn take(shard: &mut Shard, nth: u64, bucket: &Bucket, tokens: u64, now: Timestamp) {
        let key = Key::from(nth);
        let id = BucketId::new("limit", &key);
        // A penalty may leave any bucket in debt.
        let units = bucket.units(tokens).unwrap();
        let penalty = Adjustment::refund(id, bucket, -units);
        let state = read(shard, nth, id, bucket, now);
        shard.write(print(nth), bucket, penalty.apply_to(state, now), now);
        shard.note(print(nth).tag(), now);
    }

    fn block(shard: &mut Shard, nth: u64, bucket: &Bucket, time: Duration, now: Timestamp) {
        let key = Key::from(nth);
        let id = BucketId::new("limit", &key);
        let block = Adjustment::block(id, bucket, time);
        let state = read(shard, nth, id, bucket, now);
        shard.write(print(nth), bucket, block.apply_to(state, now), now);
        shard.note(print(nth).tag(), now);
    }

    type Held = HashMap<Tag, (Bucket, State)>;

    fn held(shard: &Shard) -> Held {
        let one = |slot: &super::Slot| {
            let bucket = *shard.quotas.get(slot.quota().unwrap()).unwrap();
            (slot.tag(), (bucket, slot.state()))
        };
        shard.table.iter().map(one).collect()
    }

    /// The buckets that may be evicted for a newcomer, found by looking at all buckets.
    fn victims(held: &Held, newcomer: (Bucket, bool), capacity: usize, now: Timestamp) -> Vec<Tag> {
        let blocked: Vec<_> =
            held.iter().filter(|(_, (_, state))| is_blocked(*state, now)).collect();
        let count = |bucket: &Bucket| {
            held.values().filter(|(other, _)| other == bucket).count()
                + usize::from(newcomer.0 == *bucket)
        };
        let free: Vec<_> = held.iter().filter(|(_, (_, state))| !is_blocked(*state, now)).collect();
        let is_above = blocked.len() + usize::from(newcomer.1) > capacity / 2;
        if (is_above && !blocked.is_empty()) || free.is_empty() {
            let of = |bucket: &Bucket| blocked.iter().filter(|(_, (b, _))| b == bucket).count();
            let most = blocked.iter().map(|(_, (bucket, _))| of(bucket)).max();
            let of_most: Vec<_> =
                blocked.iter().filter(|(_, (bucket, _))| Some(of(bucket)) == most).collect();
            // Of each quota, the bucket with the block that ends first.
            let is_first = |(_, (bucket, state)): &(&Tag, &(Bucket, State))| {
                of_most.iter().all(|(_, (b, s))| b != bucket || s.ts >= state.ts)
            };
            return of_most.iter().filter(|one| is_first(one)).map(|(tag, _)| **tag).collect();
        }
        let most = free.iter().map(|(_, (bucket, _))| count(bucket)).max().unwrap();
        let mut of_most: Vec<_> =
            free.into_iter().filter(|(_, (bucket, _))| count(bucket) == most).collect();
        if of_most.iter().any(|(_, (bucket, _))| *bucket == newcomer.0) {
            of_most.retain(|(_, (bucket, _))| *bucket == newcomer.0);
        }
        let share =
            |&(_, (bucket, state)): &(&Tag, &(Bucket, State))| Share::new(bucket, *state, now);
        let least = of_most.iter().map(share).min_by(Share::cmp).unwrap();
        of_most.iter().filter(|one| share(one).cmp(&least).is_eq()).map(|(tag, _)| **tag).collect()
    }

    proptest! {
        /// Each evicted bucket is one that a search of all buckets would choose.
        #[test]
        fn the_victim_is_one_that_a_search_of_all_buckets_would_choose(
            capacity in 1_usize..20,
            steps in prop::collection::vec((0_u8..10, 0_u64..60, 0_usize..4, 1_u64..8), 1..150),
        ) {
            let mut shard = Shard::new(capacity, ResetLog::default());
            let mut now = START;
            for (what, nth, numbers, much) in steps {
                let bucket = bucket(numbers);
                let before = held(&shard);
                let is_new = !before.contains_key(&print(nth).tag());
                if !is_new && what == 9 {
                    let key = Key::from(nth);
                    shard.forget(print(nth), BucketId::new("limit", &key), now);
                    continue;
                }
                if what == 8 {
                    block(&mut shard, nth, &bucket, MINUTE * u32::try_from(much).unwrap(), now);
                } else {
                    take(&mut shard, nth, &bucket, much, now);
                }
                let after = held(&shard);
                let gone: Vec<_> = before.keys().filter(|tag| !after.contains_key(tag)).collect();
                let is_evicted = |tag: &&&Tag| {
                    let (bucket, state) = &before[**tag];
                    bucket.drop_at(*state).plus_micros(super::super::shard::GRACE) >= now
                };
                let evicted: Vec<_> = gone.iter().filter(is_evicted).collect();
                prop_assert!(after.len() <= capacity);
                prop_assert!(evicted.len() <= usize::from(is_new));
                if let &[victim] = evicted.as_slice() {
                    let swept = |tag: &Tag| gone.contains(&tag) && tag != *victim;
                    let left: Held =
                        before.iter().filter(|(tag, _)| !swept(tag)).map(|(&t, &v)| (t, v)).collect();
                    let victims = victims(&left, (bucket, what == 8), capacity, now);
                    prop_assert!(victims.contains(victim), "{left:?} at {now:?}: {victim:?}");
                }
                now = now + Duration::from_millis(much * much * much * 100);
            }
        }
    }

    /// Quotas that hold equally many take turns in losing a bucket, and do not cause a scan each
    /// time.
    #[test]
    fn one_scan_serves_many_evictions_of_several_quotas() {
        for kinds in 1..=4 {
            let mut shard = Shard::new(1_000, ResetLog::default());
            for nth in 0..6_000 {
                let numbers = usize::try_from(nth).unwrap() % kinds;
                take(&mut shard, nth, &bucket(numbers), 1, START);
            }
            assert_eq!(shard.len(), 1_000);
            let scans = shard.evictions.scans;
            assert!((1..=5_000 / 60).contains(&scans), "{scans} scans, {kinds} kinds");
        }
    }
}
