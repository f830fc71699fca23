//! The link to the servers: each call is sent once, and is answered or fails.
//!
//! # Design
//!
//! A [`Node`] keeps one connection to one server. A [`Link`] knows which node to ask, and what to
//! do about its answer.
//!
//! **Retries.** A call is sent again only if the server has said that it did not carry it out. If
//! the connection broke or the server fell silent, the call may have been carried out. Such a call
//! fails: sent again, it could take the tokens twice. [`RetryAction`] has the replies that allow
//! another attempt:
//!
//! | the server replies | the link |
//! |---|---|
//! | `NOSCRIPT` | sends the text of the script in place of its digest |
//! | `MOVED`, `ASK` | sends the call to the node that it names |
//! | `LOADING`, `BUSY`, `TRYAGAIN`, `CLUSTERDOWN`, `MASTERDOWN` | pauses, and sends the call again |
//! | `READONLY` | connects again, as a failover has made this server a replica |
//! | any other error | fails the call |
//!
//! For example, while slot 12 moves from node A to node B, A answers `ASK` with the address of B
//! for a key that has moved already. The link sends this call to B behind an `ASKING`, and sends
//! the next call about slot 12 to A again. Once A answers `MOVED`, the link reads the slots again
//! in the background.
//!
//! After a second of `LOADING` or `MASTERDOWN` alone, the node connects again as well: behind a name
//! with several addresses, or behind a virtual address, another server may be able to answer.
//!
//! **Deadlines.** All attempts of a call end with its deadline. Only the last attempt that was sent
//! is waited for longer, so a server that hangs does not get more and more calls.

mod address;
mod address_map;
mod allowance;
mod call;
mod cluster;
mod dial;
mod error;
mod failure;
mod node;
mod node_state;
mod retry_action;
mod scan;
mod sentinel;
mod server;
mod silence;
mod single_flight;
mod slot_map;
mod slot_query;
#[cfg(test)]
mod tests;
mod tls;
mod url;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::redis::{Cmd, RedisError, Script, Value};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

pub(super) use self::address_map::AddressMap;
pub(super) use self::call::Call;
use self::call::{Connection, Fault};
use self::cluster::{Cluster, Detour};
use self::error::LinkError;
use self::failure::is_unready;
use self::node::{FOREVER, Node};
use self::node_state::NodeState;
use self::retry_action::RetryAction;
use self::url::Topology;
pub(super) use self::url::{ConnectOptions, Servers};
use tollgate::backend::BackendError;
use tollgate_kit::key_name::slot::slot_of;

/// Connections that are made in the background and replaced when they break. Clones share them.
#[derive(Clone)]
pub(super) struct Link(Arc<LinkShared>);

struct LinkShared {
    route: Route,
    text: &'static str,
    digest: String,
    within: Duration,
}

/// The known nodes.
enum Route {
    Single(Node),
    Cluster(Cluster),
}

/// The node to which a call is sent.
enum Target {
    /// The node that should have the keys, by the slots as they were last read.
    Owner,
    /// The node that has the keys, by a `MOVED` of another node.
    Moved(Node),
    /// The node that is importing the keys, by an `ASK` of another node.
    Importing(Node),
}

impl Target {
    /// Pauses before the second redirection and later ones, as there may be many while nodes
    /// disagree.
    async fn pause_before_another(&self, pauses: &mut Pauses) {
        if !matches!(self, Self::Owner) {
            pauses.next().await;
        }
    }
}

/// The form in which the script is sent.
#[derive(Clone, Copy)]
enum Form {
    Digest,
    Text,
}

