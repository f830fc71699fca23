//! The operations that wait to be sent, and the number of calls in flight.
//!
//! # Design
//!
//! A call must not name two slots, so each slot has a queue; without a cluster there is one queue.
//! Within it, buckets take [turns](Lanes).
//!
//! A queue may have a few calls in flight, so that its operations share them. A group of 64
//! neighbouring slots has a larger bound, so that the slots of a cluster do not wait for each
//! other. At that bound, a slot with jobs and no call in flight becomes a *waiting slot*. The next
//! task of the group that gets its answer changes to it.
//!
//! Neighbouring slots are mostly on one node. So a node that hangs uses up the calls of its own
//! slots, and leaves those of other nodes alone.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::job::{Job, LaneId};
use super::lanes::Lanes;
use crate::hashed::PrehashedMap;

/// The bounds of what is in flight.
#[derive(Debug)]
pub struct Bounds {
    /// Calls for one slot.
    pub calls_per_slot: usize,
    /// Calls for a group of slots.
    pub calls_per_group: usize,
    /// Buckets in a call, unless a single operation names more.
    pub buckets_per_call: usize,
}

/// The queues of all slots.
#[derive(Debug, Default)]
pub(super) struct SendQueues {
    groups: PrehashedMap<u16, SlotGroup>,
}

/// The jobs that a task has taken, to send them in one call.
#[derive(Debug, Default)]
pub(super) struct JobBatch {
    pub(super) jobs: Vec<Job>,
    /// The number of the last job that had arrived by then.
    pub(super) last_arrival: u64,
}

/// The number of slots in a group. The 16,384 slots of a cluster form 256 groups.
const GROUP_SIZE: u16 = 64;

impl SendQueues {
    /// Adds a job. Returns whether the caller has to start a task, which then [takes](Self::take)
    /// jobs.
    pub(super) fn push(&mut self, slot: u16, job: Job, now: Instant, bounds: &Bounds) -> bool {
        self.group(slot).push(slot, job, now, bounds)
    }

    /// The next jobs for a task of this slot, or of a waiting slot that it changes to. If there are
    /// none, the task no longer counts and has to end.
    pub(super) fn take(&mut self, slot: &mut u16, bounds: &Bounds) -> JobBatch {
        self.group(*slot).take(slot, bounds)
    }

    /// As `take`, for a task that got its answer: waiting slots come first.
    pub(super) fn take_more(&mut self, slot: &mut u16, bounds: &Bounds) -> JobBatch {
        self.group(*slot).take_more(slot, bounds)
    }

    /// Notes that a call for this slot was answered.
    pub(super) fn note_answer(&mut self, slot: u16, begun: Instant, deadline: Duration) {
        let now = Instant::now();
        let group = self.group(slot);
        group.heard_at = Some(now);
        // Only answers in time tell that the server is well, so that a queue which is too long is
        // reported as overload and not as an outage.
        if now.saturating_duration_since(begun) > deadline {
            return;
        }
        group.answered_at = Some(now);
        if let Some(slot) = group.slots.get_mut(&slot) {
            let others = slot.calls.saturating_sub(slot.ready) > 1;
            slot.silent_since = others.then_some(now);
        }
    }

    /// Whether calls for this slot, or those that it waits for, were without an answer in time since
    /// `then`; in a flood, without any.
    pub(super) fn is_silent_since(&mut self, slot: u16, then: Instant, is_flooded: bool) -> bool {
        let is_silent = |slot: &SlotQueue| slot.silent_since.is_some_and(|since| since <= then);
        let SlotGroup { slots, heard_at, .. } = self.group(slot);
        // This process may be what makes answers late.
        if is_flooded && heard_at.is_some_and(|at| at > then) {
            return false;
        }
        match slots.get(&slot) {
            Some(own) if own.calls > 0 || own.silent_since.is_some() => is_silent(own),
            Some(_) | None => slots.values().any(is_silent),
        }
    }

    /// Whether, since `then`, more jobs waited in this slot or its neighbours than a call takes,
    /// although a call was answered in time.
    pub(super) fn was_overloaded_since(&mut self, slot: u16, then: Instant) -> bool {
        let SlotGroup { answered_at, overloaded_at, .. } = *self.group(slot);
        answered_at.is_some_and(|at| at > then) && overloaded_at.is_some_and(|at| at > then)
    }

    /// Takes the first job of a lane if there is an answer to it, and returns both.
    pub(super) fn pop_if_answered<T>(
        &mut self,
        slot: u16,
        lane: LaneId,
        answer: impl FnOnce(&Job) -> Option<T>,
    ) -> Option<(Job, T)> {
        self.group(slot).slots.get_mut(&slot)?.jobs.pop_if_answered(lane, answer)
    }

    /// How many slots wait in the group of this one.
    #[cfg(test)]
    pub(super) fn waiting(&mut self, slot: u16) -> usize {
        self.group(slot).waiting_slots.len()
    }

    /// The group of a slot.
    fn group(&mut self, slot: u16) -> &mut SlotGroup {
        self.groups.entry(slot / GROUP_SIZE).or_default()
    }
}

