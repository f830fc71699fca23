//! A call on a connection: its answer, or what is known when there is none.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use ::redis::aio::{ConnectionLike, MultiplexedConnection};
use ::redis::{Cmd, ErrorKind, RedisError, RedisResult, Value};
use tokio::time::timeout;

use super::node::Node;
use super::trouble::Trouble;
use crate::backend::BackendError;

/// A connection of a node.
#[derive(Debug)]
pub(super) struct Connection {
    client: MultiplexedConnection,
    node: Node,
    serial: u64,
}

/// Why a call has no answer.
#[derive(Debug)]
pub(super) enum Fault {
    /// The server has said so, by an error.
    Reply(RedisError),
    /// The server may have carried it out.
    Unknown(BackendError),
}

impl Connection {
    pub(super) fn new(client: MultiplexedConnection, node: Node, serial: u64) -> Self {
        Self { client, node, serial }
    }

    /// Which of its node's connections it is.
    #[cfg(test)]
    pub(super) fn serial(&self) -> u64 {
        self.serial
    }

    /// The node at the other end.
    pub(super) fn node(&self) -> &Node {
        &self.node
    }

    /// Takes another connection for what comes.
    pub(super) fn retire(&self) {
        self.node.retire(self.serial);
    }

    /// Trusts nothing any more that comes from it.
    pub(super) fn give_up(&self) {
        self.node.lose(self.serial);
    }

    /// Sends a command, once, and waits for its answer.
    pub(super) async fn run(&self, command: &Cmd) -> Result<Value, Fault> {
        let mut client = self.client.clone();
        self.settle(async move { client.req_packed_command(command).await?.extract_error() }).await
    }

    /// Sends a command, once, about keys that the node is just being given.
    pub(super) async fn run_asking(&self, command: &Cmd) -> Result<Value, Fault> {
        let mut both = ::redis::pipe();
        both.cmd("ASKING").add_command(command.clone());
        let mut client = self.client.clone();
        self.settle(async move {
            let answers = client.req_packed_commands(&both, 0, 2).await?;
            match answers.into_iter().next_back() {
                Some(answer) => answer.extract_error(),
                None => Ok(Value::Nil),
            }
        })
        .await
    }

    /// Waits for an answer as long as the server's patience, or until the connection is lost.
    async fn settle(
        &self,
        answer: impl Future<Output = RedisResult<Value>>,
    ) -> Result<Value, Fault> {
        let mut answer = pin!(answer);
        let mut loss = pin!(self.node.loss(self.serial));
        let first = poll_fn(|cx| match answer.as_mut().poll(cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => loss.as_mut().poll(cx).map(|()| None),
        });
        // Nobody is to be cut off who said that he has more time.
        let patience = PATIENCE.max(self.node.within());
        match timeout(patience, first).await {
            Ok(Some(Ok(value))) => Ok(value),
            Ok(Some(Err(error))) if is_reply(&error) => Err(Fault::Reply(error)),
            Ok(Some(Err(error))) => {
                self.node.lose(self.serial);
                Err(Fault::Unknown(Trouble::caused(self.node.lost_text(), error).into()))
            }
            Ok(None) => Err(Fault::Unknown(Trouble::new(self.node.lost_text()).into())),
            Err(_) => {
                self.node.lose(self.serial);
                Err(Fault::Unknown(BackendError::timeout("redis", patience)))
            }
        }
    }
}

/// Whether the server itself has answered with an error.
fn is_reply(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}

/// How long an answer may take after the command was sent, if no deadline is longer. Far longer than any decision waits, so
/// that a server which is merely slow keeps its connection and is not asked more and more; short
/// enough that one which hangs is noticed.
const PATIENCE: Duration = Duration::from_secs(1);
