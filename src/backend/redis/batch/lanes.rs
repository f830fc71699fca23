//! The jobs of one slot that wait, in lanes that take turns.
//!
//! # Design
//!
//! Each bucket has a lane, in which its jobs are first in, first out. The lanes give one job each in
//! turn, so a bucket that many jobs wait for has no more places in the next call than any other
//! bucket, as long as others wait. A job on several buckets joins the longest of their lanes: the one
//! of the bucket that is asked about most.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use tokio::time::Instant;

use super::job::Job;
use crate::backend::redis::operation::Operation;

/// Waiting jobs.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: HashMap<LaneId, Lane>,
    /// The lanes in the order of their turns.
    turns: BTreeMap<u64, LaneId>,
    /// Every waiting job in the order of arrival, and some that wait no more.
    arrivals: VecDeque<(LaneId, u64)>,
    waiting: usize,
    last_turn: u64,
    last_arrival: u64,
    hasher: RandomState,
}

/// The hash of a bucket's name. Two buckets may share a lane: then they share its turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct LaneId(u64);

/// Has at least one job.
#[derive(Debug, Default)]
struct Lane {
    jobs: VecDeque<Job>,
    turn: u64,
}

impl Lanes {
    pub(super) fn len(&self) -> usize {
        self.waiting
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// The number of the job that came last. All jobs that come later have larger ones.
    pub(super) fn last_arrival(&self) -> u64 {
        self.last_arrival
    }

    /// Adds a job at the end of its lane. Returns which lane it is.
    pub(super) fn push(&mut self, mut job: Job) -> LaneId {
        let id = self.lane_for(&job.operation);
        self.last_arrival = self.last_arrival.saturating_add(1);
        (job.lane, job.arrival) = (id, self.last_arrival);
        let lane = self.lanes.entry(id).or_default();
        if lane.jobs.is_empty() {
            self.last_turn = self.last_turn.saturating_add(1);
            lane.turn = self.last_turn;
            self.turns.insert(lane.turn, id);
        }
        lane.jobs.push_back(job);
        self.arrivals.push_back((id, self.last_arrival));
        self.waiting = self.waiting.saturating_add(1);
        id
    }

    /// The job whose turn it is.
    pub(super) fn front(&self) -> Option<&Job> {
        let (_, id) = self.turns.first_key_value()?;
        self.lanes.get(id)?.jobs.front()
    }

    /// Takes the job whose turn it is. Its lane is then behind all others.
    pub(super) fn pop(&mut self) -> Option<Job> {
        let (_, &id) = self.turns.first_key_value()?;
        let job = self.pop_of(id)?;
        if let Some(lane) = self.lanes.get_mut(&id) {
            self.turns.remove(&lane.turn);
            self.last_turn = self.last_turn.saturating_add(1);
            lane.turn = self.last_turn;
            self.turns.insert(lane.turn, id);
        }
        Some(job)
    }

    /// Takes the first job of a lane if there is an answer to it, and returns both.
    pub(super) fn pop_answered<T>(
        &mut self,
        id: LaneId,
        answer: impl FnOnce(&Job) -> Option<T>,
    ) -> Option<(Job, T)> {
        let answer = answer(self.lanes.get(&id)?.jobs.front()?)?;
        Some((self.pop_of(id)?, answer))
    }

    /// Drops the jobs that came first and are over: up to two, so that those that came are dropped
    /// faster than others come.
    pub(super) fn drop_over(&mut self, now: Instant) {
        let mut dropped = 0;
        while let Some(&(id, arrival)) = self.arrivals.front() {
            let first = self.lanes.get(&id).and_then(|lane| lane.jobs.front());
            // A lane is first in, first out, so a job that is not at its front was taken.
            if let Some(job) = first.filter(|job| job.arrival == arrival) {
                if dropped == 2 || !job.is_over(now) {
                    return;
                }
                dropped += 1;
                drop(self.pop_of(id));
            }
            // The records are gone already if this was the last job.
            self.arrivals.pop_front();
        }
    }

    /// The first job of a lane, which is removed with its last.
    fn pop_of(&mut self, id: LaneId) -> Option<Job> {
        let lane = self.lanes.get_mut(&id)?;
        let job = lane.jobs.pop_front();
        if lane.jobs.is_empty() {
            self.turns.remove(&lane.turn);
            self.lanes.remove(&id);
        }
        self.waiting = self.waiting.saturating_sub(usize::from(job.is_some()));
        if self.waiting == 0 {
            self.arrivals.clear();
        }
        job
    }

    fn lane_for(&self, operation: &Operation) -> LaneId {
        let names = operation.names();
        let ids = names.iter().map(|name| LaneId(self.hasher.hash_one(name)));
        let length = |id: &LaneId| self.lanes.get(id).map_or(0, |lane| lane.jobs.len());
        // The first of those that are equally long.
        ids.rev().max_by_key(length).unwrap_or_default()
    }
}
