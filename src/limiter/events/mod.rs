//! What a limiter tells its observers: decisions, queues, and how its store is.
//!
//! # Design
//!
//! A handle without observers never gets here: it asks for them where it takes a slow way anyway.
//! Observers are called by the thread that has read the answer, once no lock of the limiter or of
//! its store is held, so an observer may be slow without holding up other requests, and may ask the
//! limiter itself. It cannot change a decision: its panics end [here](observers).
//!
//! A request over several limits is told limit by limit, as a metric counts by limit. So each limit
//! has an outcome of its own, also if another limit has decided ([`Outcome::NotTaken`]), and one of
//! the decisions stands for the request ([`Decision::is_main`]).

mod decision;
mod observers;
mod queue_change;
mod report;
mod store_health;

pub(crate) use self::decision::DecisionSource;
pub use self::decision::{Decision, Outcome};
pub use self::observers::Observer;
pub(crate) use self::observers::{Observers, QueueStay};
pub use self::queue_change::QueueChange;
pub(crate) use self::queue_change::QueueStep;
pub use self::store_health::StoreHealth;
