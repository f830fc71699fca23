//! The script that the server runs for each batch, its request and its reply.
//!
//! # Design
//!
//! The files are parts of one script, in this order. `clock` reads the time and `batch` what is
//! asked and stored. `bucket` and `formula` are [`algebra`](tollgate::algebra) in Lua, with its names
//! in its order. `plain` decides most batches by itself and returns before the functions of the
//! others are even made. `operations` carries out an [`Operation`](tollgate_kit::operation::Operation),
//! and `main` runs them all.

mod double;
mod reply;
mod request;

pub(super) use self::reply::{ScriptReply, stored_record};
pub(super) use self::request::ScriptRequest;

/// Concatenates the parts of the script behind the code that sets `now`.
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

/// The whole script, with the server's clock.
#[cfg(not(test))]
pub(super) const TEXT: &str = script!(include_str!("clock.lua"));

/// The whole script for tests, with a time that the client appends to the numbers. Only the tests
/// of this room have a clock of their own.
#[cfg(test)]
pub(super) const TEXT: &str =
    script!("local now = struct.unpack('<d', ARGV[1]:sub(-8))\nlocal latest = 2 ^ 53\n");
