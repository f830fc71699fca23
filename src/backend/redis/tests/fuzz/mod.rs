//! What the store reads that comes from outside of this process, beside a second reading that is
//! slow and simple. Targets of the link and of real servers are with their tests.
//!
//! It works as `tests/fuzz_inputs` does, whose seeds and inputs are used here. With a million
//! inputs each, in some minutes:
//!
//! ```sh
//! PROPTEST_CASES=1000000 cargo test --release --all-features --lib fuzz
//! ```

#![allow(dead_code, reason = "each target takes what it needs")]

#[path = "../../../../../tests/fuzz_inputs/bytes.rs"]
pub(in crate::backend::redis) mod bytes;
#[path = "../../../../../tests/support/draw.rs"]
mod draw;
#[path = "../../../../../tests/fuzz_inputs/field.rs"]
pub(in crate::backend::redis) mod field;
mod replies;
#[path = "../../../../../tests/fuzz_inputs/seeds.rs"]
pub(in crate::backend::redis) mod seeds;
pub(in crate::backend::redis) mod stored;
