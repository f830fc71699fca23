//! The waiting jobs of one slot, in lanes that take turns.
//!
//! # Design
//!
//! Each bucket has a *lane*, which is first in, first out. The lanes give one job each in turn. So
//! a bucket with many waiting jobs gets no more places in the next call than any other bucket, as
//! long as others wait. For example, with the jobs `a a a b a c b` in the order of arrival, the
//! turns give `a b c a b a a`.
//!
//! If all jobs fit into the next call, they are taken in the order of arrival instead.
//!
//! A job on several buckets waits in a lane within a lane, as its [path](Placement) says. The inner
//! lanes share the turns of the outer one.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use tokio::time::Instant;

use super::job::{Job, LaneId};
use super::placement::Placement;
use crate::hashed::PrehashedMap;

/// The waiting jobs of one slot.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: PrehashedMap<LaneId, BucketLane>,
    /// The outermost lanes, in the order of their turns.
    turns: Turns,
    /// All waiting jobs in the order of arrival, and some that have left: these are skipped later.
    arrivals: VecDeque<(LaneId, u64)>,
    waiting: usize,
    last_turn: u64,
    placement: Placement,
}

type Turns = BTreeMap<u64, LaneId>;

/// A lane. It has at least one job, or a lane within it.
#[derive(Debug, Default)]
struct BucketLane {
    jobs: VecDeque<Job>,
    /// The lanes within it.
    inner: Turns,
    /// Whether the last turn went to its own jobs, and not to the lanes within it.
    was_own_turn: bool,
    outer: Option<LaneId>,
    turn: u64,
}

