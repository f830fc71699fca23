//! The operations that wait to be sent, and the number of calls in flight.
//!
//! # Design
//!
//! A call must not name two slots, so each slot has a queue; without a cluster there is one. A queue
//! has few calls in flight, so that its operations share them. A group of 64 neighbouring slots has a
//! larger bound, so that the slots of a cluster do not wait for each other. At that bound, a slot with
//! no call in flight becomes a waiting slot, and takes over the next task that is answered.
//!
//! Neighbouring slots are mostly on one node, so a node that hangs uses up the calls of its own slots
//! and leaves those of other nodes alone.

use std::collections::{HashMap, VecDeque};

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::backend::redis::operation::Operation;
use crate::backend::{Applied, BackendError};

/// An operation that waits to be sent.
#[derive(Debug)]
pub(super) struct Job {
    /// Boxed, because it is large and moved several times.
    pub(super) operation: Box<Operation>,
    pub(super) deadline: Instant,
    pub(super) reply: oneshot::Sender<Result<Applied, BackendError>>,
}

impl Job {
    /// Whether its caller is gone or out of time.
    fn is_over(&self, now: Instant) -> bool {
        self.deadline <= now || self.reply.is_closed()
    }
}

/// How much may be in flight.
#[derive(Debug)]
pub(in crate::backend::redis) struct Bounds {
    /// The calls for one slot.
    pub(in crate::backend::redis) calls_per_slot: usize,
    /// The calls for a group of slots.
    pub(in crate::backend::redis) calls_per_group: usize,
    /// The buckets of a call, unless a single operation names more.
    pub(in crate::backend::redis) buckets_per_call: usize,
}

/// The queues of all slots.
#[derive(Debug, Default)]
pub(super) struct SendQueues {
    groups: HashMap<u16, SlotGroup>,
}

/// The slots of a group: the 16,384 slots of a cluster form 256 groups.
const GROUP_SIZE: u16 = 64;

impl SendQueues {
    /// Adds a job. Returns whether the caller has to start a task, which then [takes](Self::take) jobs.
    pub(super) fn push(&mut self, slot: u16, job: Job, bounds: &Bounds) -> bool {
        self.group(slot).push(slot, job, bounds)
    }

    /// The next jobs for a task of this slot, or of a waiting slot that it changes to. If there are
    /// none, the task no longer counts and has to end.
    pub(super) fn take(&mut self, slot: &mut u16, bounds: &Bounds) -> Vec<Job> {
        self.group(*slot).take(slot, bounds)
    }

    /// As `take`, for a task whose call was answered: waiting slots come first.
    pub(super) fn take_more(&mut self, slot: &mut u16, bounds: &Bounds) -> Vec<Job> {
        self.group(*slot).take_more(slot, bounds)
    }

    /// The group of a slot.
    fn group(&mut self, slot: u16) -> &mut SlotGroup {
        self.groups.entry(slot / GROUP_SIZE).or_default()
    }
}

/// The queues of a group that have jobs or calls in flight.
#[derive(Debug, Default)]
struct SlotGroup {
    slots: HashMap<u16, SlotQueue>,
    /// The tasks of all these slots.
    calls: usize,
    /// The slots that have jobs and no task.
    waiting_slots: VecDeque<u16>,
}

#[derive(Debug, Default)]
struct SlotQueue {
    jobs: VecDeque<Job>,
    /// The tasks that have a call in flight or are about to take jobs.
    calls: usize,
    /// The tasks that are about to take jobs.
    ready: usize,
}

impl SlotGroup {
    fn push(&mut self, number: u16, job: Job, bounds: &Bounds) -> bool {
        let slot = self.slots.entry(number).or_default();
        slot.leave(Instant::now());
        slot.jobs.push_back(job);
        if slot.calls >= bounds.calls_per_slot {
            return false;
        }
        if self.calls < bounds.calls_per_group {
            slot.enter();
            self.calls = self.calls.saturating_add(1);
            return true;
        }
        if slot.calls == 0 && slot.jobs.len() == 1 {
            self.waiting_slots.push_back(number);
        }
        false
    }

    fn take(&mut self, number: &mut u16, bounds: &Bounds) -> Vec<Job> {
        let now = Instant::now();
        loop {
            let taken =
                self.slots.get_mut(number).map(|slot| slot.take(bounds.buckets_per_call, now));
            match taken {
                Some(taken) if !taken.is_empty() => return taken,
                _ => self.exit(*number),
            }
            let Some(next) = self.waiting_slots.pop_front() else {
                // Counted under the same lock, so that the next job to arrive starts a task.
                self.calls = self.calls.saturating_sub(1);
                return Vec::new();
            };
            *number = next;
            self.slots.entry(next).or_default().enter();
        }
    }

    fn take_more(&mut self, number: &mut u16, bounds: &Bounds) -> Vec<Job> {
        if let Some(next) = self.waiting_slots.pop_front() {
            self.exit(*number);
            *number = next;
            self.slots.entry(next).or_default().enter();
        } else if let Some(slot) = self.slots.get_mut(number) {
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
            self.slots.remove(&number);
        } else {
            self.waiting_slots.push_back(number);
        }
    }
}

impl SlotQueue {
    /// Another task is about to take jobs.
    const fn enter(&mut self) {
        self.calls = self.calls.saturating_add(1);
        self.ready = self.ready.saturating_add(1);
    }

    /// Drops up to two jobs that are over, for each job that arrives: those in front are over first.
    fn leave(&mut self, now: Instant) {
        let gone = self.jobs.iter().take(2).take_while(|job| job.is_over(now)).count();
        self.jobs.drain(..gone);
    }

    /// The jobs for a task that was about to take some.
    ///
    /// Tasks that are about to take jobs share them: the server works on one call while the client
    /// writes or reads another.
    fn take(&mut self, most: usize, now: Instant) -> Vec<Job> {
        let share = self.jobs.len().div_ceil(self.ready.max(1)).max(1);
        self.ready = self.ready.saturating_sub(1);
        let (mut taken, mut buckets) = (Vec::with_capacity(share.min(most)), 0_usize);
        while let Some(job) = self.jobs.front() {
            buckets = buckets.saturating_add(job.operation.buckets());
            if !taken.is_empty() && (buckets > most || taken.len() >= share) {
                break;
            }
            taken.extend(self.jobs.pop_front().filter(|job| !job.is_over(now)));
        }
        taken
    }
}
