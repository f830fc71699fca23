//! Several charges at once on buckets that are stored already, as in nearly all lists: they need no
//! entries.

use crate::algebra::{Bucket, State, Terms, Units, Verdict, charge, charge_pair};
use crate::backend::answer::Reading;
use crate::backend::charge::Charge;
use crate::backend::repeats::SHORT;
use crate::backend::reset_log::ResetMark;
use crate::clock::Timestamp;

/// Buckets that one call reads and writes in their slots, while no other call does.
pub(in crate::backend) trait SlotStore {
    /// What tells one bucket from another in this call.
    type Cell: Copy;

    /// The place of a bucket, valid as long as no bucket is added or removed.
    type Slot: Copy + Eq;

    /// The slot of a bucket and its state; `None` if the bucket is not stored for this quota.
    fn find(&self, cell: Self::Cell, bucket: &Bucket) -> Option<(Self::Slot, State)>;

    /// Whether a bucket may be named twice in a call that names so many.
    fn may_repeat(&self, buckets: usize) -> bool;

    /// Stores the state of the bucket in this slot.
    fn keep(&mut self, slot: Self::Slot, state: State);
}

/// The payment of one bucket.
pub(in crate::backend) struct Payment<'c, Cell, Slot> {
    pub(in crate::backend) cell: Cell,
    bucket: &'c Bucket,
    /// The units that the charge takes; once it is decided, the units that this bucket pays.
    units: Units,
    /// Whether the charge takes more than nothing, and does not reserve.
    is_usual: bool,
    /// Whether the next bucket is the second shard of the same charge.
    is_first_of_two: bool,
    slot: Option<Slot>,
    /// What is left in the bucket.
    left: State,
}

impl<'c, Cell, Slot> Payment<'c, Cell, Slot> {
    /// The payment of a charge's own bucket.
    #[inline(always)]
    pub(in crate::backend) fn for_own_shard(cell: Cell, charge: &Charge<'c>) -> Self {
        let is_first_of_two = charge.get_second_shard().is_some();
        Self { is_first_of_two, ..Self::for_second_shard(cell, charge) }
    }

    /// The payment of the second bucket of a two-choices charge, which follows the first.
    #[inline(always)]
    pub(in crate::backend) fn for_second_shard(cell: Cell, charge: &Charge<'c>) -> Self {
        let (bucket, units) = (charge.bucket(), charge.units());
        let is_usual = charge.takes() && charge.get_terms() == Terms::AT_ONCE && units > 0;
        let left = State { value: 0, ts: Timestamp::UNIX_EPOCH };
        Self { cell, bucket, units, is_usual, is_first_of_two: false, slot: None, left }
    }

    /// The reading of the bucket once it has paid.
    #[inline(always)]
    pub(in crate::backend) fn reading(&self, mark: ResetMark) -> Reading {
        Reading::in_micros(Verdict::Admitted, self.left, self.units, 0).with_mark(mark)
    }
}

/// Makes all payments if each bucket is stored, is named once, and has the units. Otherwise stores
/// nothing, and [`apply_list`](super::apply_list) has to decide.
#[inline(always)]
pub(in crate::backend) fn pay_all<S: SlotStore>(
    slots: &mut S,
    payments: &mut [Payment<'_, S::Cell, S::Slot>],
    now: Timestamp,
) -> bool {
    if payments.len() > SHORT
        || decide_all(slots, payments, now).is_none()
        || (slots.may_repeat(payments.len()) && have_repeats(payments))
    {
        return false;
    }
    for payment in payments {
        // Of two shards, one may pay nothing.
        if let Some(slot) = payment.slot
            && payment.units > 0
        {
            slots.keep(slot, payment.left);
        }
    }
    true
}

/// Finds the slots and what each bucket pays. `None` if a bucket is not stored, or does not admit
/// its charge.
#[inline(always)]
fn decide_all<S: SlotStore>(
    slots: &S,
    mut payments: &mut [Payment<'_, S::Cell, S::Slot>],
    now: Timestamp,
) -> Option<()> {
    while let [payment, rest @ ..] = payments {
        let (bucket, units) = (payment.bucket, payment.units);
        let (slot, state) = slots.find(payment.cell, bucket)?;
        payment.slot = Some(slot);
        let verdict = if payment.is_first_of_two {
            let [second, others @ ..] = rest else { return None };
            let (other, other_state) = slots.find(second.cell, bucket)?;
            second.slot = Some(other);
            let charged = charge_pair(bucket, [state, other_state], units, Terms::AT_ONCE, now);
            [payment.left, second.left] = charged.after();
            [payment.units, second.units] = charged.paid();
            payments = others;
            charged.verdict()
        } else {
            let charged = charge(bucket, state, units, Terms::AT_ONCE, now);
            payment.left = charged.after();
            payments = rest;
            charged.verdict()
        };
        if verdict != Verdict::Admitted || !payment.is_usual {
            return None;
        }
    }
    Some(())
}

/// Whether any bucket is named twice.
#[cold]
fn have_repeats<Cell, Slot: Eq>(mut payments: &[Payment<'_, Cell, Slot>]) -> bool {
    while let [payment, rest @ ..] = payments {
        if rest.iter().any(|other| other.slot == payment.slot) {
            return true;
        }
        payments = rest;
    }
    false
}
