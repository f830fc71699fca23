//! What to do about an error reply.

use ::redis::RedisError;

/// What helps a call that a server has refused. All but [`Nothing`](Self::Nothing) mean that
/// nothing of it was carried out, so that it may be sent again.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// The server does not have the script: send its text.
    Text,
    /// The server cannot answer just now: ask again.
    Patience,
    /// This is not the server to ask, as after a failover: connect anew.
    Reconnect,
    /// Another node has the keys.
    Moved(String),
    /// Another node is just being given the keys, and this one does not have them any longer.
    Ask(String),
    /// The call is at fault, or the server, and asking again would not help.
    Nothing,
}

impl Remedy {
    pub(super) fn of(reply: &RedisError) -> Self {
        let node = || reply.redirect_node().map(|(node, _)| node.to_owned());
        match reply.code() {
            Some("NOSCRIPT") => Self::Text,
            Some("LOADING" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" | "BUSY") => Self::Patience,
            // A script finds out by the first key that it writes: none is written before.
            Some("READONLY") => Self::Reconnect,
            // So Redis 6.2 tells it of a script.
            Some("ERR") if reply.detail().is_some_and(|told| told.contains("-READONLY ")) => {
                Self::Reconnect
            }
            Some("MOVED") => node().map_or(Self::Nothing, Self::Moved),
            Some("ASK") => node().map_or(Self::Nothing, Self::Ask),
            _ => Self::Nothing,
        }
    }
}
