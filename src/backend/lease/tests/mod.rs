//! Tests of leasing.

mod bound;
mod store;
