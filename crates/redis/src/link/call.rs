//! A call of the script, and its answer on one connection or why there is none.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ::redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, Value};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout};

use super::error::LinkError;
use super::node_state::NodeState;
use super::wire::Wire;
use tollgate::backend::BackendError;

/// The keys and the argument of a call of the script.
pub(crate) struct Call<'c, K> {
    pub(super) keys: &'c [K],
    pub(super) argument: &'c [u8],
    pub(super) deadline: Instant,
    pub(super) divisible: bool,
    /// Whether a value can be the answer to a call with so many keys.
    pub(super) reads: fn(&Value, usize) -> bool,
}

impl<'c, K> Call<'c, K> {
    pub(crate) const fn new(keys: &'c [K], argument: &'c [u8], deadline: Instant) -> Self {
        Self { keys, argument, deadline, divisible: false, reads: |_, _| true }
    }

    /// Sets which values can be the answer. After any other value the connection is given up,
    /// because the answers behind it would not belong to their calls either.
    pub(crate) const fn read_by(mut self, reads: fn(&Value, usize) -> bool) -> Self {
        self.reads = reads;
        self
    }

    /// The length of the longest answer in bytes, apart from the few bytes that any answer has.
    pub(super) const fn longest_answer(&self) -> usize {
        self.keys.len().saturating_mul(BYTES_PER_KEY)
    }

    /// Allows the parts of the call to be sent one by one.
    pub(crate) const fn divisible(mut self) -> Self {
        self.divisible = true;
        self
    }
}

/// A connection of a node, with its number.
#[derive(Debug)]
pub(super) struct Connection {
    wire: Wire,
    node: Arc<NodeState>,
    serial: u64,
}

/// Why a call has no answer.
#[derive(Debug)]
pub(super) enum Fault {
    /// The server answered with an error.
    Reply(RedisError),
    /// No answer: the server may have carried out the call or not.
    Unknown(BackendError),
}

impl Connection {
    pub(super) const fn new(wire: Wire, node: Arc<NodeState>, serial: u64) -> Self {
        Self { wire, node, serial }
    }

    /// Its number among the node's connections.
    #[cfg(test)]
    pub(super) fn serial(&self) -> u64 {
        self.serial
    }

    /// The node at the other end.
    pub(super) fn node(&self) -> &NodeState {
        &self.node
    }

    /// Lets the connection finish its calls. The node makes another one for the next calls.
    pub(super) fn retire(&self) {
        self.node.retire(self.serial);
    }

    /// The same, if the server has decided nothing for a second, nor a former one at its address.
    pub(super) fn retire_unready(&self) {
        self.node.retire_unready(self.serial);
    }

    /// Ends the connection, and fails all calls that are under way on it.
    pub(super) fn give_up(&self) {
        self.node.lose(self.serial);
    }

    /// Sends a command once, and waits for its answer of at most `longest` bytes.
    pub(super) async fn run(&self, command: &Cmd, longest: usize) -> Result<Value, Fault> {
        self.settle(self.wire.send(command, longest)).await
    }

    /// Sends a command once, about keys that the node is importing.
    pub(super) async fn run_asking(&self, command: &Cmd, longest: usize) -> Result<Value, Fault> {
        self.settle(self.wire.send_asking(command, longest)).await
    }

    /// Sends several commands at once, and waits for their answers of at most `longest` bytes
    /// together. An error reply to one of them is its answer.
    pub(super) async fn run_all(
        &self,
        commands: &Pipeline,
        count: usize,
        longest: usize,
    ) -> Result<Vec<Value>, Fault> {
        self.settle(self.wire.send_all(commands, count, longest)).await
    }

    /// Waits for an answer until the timeout, or until the connection is lost.
    async fn settle<T>(&self, answer: impl Future<Output = RedisResult<T>>) -> Result<T, Fault> {
        let mut answer = pin!(answer);
        // The answer is polled first: if both are ready, the call has an answer.
        let mut loss = pin!(self.node.loss(self.serial));
        let first = poll_fn(|cx| match answer.as_mut().poll(cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => loss.as_mut().poll(cx).map(|()| None),
        });
        // A longer deadline extends the timeout. Otherwise a call with more time would be cut off.
        let time = REPLY_TIMEOUT.max(self.node.within());
        match self.in_time(time, first).await {
            Ok(Some(Ok(value))) => Ok(value),
            Ok(Some(Err(error))) if is_reply(&error) => Err(Fault::Reply(error)),
            // No reply of the server, so the stream is of no use. The other calls on it learn that
            // now, and do not each wait for their timeout.
            Ok(Some(Err(error))) => {
                self.node.lose(self.serial);
                Err(Fault::Unknown(LinkError::with_cause(self.node.lost_text(), error).into()))
            }
            Ok(None) => Err(Fault::Unknown(LinkError::new(self.node.lost_text()).into())),
            // The calls behind this one would wait in vain as well.
            Err(_) => {
                self.node.lose(self.serial);
                Err(Fault::Unknown(BackendError::timeout("redis", time)))
            }
        }
    }

    /// Waits for so long, and for as much longer as this process is late with what it writes and reads.
    async fn in_time<T>(
        &self,
        time: Duration,
        answer: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        let mut answer = pin!(answer);
        let (begun, before) = (Instant::now(), self.wire.overdue());
        let mut left = time;
        loop {
            let timed = timeout(left, answer.as_mut()).await;
            let overdue = self.wire.overdue().saturating_sub(before);
            left = time.saturating_add(overdue).saturating_sub(begun.elapsed());
            if timed.is_ok() || left.is_zero() {
                return timed;
            }
        }
    }
}

/// Whether the server itself has answered with an error.
fn is_reply(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}

/// What an answer has for each key: 49 bytes of its value, and what tells their number.
const BYTES_PER_KEY: usize = 64;

/// How long an answer may take after the command was sent, if no deadline is longer.
///
/// It is far longer than any decision waits, so that a server which is merely slow keeps its
/// connection and is not sent more and more; and short enough to notice a server that hangs.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);
