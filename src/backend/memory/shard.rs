//! One part of the store: what happens under its lock.

use std::num::NonZeroU32;

use super::fingerprint::Fingerprint;
use super::room::Room;
use super::shapes::Shapes;
use super::table::{Slot, Table};
use super::{BucketId, Charge};
use crate::algebra::{Bucket, Charged, State, Verdict, charge, rescale};
use crate::backend::transaction::{Kept, changes};
use crate::clock::Timestamp;

/// Buckets, at most `share` of them.
///
/// In this order, what a known bucket needs is next to the lock: with it in two cache lines.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Shard {
    table: Table,
    shapes: Shapes,
    room: Room,
    share: usize,
    /// The slot where the next look for full buckets begins.
    broom: usize,
    /// Whether full buckets are kept, for tests that change the numbers of limits under them.
    #[cfg(test)]
    pub(super) hoards: bool,
}

/// How many slots each new bucket looks at. With 4, a store in which only one key in fifty is
/// alive grows to 1.7 times the live ones; with 2 to 3.6 times.
const SWEPT: usize = 4;

/// How long a bucket has to be full before it is dropped, in microseconds: a clock that steps back
/// by as much changes no answer.
const GRACE: u64 = 1_000_000;

impl Shard {
    pub(super) fn new(share: usize) -> Self {
        let (shapes, room) = Default::default();
        Self {
            table: Table::holding(share),
            shapes,
            room,
            share,
            broom: 0,
            #[cfg(test)]
            hoards: false,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.table.len()
    }

    /// Decides one charge and stores what is left.
    #[inline]
    pub(super) fn apply(
        &mut self,
        print: Fingerprint,
        charge: &Charge<'_>,
        now: Timestamp,
    ) -> Charged {
        if let Some(slot) = self.table.find_mut(print.tag())
            && slot.shape().and_then(|name| self.shapes.get(name)) == Some(charge.bucket())
        {
            let charged = decide(charge, slot.state(), now);
            if charged.verdict() != Verdict::Refused && changes(charge) {
                slot.keep(charged.after());
            }
            return charged;
        }
        self.apply_first(print, charge, now)
    }

    /// As [`apply`](Self::apply), for a bucket that is new or has got other numbers.
    #[cold]
    fn apply_first(&mut self, print: Fingerprint, charge: &Charge<'_>, now: Timestamp) -> Charged {
        let (id, bucket) = (charge.id(), charge.bucket());
        let found = self.table.find(print.tag());
        let state = self.state(found, id, bucket, now);
        let charged = decide(charge, state, now);
        if changes(charge) {
            let kept = match charged.verdict() {
                Verdict::Refused => Kept::NotTaken(charged.before()),
                Verdict::Admitted | Verdict::Reserved => Kept::Taken(charged.after()),
            };
            self.store(found, print, bucket, kept, now);
        }
        charged
    }

    /// What a bucket holds, as far as it is known.
    pub(super) fn read(
        &self,
        print: Fingerprint,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> State {
        self.state(self.table.find(print.tag()), id, bucket, now)
    }

    pub(super) fn holds(&self, print: Fingerprint) -> bool {
        self.table.find(print.tag()).is_some()
    }

    /// Stores what a charge came to, in a bucket that may have moved since it was read.
    pub(super) fn write(
        &mut self,
        print: Fingerprint,
        bucket: &Bucket,
        kept: Kept,
        now: Timestamp,
    ) {
        self.store(self.table.find(print.tag()), print, bucket, kept, now);
    }

    pub(super) fn forget(&mut self, print: Fingerprint) {
        if let Some(index) = self.table.find(print.tag()) {
            self.remove(index);
        }
    }

    /// Drops every bucket that is full again.
    pub(super) fn purge(&mut self, now: Timestamp) {
        let mut index = 0;
        while index < self.table.slots() {
            // A removal moves the next bucket up into the same slot.
            if self.is_idle(index, now) {
                self.remove(index);
            } else {
                index = index.saturating_add(1);
            }
        }
        self.table.shrink();
        self.room = Room::default();
        self.broom = 0;
    }

    fn state(
        &self,
        found: Option<usize>,
        id: BucketId<'_>,
        bucket: &Bucket,
        now: Timestamp,
    ) -> State {
        let stored = found.and_then(|index| self.table.get(index));
        match stored.and_then(|slot| Some((self.shapes.get(slot.shape()?)?, slot.state()))) {
            Some((shape, state)) if shape == bucket => state,
            // The limit was given other numbers since.
            Some((shape, state)) => rescale(shape, bucket, state, now, id.phase(bucket)),
            // Only windows have a phase, and not all of them: it takes a hash.
            None if bucket.needs_phase() => bucket.absent(now, id.phase(bucket)),
            None => bucket.absent(now, now),
        }
    }

    fn store(
        &mut self,
        found: Option<usize>,
        print: Fingerprint,
        bucket: &Bucket,
        kept: Kept,
        now: Timestamp,
    ) {
        match (found, kept) {
            (Some(index), Kept::Taken(state)) => self.update(index, bucket, state),
            (Some(_), Kept::NotTaken(_)) => {}
            // Nothing was taken, and a full bucket is like none.
            (None, Kept::NotTaken(_)) if bucket.is_droppable_when_full() => {}
            (None, Kept::Taken(state) | Kept::NotTaken(state)) => {
                self.add(print, bucket, state, now);
            }
        }
    }

    fn update(&mut self, index: usize, bucket: &Bucket, state: State) {
        let taken = self.table.len();
        let Some(slot) = self.table.get_mut(index) else { return };
        let Some(shape) = slot.shape() else { return };
        if self.shapes.get(shape) == Some(bucket) {
            slot.update(shape, state);
        } else if let Some(new) = self.shapes.enter(bucket, taken) {
            slot.update(new, state);
            self.shapes.leave(shape);
        }
    }

    fn add(&mut self, print: Fingerprint, bucket: &Bucket, state: State, now: Timestamp) {
        self.sweep(now);
        if self.table.len() >= self.share
            && let Some(index) = self.room.victim(&self.table, &self.shapes, now)
        {
            self.remove(index);
        }
        if let Some(shape) = self.shapes.enter(bucket, self.table.len()) {
            let slot = Slot::new(print, shape, state);
            self.table.insert(slot);
            self.room.added(&slot, &self.table, &self.shapes, now);
        }
    }

    fn sweep(&mut self, now: Timestamp) {
        #[cfg(test)]
        if self.hoards {
            return;
        }
        for _ in 0..SWEPT {
            if self.is_idle(self.broom, now) {
                self.remove(self.broom);
            } else {
                self.broom = self.table.after(self.broom);
            }
        }
    }

    /// Whether the slot holds a bucket that may be dropped without changing any answer.
    fn is_idle(&self, index: usize, now: Timestamp) -> bool {
        let idle = |slot: &Slot| {
            let bucket = self.shapes.get(slot.shape()?)?;
            let full_at = bucket.full_at(slot.state());
            Some(bucket.is_droppable_when_full() && full_at.plus_micros(GRACE) < now)
        };
        self.table.get(index).and_then(idle).unwrap_or(false)
    }

    fn remove(&mut self, index: usize) {
        let removed: Option<NonZeroU32> = self.table.remove(index).and_then(|slot| slot.shape());
        if let Some(shape) = removed {
            self.shapes.leave(shape);
        }
    }
}

/// Asks the algebra.
#[inline]
fn decide(asked: &Charge<'_>, state: State, now: Timestamp) -> Charged {
    charge(asked.bucket(), state, asked.units(), asked.terms(), now)
}
