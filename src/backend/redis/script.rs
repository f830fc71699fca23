//! The script: what the server runs for each batch.

/// Reads the time, and decides by it.
#[cfg(not(test))]
pub(super) const TEXT: &str = concat!(include_str!("clock.lua"), include_str!("decide.lua"));

/// The same for the tests of this file's room, which say in the last number of a batch what time it is: nothing
/// that is not compiled for them has a way to do so.
#[cfg(test)]
pub(super) const TEXT: &str =
    concat!("local now = struct.unpack('<d', ARGV[1]:sub(-8))\n", include_str!("decide.lua"));

/// The codes of what it is asked.
pub(super) mod code {
    /// A charge that is alone, on one bucket, without debt.
    pub(in super::super) const TAKE: i64 = 1;
    /// Charges, all or nothing.
    pub(in super::super) const CHARGES: i64 = 2;
    /// Refunds, all or nothing.
    pub(in super::super) const REFUNDS: i64 = 3;
    /// Buckets to forget.
    pub(in super::super) const RESETS: i64 = 4;
}
