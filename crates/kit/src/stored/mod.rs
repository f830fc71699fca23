//! What stores of bytes have in common: the names of buckets, their records as bytes, and calls
//! that are decided on records which were read before.
//!
//! # Design
//!
//! ```text
//! draft    the records that the call names; the algorithm reads and writes them here
//! name     a bucket's name, as text
//! value    a bucket's record, as bytes
//! ```

mod draft;
mod name;
mod value;

pub use self::draft::{Draft, DraftEntry};
pub use self::name::{bucket_name, name_ranges, read_bucket_name};
pub use self::value::{decode_record, encode_record};
