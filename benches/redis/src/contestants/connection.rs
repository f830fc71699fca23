//! The connection of those that are only a command: one for all tasks, as tollgate sets it.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, cmd};

use crate::server::Server;

/// A connection that sends at once, and writes what has gathered in large pieces.
pub(super) async fn connected(server: &Server) -> MultiplexedConnection {
    let address = server.url().into_connection_info().expect("an address of Redis");
    let address = address.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let config = AsyncConnectionConfig::new()
        .set_pipeline_buffer_size(2_048)
        .set_write_backpressure_boundary(64 << 10);
    let client = Client::open(address).expect("a client of Redis");
    let connection = client.get_multiplexed_async_connection_with_config(&config).await;
    connection.expect("a connection to the server")
}

/// Has the server keep a script, and returns what it is called by.
pub(super) async fn loaded(connection: &mut MultiplexedConnection, script: &str) -> Arc<str> {
    let digest = cmd("SCRIPT").arg("LOAD").arg(script).query_async::<String>(connection).await;
    digest.expect("a script that the server takes").into()
}
