//! How a connection is made: to a known server, or to the master that sentinels name.

use std::sync::Arc;

use ::redis::RedisError;

use super::error::LinkError;
use super::sentinel::Sentinels;
use super::server::Server;
use super::wire::Wire;

/// The way to a server. Its `Debug` output has no password.
#[derive(Clone, Debug)]
pub(super) enum Dial {
    Server(Arc<Server>),
    Master(Arc<Sentinels>),
}

impl Dial {
    /// The name of the server, for messages.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Server(server) => server.name(),
            Self::Master(sentinels) => sentinels.name(),
        }
    }

    /// The host of the server; empty if it is not known in advance.
    pub(super) fn host(&self) -> &str {
        match self {
            Self::Server(server) => server.host(),
            Self::Master(_) => "",
        }
    }

    /// An error reply of the server that is connected to.
    pub(super) fn reply(&self, reply: &RedisError) -> LinkError {
        match self {
            Self::Server(server) => server.reply(server.name(), reply),
            Self::Master(sentinels) => sentinels.reply(reply),
        }
    }

    /// Makes a connection.
    pub(super) async fn dial(&self) -> Result<Wire, LinkError> {
        match self {
            Self::Server(server) => server.dial().await,
            Self::Master(sentinels) => sentinels.dial().await,
        }
    }
}
