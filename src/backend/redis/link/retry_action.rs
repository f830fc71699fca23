//! What to do about an error reply.

use ::redis::RedisError;

/// How a call goes on that a server has refused. All but [`Fail`](Self::Fail) mean that
/// nothing of it was carried out, so that it may be sent again.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RetryAction {
    /// Send the text of the script, which the server does not have.
    SendText,
    /// Send the call again after a pause: the server cannot answer yet.
    Wait,
    /// Connect again: after a failover, this is no longer the server to ask.
    Reconnect,
    /// Send the call to the node that has the keys.
    Moved(String),
    /// Send the call to the node that is importing the keys; this one no longer has them.
    Ask(String),
    /// Give up: another attempt would not help.
    Fail,
}

impl RetryAction {
    pub(super) fn new(reply: &RedisError) -> Self {
        let node = || reply.redirect_node().map(|(node, _)| node.to_owned());
        match reply.code() {
            Some("NOSCRIPT") => Self::SendText,
            Some("LOADING" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" | "BUSY") => Self::Wait,
            // The script fails at its first write, so nothing was carried out.
            Some("READONLY") => Self::Reconnect,
            // Redis 6.2 reports it so from within a script.
            Some("ERR") if reply.detail().is_some_and(|told| told.contains("-READONLY ")) => {
                Self::Reconnect
            }
            Some("MOVED") => node().map_or(Self::Fail, Self::Moved),
            Some("ASK") => node().map_or(Self::Fail, Self::Ask),
            _ => Self::Fail,
        }
    }
}
