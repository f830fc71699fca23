//! What to do about an error reply.

use ::redis::RedisError;

use super::failure::code;

/// How a call continues after an error reply. All actions but [`Fail`](Self::Fail) mean that
/// nothing of the call was carried out, so it may be sent again.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RetryAction {
    /// Send the text of the script, because the server does not have it.
    SendText,
    /// Send the call again after a pause, because the server cannot answer yet.
    Wait,
    /// Connect again, because after a failover this is no longer the master.
    Reconnect,
    /// Send the call to the node that has the keys.
    Moved(String),
    /// Send the call to the node that is importing the keys; this one no longer has them.
    Ask(String),
    /// Fail the call, because another attempt would not help.
    Fail,
}

impl RetryAction {
    pub(super) fn new(reply: &RedisError) -> Self {
        let node = || reply.redirect_node().map(|(node, _)| node.to_owned());
        match code(reply) {
            "NOSCRIPT" => Self::SendText,
            // The server answers these before it runs a command, so the script has not begun.
            "LOADING" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" | "BUSY" => Self::Wait,
            // The script fails at its first write, so nothing was carried out.
            "READONLY" => Self::Reconnect,
            "MOVED" => node().map_or(Self::Fail, Self::Moved),
            "ASK" => node().map_or(Self::Fail, Self::Ask),
            _ => Self::Fail,
        }
    }
}
