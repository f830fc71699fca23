//! Who waits to be sent, and how many lanes carry them.
//!
//! # Design
//!
//! A call must not name two slots, so there is a line for each slot; without a cluster there is one. A lane
//! carries the orders of one line. A line has few lanes, so that its orders share calls, and those of a
//! neighbourhood of slots together have more, so that they do not wait for each other. Where even these are all
//! under way, a line waits for one of them, and gets it as soon as it has been answered.
//!
//! Neighbours are mostly on one node: so a node that hangs keeps the lanes of its own slots, and none that
//! others need.

use std::collections::{HashMap, VecDeque};

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::order::Order;
use crate::backend::{Applied, BackendError};

/// An order that waits.
#[derive(Debug)]
pub(super) struct Job {
    /// Apart, as it is moved several times and large.
    pub(super) order: Box<Order>,
    pub(super) deadline: Instant,
    pub(super) reply: oneshot::Sender<Result<Applied, BackendError>>,
}

impl Job {
    /// Whether nobody waits for it any more.
    fn is_over(&self, now: Instant) -> bool {
        self.deadline <= now || self.reply.is_closed()
    }
}

/// How much is under way at most.
#[derive(Debug)]
pub(super) struct Bounds {
    /// Calls for one slot.
    pub(super) lanes: usize,
    /// Calls for a neighbourhood of them.
    pub(super) in_all: usize,
    /// Buckets of a call, unless one order names more.
    pub(super) buckets: usize,
}

/// The lines of all slots.
#[derive(Debug, Default)]
pub(super) struct Lines {
    neighbourhoods: HashMap<u16, Line>,
}

/// The slots of a neighbourhood: a cluster of 16,384 of them has 256.
const NEIGHBOURS: u16 = 64;

impl Lines {
    /// Lets an order wait. Whether there is to be another lane for it, which has to [take](Self::take) orders then.
    pub(super) fn push(&mut self, slot: u16, job: Job, bounds: &Bounds) -> bool {
        self.of(slot).push(slot, job, bounds)
    }

    /// Those who travel next with a lane of this slot, or of the one that it changes to. Where there are none, there
    /// is one lane less.
    pub(super) fn take(&mut self, slot: &mut u16, bounds: &Bounds) -> Vec<Job> {
        self.of(*slot).take(slot, bounds)
    }

    /// The same for a lane that has been answered: those who have no lane come first.
    pub(super) fn take_more(&mut self, slot: &mut u16, bounds: &Bounds) -> Vec<Job> {
        self.of(*slot).take_more(slot, bounds)
    }

    /// The slots around this one.
    fn of(&mut self, slot: u16) -> &mut Line {
        self.neighbourhoods.entry(slot / NEIGHBOURS).or_default()
    }
}

/// The lines of a neighbourhood, as far as somebody waits in them or is under way.
#[derive(Debug, Default)]
struct Line {
    slots: HashMap<u16, Slot>,
    /// The lanes of all these slots.
    lanes: usize,
    /// The slots in which somebody waits and that have no lane.
    stranded: VecDeque<u16>,
}

#[derive(Debug, Default)]
struct Slot {
    jobs: VecDeque<Job>,
    /// Those that carry orders, or are about to take some.
    lanes: usize,
    /// Those of them that are about to.
    ready: usize,
}

impl Line {
    fn push(&mut self, number: u16, job: Job, bounds: &Bounds) -> bool {
        let slot = self.slots.entry(number).or_default();
        slot.leave(Instant::now());
        slot.jobs.push_back(job);
        if slot.lanes >= bounds.lanes {
            return false;
        }
        if self.lanes < bounds.in_all {
            slot.enter();
            self.lanes = self.lanes.saturating_add(1);
            return true;
        }
        if slot.lanes == 0 && slot.jobs.len() == 1 {
            self.stranded.push_back(number);
        }
        false
    }

    fn take(&mut self, number: &mut u16, bounds: &Bounds) -> Vec<Job> {
        let now = Instant::now();
        loop {
            let taken = self.slots.get_mut(number).map(|slot| slot.take(bounds.buckets, now));
            match taken {
                Some(taken) if !taken.is_empty() => return taken,
                _ => self.exit(*number),
            }
            let Some(next) = self.stranded.pop_front() else {
                // Said under the same lock, so that whoever comes next gets a lane.
                self.lanes = self.lanes.saturating_sub(1);
                return Vec::new();
            };
            *number = next;
            self.slots.entry(next).or_default().enter();
        }
    }

    fn take_more(&mut self, number: &mut u16, bounds: &Bounds) -> Vec<Job> {
        if let Some(next) = self.stranded.pop_front() {
            self.exit(*number);
            *number = next;
            self.slots.entry(next).or_default().enter();
        } else if let Some(slot) = self.slots.get_mut(number) {
            slot.ready = slot.ready.saturating_add(1);
        }
        self.take(number, bounds)
    }

    /// A lane leaves its slot.
    fn exit(&mut self, number: u16) {
        let Some(slot) = self.slots.get_mut(&number) else { return };
        slot.lanes = slot.lanes.saturating_sub(1);
        if slot.lanes > 0 {
            return;
        }
        if slot.jobs.is_empty() {
            self.slots.remove(&number);
        } else {
            self.stranded.push_back(number);
        }
    }
}

impl Slot {
    /// Another lane is about to take orders.
    const fn enter(&mut self) {
        self.lanes = self.lanes.saturating_add(1);
        self.ready = self.ready.saturating_add(1);
    }

    /// Two leave for one that comes: those in front are the first to be out of time.
    fn leave(&mut self, now: Instant) {
        let gone = self.jobs.iter().take(2).take_while(|job| job.is_over(now)).count();
        self.jobs.drain(..gone);
    }

    /// What a lane carries that was about to take orders.
    ///
    /// Lanes that are about to take some share them: the server works on one call while another is made up or read.
    fn take(&mut self, most: usize, now: Instant) -> Vec<Job> {
        let share = self.jobs.len().div_ceil(self.ready.max(1)).max(1);
        self.ready = self.ready.saturating_sub(1);
        let (mut taken, mut buckets) = (Vec::with_capacity(share.min(most)), 0_usize);
        while let Some(job) = self.jobs.front() {
            buckets = buckets.saturating_add(job.order.buckets());
            if !taken.is_empty() && (buckets > most || taken.len() >= share) {
                break;
            }
            taken.extend(self.jobs.pop_front().filter(|job| !job.is_over(now)));
        }
        taken
    }
}
