//! One server of the link.

use std::sync::Arc;
use std::time::Duration;

use ::redis::RedisError;
use tokio::time::{Instant, timeout_at};

use super::call::Connection;
use super::dial::Dial;
use super::error::LinkError;
use super::node_state::{Lookup, NodeState};
use tollgate::backend::BackendError;

/// A server and the connection to it. Clones share the connection.
#[derive(Clone, Debug)]
pub(super) struct Node(Arc<NodeState>);

impl Node {
    /// A node that is not connected yet. `within` is the time that calls report when they time out.
    pub(super) fn new(dial: Dial, within: Duration) -> Self {
        Self(Arc::new(NodeState::new(dial, within)))
    }

    /// The address of the node, for messages.
    pub(super) fn name(&self) -> &str {
        self.0.name()
    }

    /// Whether this is the other one.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The host of the node, which a node that does not know it leaves out of its answers; empty
    /// for a socket.
    pub(super) fn host(&self) -> &str {
        self.0.host()
    }

    /// An error reply of the node.
    pub(super) fn reply(&self, reply: &RedisError) -> LinkError {
        self.0.reply(reply)
    }

    /// Waits until the connection with this number is lost.
    #[cfg(test)]
    pub(super) async fn loss(&self, serial: u64) {
        self.0.loss(serial).await;
    }

    /// As [`NodeState::is_late`].
    pub(super) fn is_late(&self, begun: Instant, time: Duration, is_flooded: bool) -> Option<bool> {
        self.0.is_late(begun, time, is_flooded)
    }

    /// Starts an attempt, unless there is a connection or an attempt is under way.
    pub(super) fn connect(&self) {
        self.0.lookup();
    }

    /// The connection. Waits for the attempt that is under way.
    pub(super) async fn connection(&self, deadline: Instant) -> Result<Connection, BackendError> {
        let mut changes = self.0.changes();
        loop {
            // Before the lookup: an attempt that ends in between would otherwise not end the wait.
            changes.mark();
            match self.0.lookup() {
                Lookup::Connection(wire, serial) => {
                    return Ok(Connection::new(wire, Arc::clone(&self.0), serial));
                }
                Lookup::Failure(cause) => return Err(cause),
                Lookup::Attempt => {}
            }
            // The node lives as long as `self`, so only the deadline ends the wait.
            if !matches!(timeout_at(deadline, changes.next()).await, Ok(true)) {
                return Err(BackendError::timeout("redis", self.0.within()));
            }
        }
    }
}

/// The deadline of a wait that the caller bounds by itself.
pub(super) const FOREVER: Duration = Duration::from_secs(86_400);
