//! One server: its address and login, and how to connect to it.

use ::redis::aio::MultiplexedConnection;
use ::redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, PushInfo, PushKind,
    RedisError, Value,
};

use super::error::LinkError;

/// A server and how to log in to it.
#[derive(Clone, Debug)]
pub(super) struct Server {
    info: ConnectionInfo,
    name: String,
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
    pub(super) fn host(&self) -> &str {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
            _ => "",
        }
    }

    /// Another server with the same login.
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

    /// Connects, logs in, and checks that the login suffices; `hang_up` is called when the connection
    /// ends.
    pub(super) async fn dial(
        &self,
        hang_up: impl Fn() + Send + Sync + 'static,
    ) -> Result<MultiplexedConnection, LinkError> {
        let failed = |cause: RedisError| match cause.code() {
            Some(_) => LinkError::reply(&self.name, &cause),
            None => LinkError::with_cause(format!("cannot connect to {}", self.name), cause),
        };
        // The callers bound the time.
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
        // A server that wants a login accepts connections without one, and refuses each command.
        match answer(&mut client, ::redis::cmd("PING")).await {
            Err(error) if error.code() == Some("NOAUTH") => {
                Err(LinkError::reply(&self.name, &error))
            }
            // Calls deal with any other reply: the server may be loading its data, or the user may
            // lack the right to this command.
            Err(error) if error.code().is_none() => Err(failed(error)),
            _ => Ok(client),
        }
    }
}

/// A server's answer to a command.
pub(super) async fn answer(
    client: &mut MultiplexedConnection,
    command: Cmd,
) -> Result<Value, RedisError> {
    command.query_async(client).await
}

/// How many commands may wait for the task that writes them, and how many bytes that task gathers
/// before it writes. The client's own values make it write far more often under load.
const COMMANDS: usize = 2048;
const BYTES: usize = 64 * 1024;
