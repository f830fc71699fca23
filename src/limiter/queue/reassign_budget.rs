//! Bounds how much is done about free slots under one lock of the queue.

/// How much may still be done about free slots until the queue is unlocked.
#[derive(Debug)]
pub(super) struct ReassignBudget {
    /// How many slots may still be moved to another class.
    hops: usize,
    /// How many classes may still be looked at for one that fits.
    looks: usize,
}

/// Measured with 600 waiters, of which 30 % leave. With costs in random order, 16 hops already use
/// as many of the granted tokens as any number of hops does: 90.5 %. If each waiter costs less than
/// the one before it, 32 hops use 82 %, and no bound would use 85 %.
const MAX_HOPS: usize = 32;

/// With costs in random order, about the square root of the number of waiters is looked at.
const MAX_LOOKS: usize = 256;

impl Default for ReassignBudget {
    fn default() -> Self {
        Self { hops: MAX_HOPS, looks: MAX_LOOKS }
    }
}

impl ReassignBudget {
    pub(super) const fn take_hop(&mut self) -> bool {
        take(&mut self.hops)
    }

    pub(super) const fn take_look(&mut self) -> bool {
        take(&mut self.looks)
    }
}

const fn take(left: &mut usize) -> bool {
    let is_left = *left > 0;
    *left = left.saturating_sub(1);
    is_left
}
