//! The queue of requests that wait for reserved tokens.
//!
//! There are two kinds of queue. The store decides which one a limiter has:
//!
//! * **The memory store** serves this process only, so a returned token can move every waiter. Its
//!   queue is a *line*: a plain first-in-first-out queue on the bucket itself. The line is kept by
//!   the store (`backend::memory::line`); `limiter::line` has its timers.
//! * **A shared store** (Redis, or any other [`Backend`](crate::backend::Backend)) also serves
//!   other processes, and this process cannot move their waiters. So a waiter holds a *slot*: an
//!   instant, and the units that the store took for it. This module has the queue of these slots.
//!
//! # The states of a waiter on a shared store
//!
//! ```text
//!   the store reserves a slot
//!          |
//!          v
//!        held ------ keep() ---> kept: the work is planned for the instant of the slot
//!          |
//!          | first poll
//!          v
//!       waiting <--------------. another waiter leaves, and this one moves to an earlier slot
//!       |  |  |                |
//!       |  |  '----------------'
//!       |  |
//!       |  '-- drain() ---> drained: the layer answers 503
//!       |
//!       | the instant of its slot has come,
//!       | or that of a free slot which it fits,
//!       | or returned units cover its cost
//!       v
//!    granted ---- use_up() ---> used: the work runs
//! ```
//!
//! All of these are one type, [`HeldSlot`]. A reservation of a rate and of requests in flight has one
//! for each, and its work runs once both are granted. What a drop does depends on the state:
//!
//! | state | what dropping the waiter does |
//! |---|---|
//! | the store was asked | The call goes on in a task, and gives up the slot when the answer comes. |
//! | held, waiting | All waiters behind it of the same cost move forward by one slot. The last slot of that cost is then free. |
//! | granted by a slot, or of tokens that were there at once | The slot is free. No waiter can use it, as its instant has passed; the store may still undo it. |
//! | granted by returned units | The units go to the next waiter that they cover, or else to the store. |
//! | kept, used, drained | Nothing: no slot is left to give up. |
//!
//! # What becomes of a free slot
//!
//! 1. It is undone: the store gives the units back to the bucket if no process has charged the
//!    bucket since ([`undo`]). Returns of this process are no charges; the [`ledger`] keeps count
//!    of them.
//! 2. A slot that cannot be undone stays on offer to newcomers of the same cost ([`wait_queue`]).
//! 3. At its instant, it goes to the first waiter that fits. If there is none, it is spent.
//! 4. When a slot is undone, the slot that was made before it may be the next that can be. It may
//!    be in another queue on the same bucket, which is tried then ([`ledger`]).
//!
//! To simply return the units of a free slot would break the bound of the quota. The store
//! granted the later slots on the condition that these units are spent.
//!
//! # A worked example
//!
//! A bucket of capacity 1 gains one token a second. At 0 s request R takes the token, and A, B and
//! C reserve one token each. `value` is what the store has in the bucket.
//!
//! ```text
//! time    what happens              value   slots of this process
//! 0.0 s   R runs                     0
//! 0.0 s   A, B, C reserve           -3.0    A 1 s   B 2 s   C 3 s
//! 0.5 s   B leaves                  -2.5    A 1 s   C 2 s   free: 3 s
//!         the store undoes the slot -1.5    A 1 s   C 2 s
//! 1.0 s   A runs                    -1.0            C 2 s
//! 1.2 s   R settles: it cost 0      -0.8            C runs: the token covers its cost. free: 2 s
//!         the store undoes the slot  0.2
//! ```
//!
//! At 0.5 s, C moves to the slot of B, and the slot of C at 3 s is free. It was made last and no
//! process has charged the bucket since, so the store undoes it. At 1.2 s the token that R returns
//! goes to C and not to the store; the store gets the token of C's slot instead.
//!
//! Now let another process reserve a token for D at 0.1 s, which is told 4 s. When B leaves, the
//! store refuses to undo the slot at 3 s, because D was told its instant on the condition that this
//! token is spent. So the slot stays on offer. At 0.5 s, E reserves a token in this process: the
//! store tells it 5 s, and this queue exchanges that slot for the one at 3 s. The slot at 5 s was
//! made last, so it is undone.
//!
//! In memory the same calls give the same instants, by another way. With
//! `free = value + costs of all waiters`, `free` is 0.5 at 0.5 s; B's cost leaves `value` and the
//! line at once. At 1.2 s, `free` is 0.2 + 1, which covers the cost of C. `tests/queue/shared.rs`
//! plays this example in both kinds of store.
//!
//! # The invariants
//!
//! * **Every waiter has a slot.** Among waiters of one cost, the n-th waiter has the n-th slot
//!   ([`wait_queue`]).
//! * **A waiter never runs later than it was told.** Its slot is only exchanged for an earlier one.
//! * **A slot is used at its own instant, once.** At any time it is in exactly one place: with a
//!   waiter, with a granted waiter, among the free slots, or with the store to be undone.
//! * **The ledger never counts too little.** A return that is left out could hide a charge, and the
//!   slot would be undone although another process counts on it.
//! * **Each operation has a bound**, whatever the number of waiters. Only granting many due waiters
//!   and draining visit many of them, once each.
//!
//! # The locks, and their order
//!
//! ```text
//! QueueRegistry::queues --+--> SharedQueue::waiters
//!                         '--> QueueRegistry::ledgers --> each Ledger
//! ```
//!
//! A thread that holds one of these locks takes only locks to the right of it. The other locks
//! (`QueueRegistry::drain_end`) are taken alone. No lock is held while the store is called, nor
//! while a waker is woken or dropped: both run code of other crates, which may call this queue again.
//!
//! In memory, the shards of the store are locked in ascending order, then the state of a waiter.
//! The state of a `LineDriver` is locked alone.
//!
//! # Which code wakes which waiter
//!
//! There is no task for the queue of a shared store. Each waiter has its own timer, at the instant
//! that it was told; the first two waiters set theirs to the instants of the next two slots, which
//! may be free ones.
//!
//! * **The timer that fires first** wakes its waiter. The poll of that waiter grants *all* waiters
//!   that are due and wakes them. So a waiter that is no longer polled delays no other.
//! * **A waiter that leaves** wakes the first two waiters if the next slots now come before their
//!   timers, so that they set earlier ones. It wakes two because the first may no longer be polled.
//! * **A settlement or refund** grants the first waiters if it covers their costs, and wakes them
//!   ([`give_back`]).
//! * **A drain** wakes the waiters that it sends away.
//!
//! In memory, each call that touches a bucket grants the waiters of its line that are due and wakes
//! them. When no call comes, a `LineDriver` task does it for the head of a line with several
//! waiters, and its own timer for a waiter that is alone.

mod give_back;
mod held_slot;
mod ledger;
mod registry;
mod reserved_slot;
mod store_clock;
mod time_slot;
mod undo;
mod wait_queue;

pub(crate) use self::held_slot::HeldSlot;
pub(crate) use self::registry::QueueRegistry;
#[cfg(feature = "memory")]
pub(super) use self::reserved_slot::QueueBucket;
pub(crate) use self::reserved_slot::{ReservedSlot, paid_buckets};
#[cfg(feature = "memory")]
pub(crate) use self::store_clock::StoreClock;
pub(crate) use self::store_clock::later;