/// The queues of a group that have jobs, or calls in flight.
#[derive(Debug, Default)]
struct SlotGroup {
    slots: PrehashedMap<u16, SlotQueue>,
    /// The number of tasks of all these slots.
    calls: usize,
    /// The slots that have jobs and no task.
    waiting_slots: VecDeque<u16>,
    /// The number of the last job that arrived.
    last_arrival: u64,
    /// When a call was last answered, and when in time.
    heard_at: Option<Instant>,
    answered_at: Option<Instant>,
    /// When more jobs than a call takes last waited for a slot.
    overloaded_at: Option<Instant>,
}

#[derive(Debug, Default)]
struct SlotQueue {
    jobs: Lanes,
    /// The number of tasks that have a call in flight or are about to take jobs.
    calls: usize,
    /// The number of tasks that are about to take jobs.
    ready: usize,
    /// Whether it is among the waiting slots.
    is_waiting: bool,
    /// When the first of the calls was sent that have no answer in time. One that failed has none.
    silent_since: Option<Instant>,
}

impl SlotGroup {
    fn push(&mut self, number: u16, job: Job, now: Instant, bounds: &Bounds) -> bool {
        let slot = self.slots.entry(number).or_default();
        // Each arrival drops up to two expired jobs, so they cannot pile up behind a server that
        // hangs.
        slot.jobs.drop_expired(now);
        self.last_arrival = self.last_arrival.saturating_add(1);
        slot.jobs.push(job, self.last_arrival);
        if slot.jobs.len() > bounds.buckets_per_call {
            self.overloaded_at = Some(now);
        }
        if slot.calls >= bounds.calls_per_slot {
            return false;
        }
        if self.calls < bounds.calls_per_group {
            // Counted before the task runs. Callers that come in between see its call and start no
            // more than the bound.
            slot.enter();
            self.calls = self.calls.saturating_add(1);
            return true;
        }
        if slot.calls == 0 {
            self.wait(number);
        }
        false
    }

    fn take(&mut self, number: &mut u16, bounds: &Bounds) -> JobBatch {
        let now = Instant::now();
        loop {
            let taken =
                self.slots.get_mut(number).map(|slot| slot.take(bounds.buckets_per_call, now));
            match taken {
                Some(jobs) if !jobs.is_empty() => {
                    return JobBatch { jobs, last_arrival: self.last_arrival };
                }
                _ => self.exit(*number),
            }
            let Some(next) = self.waiting_slots.pop_front() else {
                // Counted under the lock under which the queue was found empty. So the next job to
                // arrive starts a new task, and no job is left without one.
                self.calls = self.calls.saturating_sub(1);
                return JobBatch::default();
            };
            *number = next;
            self.slots.entry(next).or_default().enter();
        }
    }

    /// Makes a slot a waiting one, unless it is.
    fn wait(&mut self, number: u16) {
        let slot = self.slots.entry(number).or_default();
        if !std::mem::replace(&mut slot.is_waiting, true) {
            self.waiting_slots.push_back(number);
        }
    }

    fn take_more(&mut self, number: &mut u16, bounds: &Bounds) -> JobBatch {
        if let Some(next) = self.waiting_slots.pop_front() {
            self.exit(*number);
            *number = next;
            self.slots.entry(next).or_default().enter();
        } else if let Some(slot) = self.slots.get_mut(number) {
            // It takes its jobs next, and shares them with other tasks of the slot that are about
            // to.
            slot.ready = slot.ready.saturating_add(1);
        }
        self.take(number, bounds)
    }

    /// A task leaves its slot.
    fn exit(&mut self, number: u16) {
        let Some(slot) = self.slots.get_mut(&number) else { return };
        slot.calls = slot.calls.saturating_sub(1);
        if slot.calls > 0 {
            return;
        }
        if slot.jobs.is_empty() {
            // A slot of a store that fails keeps the time since which it does.
            if slot.silent_since.is_none() {
                self.slots.remove(&number);
            }
        } else {
            // Jobs are left, and no task is. From the list, the slot gets the next task of the
            // group.
            self.wait(number);
        }
    }
}

impl SlotQueue {
    /// Another task is about to take jobs.
    const fn enter(&mut self) {
        self.calls = self.calls.saturating_add(1);
        self.ready = self.ready.saturating_add(1);
        self.is_waiting = false;
    }

    /// The jobs for a task that was about to take some.
    ///
    /// All tasks that are about to take jobs share them evenly, so the server works on one call
    /// while the client writes or reads another. For example, 30 jobs and two such tasks make two
    /// calls of 15.
    fn take(&mut self, most: usize, now: Instant) -> Vec<Job> {
        let share = self.jobs.len().div_ceil(self.ready.max(1));
        self.ready = self.ready.saturating_sub(1);
        // Turns only matter if not all jobs fit into the next calls.
        let in_turns = share > most;
        let (mut taken, mut buckets) = (Vec::with_capacity(share.min(most)), 0_usize);
        while let Some(job) = self.jobs.next(in_turns) {
            // A job that names more buckets than a call may is sent alone: the first is always
            // taken.
            buckets = buckets.saturating_add(job.operation.names().len());
            if !taken.is_empty() && (buckets > most || taken.len() >= share) {
                break;
            }
            taken.extend(self.jobs.pop(in_turns).filter(|job| !job.is_expired(now)));
        }
        if in_turns {
            taken.sort_unstable_by_key(|job: &Job| job.arrival);
        }
        if !taken.is_empty() {
            self.silent_since.get_or_insert(now);
        }
        taken
    }
}
