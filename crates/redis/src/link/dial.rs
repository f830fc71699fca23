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

    /// Whether the server of the last connection can be replaced by another one, of which this
    /// connection does not tell.
    pub(super) fn may_be_replaced(&self) -> bool {
        matches!(self, Self::Master(_))
    }

    /// Whether it has been.
    pub(super) async fn is_replaced(&self) -> bool {
        match self {
            Self::Server(_) => false,
            Self::Master(sentinels) => sentinels.is_replaced().await,
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
