//! The master that sentinels name.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::redis::aio::MultiplexedConnection;
use ::redis::{RedisError, Value};
use tokio::task::JoinSet;

use super::dial::{Server, answer};
use super::trouble::Trouble;

/// Sentinels, the name of the master that they watch, and how to log in to it.
#[derive(Debug)]
pub(super) struct Sentinels {
    sentinels: Vec<Arc<Server>>,
    master: String,
    /// How data nodes are reached; its address is not used.
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

    /// Asks all sentinels at once, and takes the first master that is named and says it is one.
    ///
    /// A sentinel that hangs or knows less than the others holds up nobody, nor does the server that
    /// it names: after a failover the one that used to be the master is not taken for it, whether it
    /// says so or says nothing.
    pub(super) async fn dial(
        &self,
        hang_up: impl Fn() + Send + Sync + 'static,
    ) -> Result<MultiplexedConnection, Trouble> {
        let hang_up: Arc<dyn Fn() + Send + Sync> = Arc::new(hang_up);
        let mut steps = JoinSet::new();
        for sentinel in &self.sentinels {
            let named = ask(Arc::clone(sentinel), self.master.clone());
            steps.spawn(async move { named.await.map(Step::Named) });
        }
        let mut tried = Vec::new();
        let mut trouble = Trouble::new("there are no sentinels to ask");
        while let Some(step) = steps.join_next().await {
            match step {
                Ok(Ok(Step::Named(address))) if tried.contains(&address) => {}
                Ok(Ok(Step::Named(address))) => {
                    let server = self.login.at(&address.0, address.1);
                    let reached = reach(server, Arc::clone(&hang_up));
                    steps.spawn(async move { reached.await.map(Step::Reached) });
                    tried.push(address);
                }
                Ok(Ok(Step::Reached(master))) => return Ok(master.taken()),
                Ok(Err(failed)) => trouble = failed,
                Err(_) => {}
            }
        }
        Err(trouble)
    }
}

enum Step {
    /// A sentinel has named a master.
    Named((String, u16)),
    /// One that was named is a master.
    Reached(Master),
}

/// A connection whose end is told only if it is taken: those to other servers may end as they like.
struct Master {
    client: MultiplexedConnection,
    end: Arc<End>,
}

struct End {
    is_taken: AtomicBool,
    is_over: AtomicBool,
    hang_up: Arc<dyn Fn() + Send + Sync>,
}

impl Master {
    fn taken(self) -> MultiplexedConnection {
        self.end.is_taken.store(true, Ordering::SeqCst);
        // Each side writes before it reads, so that one of them sees both.
        if self.end.is_over.load(Ordering::SeqCst) {
            (self.end.hang_up)();
        }
        self.client
    }
}

/// Connects to a server that was named, if it is a master.
async fn reach(server: Server, hang_up: Arc<dyn Fn() + Send + Sync>) -> Result<Master, Trouble> {
    let (is_taken, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let end = Arc::new(End { is_taken, is_over, hang_up });
    let told = Arc::clone(&end);
    let over = move || {
        told.is_over.store(true, Ordering::SeqCst);
        if told.is_taken.load(Ordering::SeqCst) {
            (told.hang_up)();
        }
    };
    let mut client = server.dial(over).await?;
    match answer(&mut client, ::redis::cmd("ROLE")).await {
        Ok(role) if !is_master(&role) => {
            Err(Trouble::new(format!("{} is not a master", server.name())))
        }
        // A user who may not ask for it finds out by the first call.
        Err(error) if error.code() != Some("NOPERM") => {
            Err(Trouble::caused(format!("{} has no role", server.name()), error))
        }
        _ => Ok(Master { client, end }),
    }
}

/// Asks one sentinel where the master is.
async fn ask(sentinel: Arc<Server>, master: String) -> Result<(String, u16), Trouble> {
    let mut client = sentinel.dial(|| ()).await?;
    let mut command = ::redis::cmd("SENTINEL");
    command.arg("GET-MASTER-ADDR-BY-NAME").arg(&master);
    let named = answer(&mut client, command).await.map_err(|error| told(&sentinel, error))?;
    match ::redis::from_redis_value::<Option<(String, u16)>>(named) {
        Ok(Some(address)) => Ok(address),
        Ok(None) => {
            let text = format!("the sentinel {} knows no master `{master}`", sentinel.name());
            Err(Trouble::new(text))
        }
        Err(error) => Err(told(&sentinel, error.into())),
    }
}

fn told(sentinel: &Server, error: RedisError) -> Trouble {
    Trouble::caused(format!("the sentinel {} did not name the master", sentinel.name()), error)
}

fn is_master(role: &Value) -> bool {
    let Value::Array(parts) = role else { return false };
    match parts.first() {
        Some(Value::BulkString(name)) => name == b"master",
        Some(Value::SimpleString(name)) => name == "master",
        _ => false,
    }
}
