//! What the queue of calls to Redis does to its callers.

mod fairness;
