//! What the queue of calls means for its callers.

mod broken_calls;
mod fairness;
mod lateness;
mod waiting_slots;