impl Lanes {
    pub(super) fn len(&self) -> usize {
        self.waiting
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Adds a job at the end of its lane, and returns the lane. `arrival` is larger than that of
    /// any earlier job.
    pub(super) fn push(&mut self, mut job: Job, arrival: u64) -> LaneId {
        let (path, buckets) = self.placement.place(&job.operation);
        let (id, outer) =
            path.split_last().map_or_else(Default::default, |(id, outer)| (*id, outer));
        (job.lane, job.arrival, job.buckets) = (id, arrival, buckets);
        // A lane that exists has its turn already; the job waits behind those in it.
        match self.lanes.entry(id) {
            Entry::Occupied(lane) => lane.into_mut().jobs.push_back(job),
            Entry::Vacant(place) => {
                // The numbers of turns only grow, so a new lane is behind all others, and no lane
                // can stand in front twice before each has had its turn.
                self.last_turn = self.last_turn.saturating_add(1);
                let (turn, within) = (self.last_turn, outer.last().copied());
                let lane = BucketLane { turn, outer: within, ..BucketLane::default() };
                place.insert(lane).jobs.push_back(job);
                self.enter_turns(id, turn, outer);
            }
        }
        self.arrivals.push_back((id, arrival));
        self.waiting = self.waiting.saturating_add(1);
        id
    }

    /// The job that has its turn, or the one that came first.
    pub(super) fn next(&mut self, in_turns: bool) -> Option<&Job> {
        let id = self.next_lane(in_turns)?;
        self.lanes.get(&id)?.jobs.front()
    }

    /// Takes the job that has its turn, or the one that came first. Its lane is then behind all
    /// others.
    pub(super) fn pop(&mut self, in_turns: bool) -> Option<Job> {
        let id = self.next_lane(in_turns)?;
        let (job, is_last) = self.take_first(id)?;
        self.end_turn(id, is_last);
        Some(job)
    }

    /// Takes the first job of a lane if there is an answer to it, and returns both.
    pub(super) fn pop_if_answered<T>(
        &mut self,
        id: LaneId,
        answer: impl FnOnce(&Job) -> Option<T>,
    ) -> Option<(Job, T)> {
        // Only the first of the lane: one that stands before another may give tokens back, and so
        // change the other's answer.
        let answer = answer(self.lanes.get(&id)?.jobs.front()?)?;
        Some((self.pop_from(id)?, answer))
    }

    /// Drops the oldest jobs if they have expired: up to two, so that jobs are dropped faster than
    /// new ones arrive.
    pub(super) fn drop_expired(&mut self, now: Instant) {
        for _ in 0..2 {
            let Some(id) = self.oldest_lane() else { return };
            let first = self.lanes.get(&id).and_then(|lane| lane.jobs.front());
            if !first.is_some_and(|job| job.is_expired(now)) {
                return;
            }
            // Its lane keeps its turn: nothing was sent for it.
            drop(self.pop_from(id));
        }
    }

    fn next_lane(&mut self, in_turns: bool) -> Option<LaneId> {
        if !in_turns {
            return self.oldest_lane();
        }
        let mut turns = &self.turns;
        loop {
            let (_, id) = turns.first_key_value()?;
            let lane = self.lanes.get(id)?;
            // A lane with jobs of its own and lanes within it serves them alternately, so neither
            // starves the other.
            if !lane.jobs.is_empty() && (lane.inner.is_empty() || !lane.was_own_turn) {
                return Some(*id);
            }
            turns = &lane.inner;
        }
    }

    /// The lane of the oldest job. That job is at its front, because a lane is first in, first out.
    fn oldest_lane(&mut self) -> Option<LaneId> {
        while let Some(&(id, arrival)) = self.arrivals.front() {
            // Jobs that were taken by turn are still listed. Each entry is skipped once, so this
            // costs one step for each job on average.
            let first = self.lanes.get(&id).and_then(|lane| lane.jobs.front());
            if first.is_some_and(|job| job.arrival == arrival) {
                return Some(id);
            }
            // This job has left.
            self.arrivals.pop_front();
        }
        None
    }

    /// Gives a new lane its turn within the lanes around it, and makes those that do not exist yet.
    fn enter_turns(&mut self, mut id: LaneId, mut turn: u64, mut around: &[LaneId]) {
        while let Some((&outer, further)) = around.split_last() {
            match self.lanes.entry(outer) {
                Entry::Occupied(lane) => {
                    // The lanes around this one exist as well, and have their turns.
                    lane.into_mut().inner.insert(turn, id);
                    return;
                }
                Entry::Vacant(place) => {
                    self.last_turn = self.last_turn.saturating_add(1);
                    let lane = BucketLane {
                        inner: Turns::from([(turn, id)]),
                        turn: self.last_turn,
                        outer: further.last().copied(),
                        ..BucketLane::default()
                    };
                    place.insert(lane);
                }
            }
            (id, turn, around) = (outer, self.last_turn, further);
        }
        self.turns.insert(turn, id);
    }

    /// Removes the first job of a lane, and the lane with its last job.
    fn pop_from(&mut self, id: LaneId) -> Option<Job> {
        let (job, is_last) = self.take_first(id)?;
        if is_last {
            self.close(id);
        }
        Some(job)
    }

    /// Removes the first job of a lane. Also returns whether it was the last: then the caller has
    /// to [close](Self::close) the lane.
    fn take_first(&mut self, id: LaneId) -> Option<(Job, bool)> {
        let lane = self.lanes.get_mut(&id)?;
        let job = lane.jobs.pop_front()?;
        let is_last = lane.jobs.is_empty() && lane.inner.is_empty();
        self.placement.forget(&job.buckets);
        self.waiting = self.waiting.saturating_sub(1);
        if self.waiting == 0 {
            // Nothing waits, so all that is listed has left.
            self.arrivals.clear();
        }
        Some((job, is_last))
    }

    /// Moves a lane, and those around it, behind their neighbours.
    fn end_turn(&mut self, id: LaneId, is_empty: bool) {
        let (mut next, mut was_own_turn) = match is_empty {
            true => (self.close(id), false),
            false => (Some(id), true),
        };
        while let Some(id) = next {
            self.last_turn = self.last_turn.saturating_add(1);
            let turn = self.last_turn;
            let Some(lane) = self.lanes.get_mut(&id) else { return };
            // Each lane on the way out gets the last turn among its neighbours. So an outer lane is
            // served no more often than they are, however many jobs share it.
            lane.was_own_turn = was_own_turn;
            let (before, outer) = (std::mem::replace(&mut lane.turn, turn), lane.outer);
            if let Some(turns) = self.turns_within(outer) {
                turns.remove(&before);
                turns.insert(turn, id);
            }
            (next, was_own_turn) = (outer, false);
        }
    }

    /// Removes an empty lane, and each lane around it that is empty then. Returns the first one
    /// that is not.
    fn close(&mut self, id: LaneId) -> Option<LaneId> {
        let mut empty = id;
        loop {
            let BucketLane { turn, outer, .. } = self.lanes.remove(&empty)?;
            self.turns_within(outer)?.remove(&turn);
            // An outer lane is there for its jobs and for the lanes within it. Left empty, it would
            // take turns for nothing.
            let lane = self.lanes.get(&outer?)?;
            if !lane.jobs.is_empty() || !lane.inner.is_empty() {
                return outer;
            }
            empty = outer?;
        }
    }

    /// The turns of the lanes within this one; of the outermost lanes for `None`.
    fn turns_within(&mut self, outer: Option<LaneId>) -> Option<&mut Turns> {
        match outer {
            None => Some(&mut self.turns),
            Some(outer) => Some(&mut self.lanes.get_mut(&outer)?.inner),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::super::job::JobAnswer;
    use super::*;
    use crate::key_name::{HashTag, KeyNames};
    use crate::operation::{NamedOperation, Operation};
    use tollgate::backend::{BucketId, Key};

    type Answer = oneshot::Receiver<JobAnswer>;

    /// A job on the buckets of these users.
    fn job(users: &[&str], deadline: Instant) -> (Job, Answer) {
        let names = KeyNames::new("tollgate".to_owned(), HashTag::Bucket, None).unwrap();
        let keys: Vec<_> = users.iter().map(|user| Key::from(*user)).collect();
        let ids: Vec<_> = keys.iter().map(|key| BucketId::new("l", key)).collect();
        let (reply, answer) = oneshot::channel();
        let operation = NamedOperation::new(Operation::resets(&ids), &names);
        (Job::new(operation, deadline, reply), answer)
    }

    /// The users of all jobs, in the order in which they are taken.
    fn take_all(lanes: &mut Lanes) -> Vec<String> {
        let taken = std::iter::from_fn(|| lanes.pop(true));
        let user = |job: Job| {
            let names = job.operation.names();
            let users =
                names.iter().map(|name| String::from_utf8_lossy(name.as_ref()).into_owned());
            users.map(|name| name.replace("tollgate:l:", "")).collect::<Vec<_>>().join("+")
        };
        taken.map(user).collect()
    }

    /// Adds a job with the next number.
    fn push(lanes: &mut Lanes, users: &[&str], deadline: Instant) -> (LaneId, Answer) {
        let arrival = lanes.arrivals.back().map_or(0, |&(_, last)| last) + 1;
        let (job, answer) = job(users, deadline);
        (lanes.push(job, arrival), answer)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(3_600)
    }

    #[test]
    fn buckets_take_turns_and_each_is_first_in_first_out() {
        let mut lanes = Lanes::default();
        let users = ["a", "a", "a", "b", "a", "c", "b"];
        let answers: Vec<_> = users.map(|user| push(&mut lanes, &[user], soon())).into();
        assert_eq!(lanes.len(), 7);
        assert_eq!(take_all(&mut lanes), ["a", "b", "c", "a", "b", "a", "a"]);
        assert!(lanes.is_empty() && lanes.lanes.is_empty() && lanes.turns.is_empty());
        drop(answers);
    }

    #[test]
    fn jobs_that_all_fit_are_taken_in_the_order_of_arrival() {
        let mut lanes = Lanes::default();
        let answers = ["a", "b", "a", "a", "c", "b"].map(|user| push(&mut lanes, &[user], soon()));
        let arrivals: Vec<_> =
            std::iter::from_fn(|| lanes.pop(false)).map(|job| job.arrival).collect();
        assert_eq!(arrivals, [1, 2, 3, 4, 5, 6]);
        assert!(lanes.is_empty() && lanes.lanes.is_empty() && lanes.turns.is_empty());
        drop(answers);
    }

    #[test]
    fn a_job_on_several_buckets_waits_in_the_lane_of_the_one_that_most_jobs_name() {
        let mut lanes = Lanes::default();
        let mut answers = Vec::new();
        // Made-up users at one address: all wait for the bucket of the address.
        for users in [&["u1", "ip"][..], &["ip"], &["u2", "ip"], &["u3", "ip"], &["other"]] {
            answers.push(push(&mut lanes, users, soon()));
        }
        assert_eq!(take_all(&mut lanes), ["u1+ip", "ip", "other", "u2+ip", "u3+ip"]);
        assert!(is_bare(&lanes));
    }

    /// Whether the jobs have left nothing behind.
    fn is_bare(lanes: &Lanes) -> bool {
        lanes.lanes.is_empty()
            && lanes.turns.is_empty()
            && lanes.arrivals.is_empty()
            && lanes.placement.is_empty()
    }

    #[test]
    fn jobs_on_several_buckets_leave_nothing_behind_in_whatever_way_they_leave() {
        let ways: [fn(&mut Lanes, LaneId) -> Option<Job>; 3] = [
            |lanes, _| lanes.pop(true),
            |lanes, _| lanes.pop(false),
            |lanes, id| lanes.pop_if_answered(id, |_| Some(())).map(|(job, ())| job),
        ];
        for way in ways {
            let mut lanes = Lanes::default();
            let mut gone = Vec::new();
            for nth in 0..200 {
                let (user, ip) = (format!("u{}", nth % 7), format!("ip{}", nth % 3));
                let tenant = format!("t{}", nth % 2);
                let users = [&*user, &*ip, &*tenant, "all", &*user];
                let (id, answer) = push(&mut lanes, &users[nth % 4..], soon());
                gone.push((id, answer));
            }
            let left = lanes.len();
            assert_eq!(left, 200);
            for (id, _) in &gone {
                way(&mut lanes, *id).unwrap();
            }
            assert!(lanes.is_empty() && is_bare(&lanes));
        }
        // Here their deadlines have passed.
        let mut lanes = Lanes::default();
        for nth in 0..200 {
            push(&mut lanes, &[&format!("u{nth}"), "ip", "all"], Instant::now());
        }
        while !lanes.is_empty() {
            lanes.drop_expired(Instant::now());
        }
        assert!(is_bare(&lanes));
    }

    #[test]
    fn expired_jobs_are_dropped_while_others_arrive_and_leave_nothing_behind() {
        let mut lanes = Lanes::default();
        let now = Instant::now();
        let mut kept = Vec::new();
        for nth in 0..100 {
            // These jobs are expired: the caller is dropped, or the deadline has passed.
            let answer = push(&mut lanes, &[&format!("user-{nth}")], now);
            if nth % 2 == 0 {
                kept.push(answer);
            }
        }
        for nth in 0..60 {
            lanes.drop_expired(now);
            kept.push(push(&mut lanes, &[&format!("late-{nth}")], soon()));
        }
        assert_eq!(lanes.len(), 60);
        assert_eq!([lanes.lanes.len(), lanes.turns.len(), lanes.arrivals.len()], [60; 3]);
        assert_eq!(take_all(&mut lanes).len(), 60);
        assert!(lanes.arrivals.is_empty());
    }

    #[test]
    fn only_the_front_of_a_lane_is_answered_and_only_if_there_is_an_answer() {
        let mut lanes = Lanes::default();
        let answers = ["a", "a", "b"].map(|user| push(&mut lanes, &[user], soon()));
        let (id, _) = answers[0];
        assert!(lanes.pop_if_answered(id, |_| None::<()>).is_none());
        let first = lanes.pop_if_answered(id, |job| Some(job.arrival)).unwrap();
        assert_eq!((first.0.arrival, first.1, lanes.len()), (1, 1, 2));
        assert!(lanes.pop_if_answered(id, |job| (job.arrival < 2).then_some(())).is_none());
        assert_eq!(take_all(&mut lanes), ["a", "b"]);
        assert!(lanes.pop_if_answered(id, |_| Some(())).is_none());
    }
}
