//! What the store reads from outside of this process, compared with a second parser that is slow
//! and simple. Targets of the link and of real servers are with their tests.
//!
//! This works like `tests/fuzz_inputs`, and uses its seeds and inputs. With a million inputs each,
//! it takes some minutes:
//!
//! ```sh
//! PROPTEST_CASES=1000000 cargo test --release --all-features --lib fuzz
//! ```

mod replies;
pub(crate) mod stored;
