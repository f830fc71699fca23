//! How a connection is made: to a server that is known, or to the master that sentinels name.

use std::sync::Arc;

use ::redis::aio::MultiplexedConnection;
use ::redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, PushInfo, PushKind,
    RedisError,
};

use super::sentinel::Sentinels;
use super::trouble::Trouble;

/// The way to a server. Says nothing of its password when it is shown.
#[derive(Clone, Debug)]
pub(super) enum Dial {
    Server(Arc<Server>),
    Master(Arc<Sentinels>),
}

/// A server and how to log in to it.
#[derive(Clone, Debug)]
pub(super) struct Server {
    info: ConnectionInfo,
    name: String,
}

impl Dial {
    /// What is connected to, for messages.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Server(server) => server.name(),
            Self::Master(sentinels) => sentinels.name(),
        }
    }

    /// The host that is connected to; empty where that is not known before.
    pub(super) fn host(&self) -> &str {
        match self {
            Self::Server(server) => server.host(),
            Self::Master(_) => "",
        }
    }

    /// Makes a connection; `hang_up` is called when it ends.
    pub(super) async fn dial(
        &self,
        hang_up: impl Fn() + Send + Sync + 'static,
    ) -> Result<MultiplexedConnection, Trouble> {
        match self {
            Self::Server(server) => server.dial(hang_up).await,
            Self::Master(sentinels) => sentinels.dial(hang_up).await,
        }
    }
}

impl Server {
    pub(super) fn new(info: ConnectionInfo) -> Self {
        let name = info.addr().to_string();
        Self { info, name }
    }

    /// Where the server is, as `host:port` or the path of its socket.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The name or address of its host, empty for a socket.
    fn host(&self) -> &str {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
            _ => "",
        }
    }

    /// Another server, reached in the same way.
    pub(super) fn at(&self, host: &str, port: u16) -> Self {
        let host = host.to_owned();
        let address = match self.info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                let (insecure, tls_params) = (*insecure, tls_params.clone());
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        Self::new(self.info.clone().set_addr(address))
    }

    /// Connects, logs in, and makes sure that the login suffices.
    pub(super) async fn dial(
        &self,
        hang_up: impl Fn() + Send + Sync + 'static,
    ) -> Result<MultiplexedConnection, Trouble> {
        let failed = |cause: RedisError| match cause.code() {
            Some(_) => Trouble::reply(&self.name, &cause),
            None => Trouble::caused(format!("cannot connect to {}", self.name), cause),
        };
        // The times are bounded by those who call.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(COMMANDS)
            .set_write_backpressure_boundary(BYTES)
            .set_push_sender(move |push: PushInfo| -> Result<(), ()> {
                if push.kind == PushKind::Disconnection {
                    hang_up();
                }
                Ok(())
            });
        let client = Client::open(self.info.clone()).map_err(failed)?;
        let mut client =
            client.get_multiplexed_async_connection_with_config(&config).await.map_err(failed)?;
        // Without a login, a server that wants one lets everybody connect and nobody ask.
        match answer(&mut client, ::redis::cmd("PING")).await {
            Err(error) if error.code() == Some("NOAUTH") => Err(Trouble::reply(&self.name, &error)),
            // Any other reply is for the calls to deal with: it may load its data just now, or
            // this user may not ask that.
            Err(error) if error.code().is_none() => Err(failed(error)),
            _ => Ok(client),
        }
    }
}

/// What a server says to a command.
pub(super) async fn answer(
    client: &mut MultiplexedConnection,
    command: Cmd,
) -> Result<::redis::Value, RedisError> {
    command.query_async(client).await
}

/// How many commands may wait for the task that writes them, and how many bytes it gathers before
/// it writes: with the client's own values it would write far more often under load.
const COMMANDS: usize = 2048;
const BYTES: usize = 64 * 1024;
