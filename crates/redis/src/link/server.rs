//! One server: its address and login, and how to connect to it.

use std::fmt;
use std::io;
use std::time::Duration;

use ::redis::{RedisConnectionInfo, RedisError};
use tokio::task::JoinSet;

use super::address::{Address, Endpoint};
use super::error::LinkError;
use super::failure::is_unready;
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

    #[cfg(test)]
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

    /// Connects, logs in, and checks that the login suffices.
    pub(super) async fn dial(&self) -> Result<Wire, LinkError> {
        match self.address.endpoints().await {
            Ok(endpoints) => self.dial_any(endpoints).await,
            Err(cause) => Err(LinkError::with_io_cause(self.no_connection(), cause)),
        }
    }

    /// Tries all endpoints at once, and takes the first with a server that can answer.
    ///
    /// So a silent address does not hold up the others, nor does a server that is loading its data.
    /// If no server can answer yet, one of them is taken.
    pub(super) async fn dial_any(&self, endpoints: Vec<Endpoint>) -> Result<Wire, LinkError> {
        let mut attempts = JoinSet::new();
        for endpoint in endpoints {
            let server = self.clone();
            attempts.spawn(async move { server.dial_one(&endpoint).await });
        }
        let none = io::Error::other("the host has no address");
        let mut last = Err(LinkError::with_io_cause(self.no_connection(), none));
        while let Some(attempt) = attempts.join_next().await {
            match attempt {
                // The set is dropped with the other attempts, which ends them.
                Ok(Dialled::Decided(result)) => return result,
                Ok(Dialled::Unready(wire)) => last = Ok(wire),
                Ok(Dialled::Failed(error)) if last.is_err() => last = Err(error),
                Ok(Dialled::Failed(_)) | Err(_) => {}
            }
        }
        last
    }

    async fn dial_one(&self, endpoint: &Endpoint) -> Dialled {
        let stream = match self.address.connect(endpoint).await {
            Ok(stream) => stream,
            Err(cause) => {
                return Dialled::Failed(LinkError::with_io_cause(self.no_connection(), cause));
            }
        };
        let wire = match Wire::open(stream, &self.login).await {
            Ok(wire) => wire,
            Err(cause) => return self.failed(cause),
        };
        // A server that requires a login accepts connections without one, and refuses each command.
        match wire.send(&::redis::cmd("PING"), 0).await {
            Err(error) if error.code().is_none() || error.code() == Some("NOAUTH") => {
                self.failed(error)
            }
            Err(error) if is_unready(&error) => Dialled::Unready(wire),
            // Any other reply is left to the calls: the user may lack the right to `PING`.
            _ => Dialled::Decided(Ok(wire)),
        }
    }

    /// What a server has answered to a login decides, as the wrong login is not an outage.
    fn failed(&self, cause: RedisError) -> Dialled {
        let is_reply = cause.code().is_some();
        let error = self.error(self.no_connection(), cause);
        if is_reply { Dialled::Decided(Err(error)) } else { Dialled::Failed(error) }
    }

    fn no_connection(&self) -> String {
        format!("cannot connect to {}", self.name)
    }
}

/// The result of an attempt to connect to one address.
enum Dialled {
    /// No other address needs to be tried.
    Decided(Result<Wire, LinkError>),
    /// A connection to a server that cannot answer yet.
    Unready(Wire),
    /// There is no connection.
    Failed(LinkError),
}

/// Shows no login.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Server").field(&self.name).finish()
    }
}

/// How long an attempt may take, including name resolution, TLS and login. A live server needs a
/// few round trips, and a dead one must not hold up the next attempt.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
