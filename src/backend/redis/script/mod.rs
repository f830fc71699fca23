//! The script: what the server runs for each batch.
//!
//! # Design
//!
//! The files are parts of one script, in this order. `clock` reads the time and `batch` what is asked
//! and stored. `bucket` and `formula` are [`algebra`](crate::algebra) in Lua, with its names in its
//! order. `plain` decides most batches by itself and returns, before the functions of the others are
//! even made; `operations` are those of [`Order`](super::order::Order), and `main` runs them.

/// Concatenates the script behind what sets `now`.
macro_rules! script {
    ($clock:expr) => {
        concat!(
            $clock,
            include_str!("bucket.lua"),
            include_str!("batch.lua"),
            include_str!("plain.lua"),
            include_str!("formula.lua"),
            include_str!("operations.lua"),
            include_str!("main.lua"),
        )
    };
}

/// The whole script, by the server's clock.
#[cfg(not(test))]
pub(super) const TEXT: &str = script!(include_str!("clock.lua"));

/// The whole script, by a time that is the last number of the batch: only the tests of this room
/// have a clock of their own.
#[cfg(test)]
pub(super) const TEXT: &str = script!("local now = struct.unpack('<d', ARGV[1]:sub(-8))\n");

/// The codes of the operations.
pub(super) mod code {
    /// One charge, on one bucket, without debt.
    pub(in crate::backend::redis) const TAKE: i64 = 1;
    /// Charges, all or nothing.
    pub(in crate::backend::redis) const CHARGES: i64 = 2;
    /// Refunds, all or nothing.
    pub(in crate::backend::redis) const REFUNDS: i64 = 3;
    /// Resets.
    pub(in crate::backend::redis) const RESETS: i64 = 4;
}
