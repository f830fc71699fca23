//! The lane of a job on several buckets.
//!
//! # Design
//!
//! A client cannot choose all of its keys: it can make up users, but it has few addresses. So a
//! bucket that many waiting jobs name tells which jobs come from one client, and a bucket that few
//! jobs name does not. The path of a job goes from the bucket that most waiting jobs name to the
//! one that the fewest name. The order of the rules does not matter:
//!
//! ```text
//! user u1, address m ┐                       ┌ user u1
//! user u2, address m ├─▶  address m ─────────┼ user u2
//! user u3, address m ┘                       └ user u3
//! user a, address h  ───▶  user a ────────────  address h
//! ```
//!
//! Here a client at the address `m` has made up three users. Its jobs share the turns of one lane,
//! and the job of user `a` has a lane of its own.
//!
//! A bucket that all requests share tells no clients apart, so it is left out unless it is the only
//! one. A bucket that many clients share, such as that of a tenant, gets one lane for all of them,
//! and they take turns within it.

use std::hash::{BuildHasher, RandomState};

use smallvec::SmallVec;

use super::job::LaneId;
use crate::hashed::PrehashedMap;
use crate::key_name::KeyName;
use crate::operation::NamedOperation;

/// How many waiting jobs name each bucket, counted over the jobs that name several.
#[derive(Debug, Default)]
pub(super) struct Placement {
    named: PrehashedMap<LaneId, usize>,
    hasher: RandomState,
}

/// The lanes of a job, each within the one before. It has at least one.
pub(super) type LanePath = SmallVec<[LaneId; MAX_DEPTH]>;

impl Placement {
    /// Counts a job. Returns its lanes, and the buckets that count it if it names several.
    pub(super) fn place(&mut self, operation: &NamedOperation) -> (LanePath, Box<[LaneId]>) {
        let names = operation.names();
        if let [name] = names {
            return (SmallVec::from_slice(&[lane_id(name)]), Box::default());
        }
        let mut ids = SmallVec::<[_; 8]>::new();
        for name in names.iter().take(MAX_NAMES).filter(|name| !name.is_global()) {
            let id = lane_id(name);
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        if let ([], Some(first)) = (ids.as_slice(), names.first()) {
            ids.push(lane_id(first));
        }
        if ids.len() < 2 {
            let id = ids.first().copied().unwrap_or_default();
            return (SmallVec::from_slice(&[id]), Box::default());
        }
        let mut counted = SmallVec::<[_; 8]>::new();
        for &id in &ids {
            // This job is among those that are counted. `forget` takes it out again, by the same
            // list, when the job leaves.
            let count = self.named.entry(id).or_default();
            *count = count.saturating_add(1);
            counted.push((*count, id));
        }
        // A stable sort: buckets with equal counts keep the order of the rules.
        counted.sort_by_key(|&(count, _)| std::cmp::Reverse(count));
        let mut path = LanePath::new();
        for (_, id) in counted.into_iter().take(MAX_DEPTH) {
            // The same bucket within another lane is another lane: jobs of a user at two addresses
            // take turns in both.
            let within = path.last().map(|outer| LaneId::new(self.hasher.hash_one((outer, id))));
            path.push(within.unwrap_or(id));
        }
        (path, ids.into_boxed_slice())
    }

    /// Stops counting a job. The last job that names a bucket removes its count.
    pub(super) fn forget(&mut self, buckets: &[LaneId]) {
        for id in buckets {
            if let Some(count) = self.named.get_mut(id) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.named.remove(id);
                }
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.named.is_empty()
    }
}

const fn lane_id(name: &KeyName) -> LaneId {
    LaneId::new(name.own_hash())
}

/// The depth of lanes within lanes: one for a tenant, an address, a user, and one more. If a job
/// names more buckets, those that the fewest jobs name have no lane.
const MAX_DEPTH: usize = 4;

/// How many buckets of a job count for its path. A request has few rules. A look at all shards of a
/// limit names up to 1,024, and counting these would hold up other jobs.
const MAX_NAMES: usize = 32;
