//! The connection to the master that sentinels name.

use std::sync::Arc;

use ::redis::{RedisError, Value};
use tokio::task::JoinSet;

use super::address::is_host;
use super::error::LinkError;
use super::server::Server;
use super::wire::Wire;

/// Sentinels, the name of the master that they watch, and how to log in to it.
#[derive(Debug)]
pub(super) struct Sentinels {
    sentinels: Vec<Arc<Server>>,
    master: String,
    /// The login of data nodes. The address in it is not used.
    login: Server,
    name: String,
}

impl Sentinels {
    pub(super) fn new(sentinels: Vec<Server>, master: String, login: Server) -> Self {
        let name = format!("the master `{master}`");
        Self { sentinels: sentinels.into_iter().map(Arc::new).collect(), master, login, name }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// An error reply of the master.
    pub(super) fn reply(&self, reply: &RedisError) -> LinkError {
        self.login.reply(&self.name, reply)
    }

    /// Asks all sentinels at once, and takes the first named server that is a master.
    ///
    /// A sentinel that hangs or is outdated does not delay the others, nor does a server that it
    /// names. For example, after a failover one sentinel still names the former master, which
    /// hangs. The others name the new one, and that is taken as soon as it answers.
    pub(super) async fn dial(&self) -> Result<Wire, LinkError> {
        let mut steps = JoinSet::new();
        for sentinel in &self.sentinels {
            let named = query_master(Arc::clone(sentinel), self.master.clone());
            steps.spawn(async move { named.await.map(DialStep::Named) });
        }
        let mut tried = Vec::new();
        let mut error = LinkError::new("there are no sentinels to ask");
        while let Some(step) = steps.join_next().await {
            match step {
                // Each server is connected to once, however many sentinels name it.
                Ok(Ok(DialStep::Named(address))) if tried.contains(&address) => {}
                Ok(Ok(DialStep::Named(address))) => {
                    let server = self.login.with_host(&address.0, address.1);
                    let reached = connect_to_master(server);
                    steps.spawn(async move { reached.await.map(DialStep::Reached) });
                    tried.push(address);
                }
                // The set is dropped here, which aborts all other attempts.
                Ok(Ok(DialStep::Reached(master))) => return Ok(master),
                Ok(Err(failed)) => error = failed,
                Err(_) => {}
            }
        }
        Err(error)
    }
}

enum DialStep {
    /// A sentinel named a master.
    Named((String, u16)),
    /// A server that was named is a master.
    Reached(Wire),
}

/// Connects to a server that was named, if it is a master.
async fn connect_to_master(server: Server) -> Result<Wire, LinkError> {
    let wire = server.dial().await?;
    match wire.send(&::redis::cmd("ROLE"), 0).await {
        Ok(role) if !is_master(&role) => {
            Err(LinkError::new(format!("{} is not a master", server.name())))
        }
        // A user without the right to `ROLE` may still have the right to decide.
        Err(error) if error.code() != Some("NOPERM") => {
            Err(server.error(format!("{} did not report its role", server.name()), error))
        }
        _ => Ok(wire),
    }
}

/// Asks one sentinel where the master is.
async fn query_master(sentinel: Arc<Server>, master: String) -> Result<(String, u16), LinkError> {
    let wire = sentinel.dial().await?;
    let mut command = ::redis::cmd("SENTINEL");
    command.arg("GET-MASTER-ADDR-BY-NAME").arg(&master);
    let named = wire.send(&command, 0).await.map_err(|error| query_error(&sentinel, error))?;
    match read_address(&named) {
        Some(Some(address)) => Ok(address),
        Some(None) => {
            let text =
                format!("the sentinel {} does not know a master `{master}`", sentinel.name());
            Err(LinkError::new(text))
        }
        None => {
            let text = format!("the sentinel {} sent no address of a master", sentinel.name());
            Err(LinkError::new(text))
        }
    }
}

/// The address in a sentinel's answer. `Some(None)` if the sentinel knows no such master, and
/// `None` if the answer cannot be read.
///
/// The client library's own conversion would cut a port that is too large to its last 16 bits.
pub(super) fn read_address(named: &Value) -> Option<Option<(String, u16)>> {
    let parts = match named {
        Value::Nil => return Some(None),
        Value::Array(parts) => parts,
        _ => return None,
    };
    let [Value::BulkString(host), Value::BulkString(port)] = parts.as_slice() else { return None };
    let (host, port) = (std::str::from_utf8(host).ok()?, std::str::from_utf8(port).ok()?);
    let port = port.parse().ok()?;
    is_host(host).then(|| Some((host.to_owned(), port)))
}

fn query_error(sentinel: &Server, error: RedisError) -> LinkError {
    let text = format!("the sentinel {} did not name the master", sentinel.name());
    sentinel.error(text, error)
}

fn is_master(role: &Value) -> bool {
    let Value::Array(parts) = role else { return false };
    match parts.first() {
        Some(Value::BulkString(name)) => name == b"master",
        Some(Value::SimpleString(name)) => name == "master",
        _ => false,
    }
}
