//! What the queue of calls to Redis means for its callers.

mod fairness;