impl Link {
    /// Starts to connect in the background, on the current runtime.
    ///
    /// `within` is the time that a call reports if it waited for a connection until its deadline.
    pub(super) fn open(
        servers: Servers,
        text: &'static str,
        within: Duration,
    ) -> Result<Self, BackendError> {
        if Handle::try_current().is_err() {
            let text = "there is no tokio runtime here (connect inside `#[tokio::main]`)";
            return Err(LinkError::new(text).into());
        }
        let digest = Script::new(text).get_hash().to_owned();
        let route = match servers.0 {
            Topology::One(dial) => Route::Single(Node::new(dial, within)),
            Topology::Cluster(seeds, map) => match Cluster::new(seeds, map, within) {
                Some(cluster) => Route::Cluster(cluster),
                None => return Err(LinkError::new("a cluster has at least one node").into()),
            },
        };
        match &route {
            // Before the first call, which would otherwise wait for the handshake.
            Route::Single(node) => node.connect(),
            Route::Cluster(cluster) => cluster.read(),
        }
        Ok(Self(Arc::new(LinkShared { route, text, digest, within })))
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

    /// As [`NodeState::is_late`], for the server of a slot.
    pub(super) fn is_late(
        &self,
        slot: u16,
        begun: Instant,
        time: Duration,
        is_flooded: bool,
    ) -> Option<bool> {
        match &self.0.route {
            Route::Single(node) => node.is_late(begun, time, is_flooded),
            Route::Cluster(cluster) => cluster.is_late(slot, begun, time, is_flooded),
        }
    }

    /// Runs the script once on keys that all hash to one slot.
    ///
    /// If a slot is on its way, the keys of a call may be in two places. A call that is
    /// [divisible](Call::divisible) fails at once then, with an error that [is
    /// scattered](Self::is_scattered): each of its parts may succeed alone.
    ///
    /// Waits for a connection, or for a server that cannot answer yet, until the deadline. Once the
    /// script is sent, waits for its answer even beyond the deadline, so that a server that hangs
    /// does not get more and more calls.
    ///
    /// # Cancel safety
    ///
    /// When this is dropped, the script may still be carried out, once.
    pub(super) async fn call<K: AsRef<[u8]>>(
        &self,
        call: Call<'_, K>,
    ) -> Result<Value, BackendError> {
        let longest = call.longest_answer();
        let Call { keys, argument, deadline, divisible, reads } = call;
        let mut form = Form::Digest;
        // Away from a node that a redirection has named: by now, the slots may say where the keys
        // are.
        let mut target = Target::Owner;
        let mut _detour = None;
        let mut pauses = Pauses::default();
        let mut refusal = None;
        loop {
            // The callers that wait for a redirected call ask how that node does.
            _detour = self.detour(&target, keys);
            let connection = match self.connection(&target, keys, deadline).await {
                Ok(connection) => connection,
                // An earlier error of the server says more than a timeout.
                Err(error) if error.is_timeout() => return Err(refusal.unwrap_or(error)),
                Err(error) => return Err(error),
            };
            let command = self.command(form, keys, argument);
            let answer = match &target {
                Target::Owner | Target::Moved(_) => connection.run(&command, longest).await,
                Target::Importing(_) => connection.run_asking(&command, longest).await,
            };
            let reply = match answer {
                Ok(value) if reads(&value, keys.len()) => {
                    connection.node().note_answer(false);
                    return Ok(value);
                }
                Ok(_) => {
                    // What follows on this connection would be read as the answers of other calls,
                    // so all of these fail with it.
                    connection.give_up();
                    return Err(LinkError::new(connection.node().unexpected_answer_text()).into());
                }
                // The server may have carried it out, so it must not be sent again.
                Err(Fault::Unknown(error)) => {
                    // The node may be gone, and a replica of it may have the slots now.
                    self.refresh_slots();
                    return Err(error);
                }
                Err(Fault::Reply(reply)) => reply,
            };
            let node = connection.node();
            let action = RetryAction::new(&reply);
            // A detour is not reported as an error: the next attempt is expected to succeed.
            let is_detour = match (&action, &target) {
                (RetryAction::SendText, _) => true,
                (RetryAction::Moved(_), Target::Moved(_))
                | (RetryAction::Ask(_), Target::Importing(_)) => false,
                (RetryAction::Moved(_) | RetryAction::Ask(_), _) => true,
                _ => false,
            };
            match action {
                // Once. A server that does not know the script although it was just sent would be
                // asked again and again until the deadline.
                RetryAction::SendText if matches!(form, Form::Digest) => form = Form::Text,
                RetryAction::SendText | RetryAction::Fail => {
                    return Err(node.reply(&reply).into());
                }
                // `TRYAGAIN` means that the keys of this call are on two nodes while their slot
                // moves.
                RetryAction::Wait if divisible && reply.code() == Some("TRYAGAIN") => {
                    return Err(node.reply(&reply).mark_scattered().into());
                }
                RetryAction::Wait => {
                    node.note_answer(true);
                    if is_unready(&reply) {
                        connection.retire_unready();
                    }
                    target = Target::Owner;
                    self.refresh_slots();
                    pauses.next().await;
                }
                RetryAction::Reconnect => {
                    node.note_answer(true);
                    target = Target::Owner;
                    // Other calls that are under way on it get the same answer and retire it as
                    // well. The number of the connection makes that one new connection.
                    connection.retire();
                    self.refresh_slots();
                    pauses.next().await;
                }
                RetryAction::Moved(address) => {
                    target.pause_before_another(&mut pauses).await;
                    target = Target::Moved(self.redirect(&address, node, &reply)?);
                    self.refresh_slots();
                }
                RetryAction::Ask(address) => {
                    target.pause_before_another(&mut pauses).await;
                    // The slots are not read again. Until the move is over, they would say the
                    // same.
                    target = Target::Importing(self.redirect(&address, node, &reply)?);
                }
            }
            if !is_detour {
                refusal = Some(node.reply(&reply).into());
            }
            // After the pause and before the next attempt, so nothing is sent beyond the deadline.
            if Instant::now() >= deadline {
                let late = || BackendError::timeout("redis", self.0.within);
                return Err(refusal.unwrap_or_else(late));
            }
        }
    }

    /// Whether a call was not carried out because its keys are in several places.
    pub(super) fn is_scattered(error: &BackendError) -> bool {
        LinkError::is_scattered(error)
    }

    async fn connection<K: AsRef<[u8]>>(
        &self,
        target: &Target,
        keys: &[K],
        deadline: Instant,
    ) -> Result<Connection, BackendError> {
        match (&self.0.route, target) {
            (Route::Single(node), _) => node.connection(deadline).await,
            (Route::Cluster(cluster), Target::Moved(node) | Target::Importing(node)) => {
                cluster.connection(node, deadline).await
            }
            (Route::Cluster(cluster), Target::Owner) => cluster.owner(slot(keys), deadline).await,
        }
    }

    fn detour<K: AsRef<[u8]>>(&self, target: &Target, keys: &[K]) -> Option<Detour> {
        match (&self.0.route, target) {
            (Route::Cluster(cluster), Target::Moved(node) | Target::Importing(node)) => {
                Some(cluster.detour(slot(keys), node))
            }
            _ => None,
        }
    }

    /// The node that another one redirects to.
    fn redirect(
        &self,
        address: &str,
        sender: &NodeState,
        reply: &RedisError,
    ) -> Result<Node, BackendError> {
        match &self.0.route {
            Route::Single(_) => {
                let text =
                    format!("{} is a node of a cluster (use `Redis::cluster`)", sender.name());
                Err(BackendError::undecidable("redis", LinkError::new(text)))
            }
            Route::Cluster(cluster) => {
                cluster.node_at(address, sender).ok_or_else(|| sender.reply(reply).into())
            }
        }
    }

    /// Reads the slots again in the background, because the last reading seems to be outdated.
    fn refresh_slots(&self) {
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
        let names = keys.iter().map(|key| key.as_ref().len());
        let length = names.fold(argument.len(), usize::saturating_add);
        let mut command = Cmd::with_capacity(
            keys.len().saturating_add(4),
            length.saturating_add(name.len()).saturating_add(script.len()).saturating_add(8),
        );
        command.arg(name).arg(script).arg(keys.len());
        for key in keys {
            command.arg(key.as_ref());
        }
        command.arg(argument);
        command
    }
}

/// The slot of all keys of a call: the first one tells it.
fn slot<K: AsRef<[u8]>>(keys: &[K]) -> u16 {
    keys.first().map_or(0, |key| slot_of(key.as_ref()))
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

/// The pauses of one call, each twice as long as the last, up to a bound.
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

/// The first and the longest pause before a call is sent again. Loading a script, moving a slot, or
/// the end of another client's script takes milliseconds.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);
