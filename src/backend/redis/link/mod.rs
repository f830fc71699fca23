//! The link to the servers: one script call at a time, sent once, answered or failed.
//!
//! # Design
//!
//! A [`Node`](node::Node) keeps one connection to one server; a [`Link`] knows which node to ask,
//! and what to do about its answer. A call is sent again only if the server has said that it did
//! not carry it out. What may have been carried out, because the connection broke or the server
//! fell silent, fails instead: sent again, it might take tokens twice.

mod cluster;
mod connection;
mod dial;
mod node;
mod remedy;
mod sentinel;
mod servers;
mod slots;
#[cfg(test)]
mod tests;
mod trouble;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::redis::{Cmd, RedisError, Script, Value};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use self::cluster::Cluster;
use self::connection::{Connection, Fault};
use self::node::Node;
use self::remedy::Remedy;
use self::servers::Kind;
pub(super) use self::servers::{Common, Servers};
use self::trouble::Trouble;
use super::names::slot;
use crate::backend::BackendError;

/// A connection that is made, and made anew when it breaks, in the background. Cheap to clone.
#[derive(Clone)]
pub(super) struct Link(Arc<Shared>);

struct Shared {
    route: Route,
    text: &'static str,
    digest: String,
    within: Duration,
}

/// What the script is called with.
pub(super) struct Call<'c, K> {
    keys: &'c [K],
    argument: &'c [u8],
    deadline: Instant,
    divisible: bool,
    /// Whether this can be the answer about so many keys.
    reads: fn(&Value, usize) -> bool,
}

impl<'c, K> Call<'c, K> {
    pub(super) const fn new(keys: &'c [K], argument: &'c [u8], deadline: Instant) -> Self {
        Self { keys, argument, deadline, divisible: false, reads: |_, _| true }
    }

    /// Says what can be its answer. Where there is another, the connection is given up: what comes
    /// behind it is not what was asked for either.
    pub(super) const fn read_by(mut self, reads: fn(&Value, usize) -> bool) -> Self {
        self.reads = reads;
        self
    }

    /// Says that its parts may be sent one by one.
    pub(super) const fn divisible(mut self) -> Self {
        self.divisible = true;
        self
    }
}

/// Which node is asked.
enum Route {
    Single(Node),
    Cluster(Cluster),
}

/// Whom a call is sent to.
enum Target {
    /// Whoever should have the keys.
    Owner,
    /// The node that was said to have them.
    Moved(Node),
    /// The node that was said to be just getting them.
    Asked(Node),
}

impl Target {
    /// A single redirection is the rule; while nodes disagree there may be many.
    async fn pause_before_another(&self, pauses: &mut Pauses) {
        if !matches!(self, Self::Owner) {
            pauses.next().await;
        }
    }
}

/// In which form the script is sent.
#[derive(Clone, Copy)]
enum Form {
    Digest,
    Text,
}

impl Link {
    /// Begins to connect in the background, on the runtime in which it is called.
    ///
    /// `within` is what callers are told who have waited for a connection until their deadline.
    pub(super) fn open(
        servers: Servers,
        text: &'static str,
        within: Duration,
    ) -> Result<Self, BackendError> {
        if Handle::try_current().is_err() {
            let text = "there is no tokio runtime here (connect inside `#[tokio::main]`)";
            return Err(Trouble::new(text).into());
        }
        let digest = Script::new(text).get_hash().to_owned();
        let route = match servers.0 {
            Kind::One(dial) => Route::Single(Node::new(dial, within)),
            Kind::Cluster(seeds) => match Cluster::new(seeds, within) {
                Some(cluster) => Route::Cluster(cluster),
                None => return Err(Trouble::new("a cluster has at least one node").into()),
            },
        };
        match &route {
            Route::Single(node) => node.connect(),
            Route::Cluster(cluster) => cluster.read(),
        }
        Ok(Self(Arc::new(Shared { route, text, digest, within })))
    }

    /// Waits until there is a connection, or the first attempt has failed.
    ///
    /// # Cancel safety
    ///
    /// The attempt goes on when this is dropped.
    pub(super) async fn ready(&self) -> Result<(), BackendError> {
        let deadline = Instant::now() + FOREVER;
        match &self.0.route {
            Route::Single(node) => node.connection(deadline).await.map(drop),
            Route::Cluster(cluster) => cluster.ready(deadline).await,
        }
    }

    /// Whether keys are spread over several servers, by their slots.
    pub(super) fn is_cluster(&self) -> bool {
        match &self.0.route {
            Route::Single(_) => false,
            Route::Cluster(_) => true,
        }
    }

