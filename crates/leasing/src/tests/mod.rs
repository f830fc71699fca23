//! Tests of leasing.
//!
//! `bound` and `simulation` run the nodes in virtual time, without a driver. The others run the
//! wrapper around stores in tokio's time.

mod bound;
mod changes;
mod conformance;
mod driver;
mod failures;
mod fleet;
mod lists;
mod looks;
mod plots;
mod refusals;
mod simulation;
mod store;
mod stores;
