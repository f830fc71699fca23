//! Each parser of input from outside is compared with a second one that is slow and simple, or from
//! another library.
//!
//! Each target first plays its seeds, which are in `tests/data/fuzz`, then inputs that are derived
//! from seeds or made from scratch. A million of each, in some minutes:
//!
//! ```sh
//! PROPTEST_CASES=1000000 cargo test --release --all-features --test fuzz_inputs
//! ```
//!
//! A failure shows its input in the notation of the seeds: add it to them with the expected
//! outcome.

#![cfg(all(feature = "memory", feature = "credentials", feature = "serde"))]

mod cookies;
mod dumps;
mod field;
mod forwarding;
mod forwarding_reference;
mod grpc;
mod header_keys;
mod inner_fields;
mod key_texts;
mod keys;
mod networks;
mod quota_text;
mod records;
