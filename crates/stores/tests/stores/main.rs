//! Rules of the limiter on stores that are not in memory.

mod debtors;
mod one_at_a_time;
mod resets;
mod shutdown;
