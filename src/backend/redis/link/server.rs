//! One server: its address and login, and how to connect to it.

use std::fmt;

use ::redis::{RedisConnectionInfo, RedisError};

use super::address::Address;
use super::error::LinkError;
use super::wire::Wire;

/// A server and how to log in to it.
#[derive(Clone)]
pub(super) struct Server {
    address: Address,
    login: RedisConnectionInfo,
    name: String,
}

impl Server {
    pub(super) fn new(address: Address, login: RedisConnectionInfo) -> Self {
        let name = address.to_string();
        Self { address, login, name }
    }

    /// The address of the server, as `host:port` or the path of its socket.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The name or address of its host, empty for a socket.
    pub(super) fn host(&self) -> &str {
        self.address.host()
    }

    /// The number of its database.
    pub(super) fn database(&self) -> i64 {
        self.login.db()
    }

    #[cfg(all(test, feature = "memory"))]
    pub(super) fn login(&self) -> &RedisConnectionInfo {
        &self.login
    }

    /// Another server with the same login.
    pub(super) fn with_host(&self, host: &str, port: u16) -> Self {
        Self::new(self.address.with_host(host, port), self.login.clone())
    }

    /// The same server with the login of another.
    pub(super) fn with_login_of(self, other: &Self) -> Self {
        Self { login: other.login.clone(), ..self }
    }

    /// The same server with this login.
    pub(super) fn with_login(self, login: RedisConnectionInfo) -> Self {
        Self { login, ..self }
    }

    /// An error reply of the server by this name, which has the same login.
    pub(super) fn reply(&self, name: &str, reply: &RedisError) -> LinkError {
        LinkError::reply(name, reply, self.login.password().unwrap_or_default())
    }

    /// An error reply of this server, or another error of its connection.
    pub(super) fn error(&self, text: String, cause: RedisError) -> LinkError {
        match cause.code() {
            Some(_) => self.reply(&self.name, &cause),
            None => LinkError::with_cause(text, cause),
        }
    }

    /// Connects, logs in, and checks that the login suffices; `hang_up` is called when the
    /// connection ends.
    pub(super) async fn dial(
        &self,
        hang_up: impl Fn() + Send + Sync + 'static,
    ) -> Result<Wire, LinkError> {
        let text = || format!("cannot connect to {}", self.name);
        let stream = self.address.connect().await;
        let stream = stream.map_err(|cause| LinkError::with_io_cause(text(), cause))?;
        let wire = Wire::open(stream, &self.login, hang_up).await;
        let wire = wire.map_err(|cause| self.error(text(), cause))?;
        // A server that requires a login accepts connections without one, and refuses each command.
        match wire.send(&::redis::cmd("PING"), 0).await {
            Err(error) if error.code() == Some("NOAUTH") => Err(self.reply(&self.name, &error)),
            // Any other reply is left to the calls: the server may be loading its data, or the user
            // may lack the right to `PING`.
            Err(error) if error.code().is_none() => Err(self.error(text(), error)),
            _ => Ok(wire),
        }
    }
}

/// Shows no login.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Server").field(&self.name).finish()
    }
}
