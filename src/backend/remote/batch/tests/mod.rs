//! What the queue of calls means for its callers.

mod fairness;
mod waiting_slots;
