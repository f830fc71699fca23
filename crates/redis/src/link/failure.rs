//! What an error reply means for callers: an outage, or something that has to be changed.

use ::redis::RedisError;

/// The kind of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The server cannot decide for now, whatever clients do.
    Outage,
    /// The server has no room for what the call would store. A flood of made-up keys does that.
    Full,
    /// The server has to be set up differently.
    Misconfigured,
    /// The server can never decide this call.
    Undecidable,
}

impl Failure {
    /// What an error reply means.
    ///
    /// A code that is not named here is no outage. The reply may depend on the keys of the call,
    /// which a client chooses. If it counted as an outage, layers that admit on outages would admit
    /// all requests of that client.
    pub(super) fn new(reply: &RedisError) -> Self {
        match code(reply) {
            // `NOSCRIPT`, `MOVED` and `ASK` only get here if the call cannot be sent again as they
            // say.
            "LOADING" | "BUSY" | "MASTERDOWN" | "READONLY" | "NOREPLICAS" | "CLUSTERDOWN"
            | "TRYAGAIN" | "MOVED" | "ASK" | "NOSCRIPT" => Self::Outage,
            // If a snapshot does not fit, on the disk or into the memory of the process that writes
            // it, the server answers `MISCONF`. What is stored for clients can cause either.
            "OOM" | "MISCONF" => Self::Full,
            "CROSSSLOT" => Self::Undecidable,
            "ERR"
                if reply.detail().is_some_and(|told| told.starts_with("max number of clients")) =>
            {
                Self::Outage
            }
            _ => Self::Misconfigured,
        }
    }

    /// What an operator can do about it, where the reply does not say so itself.
    pub(super) fn way_out(self, reply: &RedisError) -> &'static str {
        match (self, code(reply)) {
            (Self::Full, "OOM") => {
                " (give it more memory, set `maxmemory-policy volatile-ttl`, or use shorter periods)"
            }
            _ => "",
        }
    }
}

/// Whether a server answers that it cannot decide yet, and other servers of its name or address may: it
/// is loading its data, or is a replica without its master.
pub(super) fn is_unready(reply: &RedisError) -> bool {
    matches!(code(reply), "LOADING" | "MASTERDOWN")
}

/// The code of an error reply.
pub(super) fn code(reply: &RedisError) -> &str {
    code_and_detail(reply).0
}

/// The code of an error reply, and what follows it. Before version 7, Redis answers `ERR` for a command
/// that failed within a script, and quotes the reply to that command: `ERR Error running script (call
/// to f_1): @user_script:9: @user_script: 9: -OOM command not allowed`.
pub(super) fn code_and_detail(reply: &RedisError) -> (&str, &str) {
    let (code, detail) = (reply.code().unwrap_or("ERR"), reply.detail().unwrap_or_default());
    let quoted = || {
        let (_, told) =
            detail.strip_prefix("Error running script ")?.rsplit_once("@user_script:")?;
        let (_, told) = told.split_once(": ")?;
        let (code, detail) = told.strip_prefix('-').unwrap_or(told).split_once(' ')?;
        code.bytes().all(|byte| byte.is_ascii_uppercase()).then_some((code, detail))
    };
    match code {
        "ERR" => quoted().unwrap_or((code, detail)),
        _ => (code, detail),
    }
}
