//! What the queue of calls means for its callers.

mod broken_calls;
mod fairness;
mod waiting_slots;