    /// Runs the script once on keys that all hash to one slot.
    ///
    /// A call that is [divisible](Call::divisible) is not sent again while a slot is moved and its keys
    /// are in several places: then it [is scattered](Self::is_scattered), and its parts may well not be.
    ///
    /// Waits for a connection, and for a server that cannot answer yet, until the deadline. Once the
    /// script is sent, waits for its answer as long as a server may take at all, so that one which
    /// hangs is not sent ever more.
    ///
    /// # Cancel safety
    ///
    /// When this is dropped, the script may still be carried out, once.
    pub(super) async fn call<K: AsRef<[u8]>>(
        &self,
        call: Call<'_, K>,
    ) -> Result<Value, BackendError> {
        let Call { keys, argument, deadline, divisible, reads } = call;
        let mut form = Form::Digest;
        let mut target = Target::Owner;
        let mut pauses = Pauses::default();
        let mut refusal = None;
        loop {
            let connection = match self.connection(&target, keys, deadline).await {
                Ok(connection) => connection,
                // What the server said before says more than that the time is up.
                Err(error) if error.is_timeout() => return Err(refusal.unwrap_or(error)),
                Err(error) => return Err(error),
            };
            let command = self.command(form, keys, argument);
            let answer = match &target {
                Target::Owner | Target::Moved(_) => connection.run(&command).await,
                Target::Asked(_) => connection.run_asking(&command).await,
            };
            let reply = match answer {
                Ok(value) if reads(&value, keys.len()) => return Ok(value),
                Ok(_) => {
                    connection.give_up();
                    return Err(Trouble::new(connection.node().strange_text()).into());
                }
                Err(Fault::Unknown(error)) => {
                    self.doubt();
                    return Err(error);
                }
                Err(Fault::Reply(reply)) => reply,
            };
            let node = connection.node();
            let remedy = Remedy::of(&reply);
            // The next call is to help then; who runs out of time meanwhile has not been refused.
            let is_detour = match (&remedy, &target) {
                (Remedy::Text, _) => true,
                (Remedy::Moved(_), Target::Moved(_)) | (Remedy::Ask(_), Target::Asked(_)) => false,
                (Remedy::Moved(_) | Remedy::Ask(_), _) => true,
                _ => false,
            };
            match remedy {
                Remedy::Text if matches!(form, Form::Digest) => form = Form::Text,
                Remedy::Text | Remedy::Nothing => return Err(told(node, &reply)),
                Remedy::Patience if divisible && reply.code() == Some("TRYAGAIN") => {
                    return Err(Trouble::reply(node.name(), &reply).scattered().into());
                }
                Remedy::Patience => {
                    target = Target::Owner;
                    self.doubt();
                    pauses.next().await;
                }
                Remedy::Reconnect => {
                    target = Target::Owner;
                    connection.retire();
                    self.doubt();
                    pauses.next().await;
                }
                Remedy::Moved(address) => {
                    target.pause_before_another(&mut pauses).await;
                    target = Target::Moved(self.redirect(&address, node, &reply)?);
                    self.doubt();
                }
                Remedy::Ask(address) => {
                    target.pause_before_another(&mut pauses).await;
                    target = Target::Asked(self.redirect(&address, node, &reply)?);
                }
            }
            if !is_detour {
                refusal = Some(told(node, &reply));
            }
            if Instant::now() >= deadline {
                let late = || BackendError::timeout("redis", self.0.within);
                return Err(refusal.unwrap_or_else(late));
            }
        }
    }

    /// Whether a call has failed, and not been carried out, for keys that are in several places.
    pub(super) fn is_scattered(error: &BackendError) -> bool {
        Trouble::is_scattered(error)
    }

    async fn connection<K: AsRef<[u8]>>(
        &self,
        target: &Target,
        keys: &[K],
        deadline: Instant,
    ) -> Result<Connection, BackendError> {
        match (&self.0.route, target) {
            (Route::Single(node), _) => node.connection(deadline).await,
            (Route::Cluster(cluster), Target::Moved(node) | Target::Asked(node)) => {
                cluster.connection(node, deadline).await
            }
            (Route::Cluster(cluster), Target::Owner) => {
                let slot = keys.first().map_or(0, |key| slot::of(key.as_ref()));
                cluster.owner(slot, deadline).await
            }
        }
    }

    /// The node that another has named.
    fn redirect(
        &self,
        address: &str,
        teller: &Node,
        reply: &RedisError,
    ) -> Result<Node, BackendError> {
        match &self.0.route {
            Route::Single(_) => {
                let text =
                    format!("{} is a node of a cluster (use `Redis::cluster`)", teller.name());
                Err(Trouble::new(text).into())
            }
            Route::Cluster(cluster) => {
                cluster.at(address, teller).ok_or_else(|| told(teller, reply))
            }
        }
    }

    /// Finds out anew who has which keys, as what is known seems to be wrong.
    fn doubt(&self) {
        match &self.0.route {
            Route::Single(_) => {}
            Route::Cluster(cluster) => cluster.read(),
        }
    }

    fn command<K: AsRef<[u8]>>(&self, form: Form, keys: &[K], argument: &[u8]) -> Cmd {
        let (name, script) = match form {
            Form::Digest => ("EVALSHA", self.0.digest.as_str()),
            Form::Text => ("EVAL", self.0.text),
        };
        let mut command = ::redis::cmd(name);
        command.arg(script).arg(keys.len());
        for key in keys {
            command.arg(key.as_ref());
        }
        command.arg(argument);
        command
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match &self.0.route {
            Route::Single(node) => node.name(),
            Route::Cluster(cluster) => cluster.name(),
        };
        f.debug_tuple("Link").field(&name).finish()
    }
}

/// A server's error reply, which no retry has helped.
fn told(node: &Node, reply: &RedisError) -> BackendError {
    Trouble::reply(node.name(), reply).into()
}

/// The pauses of one call, each longer than the last.
struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(SHORTEST_PAUSE)
    }
}

impl Pauses {
    async fn next(&mut self) {
        sleep(self.0).await;
        self.0 = self.0.saturating_mul(2).min(LONGEST_PAUSE);
    }
}

/// The pauses before a call is sent again: a script that is loaded, a slot that is moved or a
/// script of somebody else that ends takes milliseconds.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// For a wait that its caller bounds.
const FOREVER: Duration = Duration::from_secs(86_400);
