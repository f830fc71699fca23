//! What is stored for a bucket.

use crate::clock::Timestamp;

/// What buckets count in: whole numbers. One [token](super::Bucket::token) is worth a fixed number
/// of units.
pub type Units = i64;

/// All that is stored for a bucket: a value, and the time at which it was true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "a state is two numbers by design")]
pub struct State {
    /// The units in the bucket; negative is debt.
    pub value: Units,
    /// When it held them.
    pub ts: Timestamp,
}
