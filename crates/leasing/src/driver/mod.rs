//! Runs the nodes: reads the clock, makes the trips, and wakes the callers that wait.
//!
//! ```text
//! leasing       the wrapper: its settings, and what it does with each call
//! lists         several charges at once, all or nothing
//! changes       refunds, penalties, blocks, resets
//! takes         one charge: paid here, or by the store
//! trips         questions, give-backs, and the task that looks after lots
//! lease_driver  what all of them share
//! table         what a node remembers of its buckets
//! lease_clock   the time by which lots become void
//! ```

mod changes;
mod lease_clock;
mod lease_driver;
mod leasing;
mod lists;
mod table;
mod takes;
mod trips;

pub use self::leasing::Leasing;
