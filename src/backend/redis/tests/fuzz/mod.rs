//! What the store reads from outside of this process, compared with a second parser that is slow
//! and simple. Targets of the link and of real servers are with their tests.
//!
//! This works like `tests/fuzz_inputs`, and uses its seeds and inputs. With a million inputs each,
//! it takes some minutes:
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
