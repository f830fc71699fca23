//! Hostile inputs, how they are written down, and the seeds that they begin with.

pub mod bytes;
pub mod field;
pub mod seeds;
