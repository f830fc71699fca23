//! A connection to a server, after the login.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::redis::aio::{ConnectionLike, MultiplexedConnection};
use ::redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, Pipeline, PushInfo, PushKind, RedisConnectionInfo,
    RedisError, RedisResult, Value, make_extension_error,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;

use super::allowance::{Allowance, BoundedStream};
use super::silence::Silence;
use tollgate_kit::overdue::Overdue;

/// A connection on which any number of commands may be under way. Clones share it, and the last
/// clone ends it.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    client: MultiplexedConnection,
    shared: Arc<WireShared>,
}

struct WireShared {
    allowance: Arc<Allowance>,
    silence: Arc<Silence>,
    /// The task that writes commands and reads answers, and how late it is.
    driver: AbortHandle,
    overdue: Overdue,
    end: Arc<ConnectionEnd>,
}

/// The end of a connection, which may come before anything is there to be told.
#[derive(Default)]
struct ConnectionEnd {
    is_over: AtomicBool,
    hang_up: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl ConnectionEnd {
    fn report(&self) {
        if let Some(hang_up) = self.hang_up.get() {
            hang_up();
        }
    }
}

impl Wire {
    /// Logs in on a stream.
    pub(super) async fn open<S>(stream: S, login: &RedisConnectionInfo) -> RedisResult<Self>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let end = Arc::new(ConnectionEnd::default());
        let reported = Arc::clone(&end);
        // The callers have timeouts of their own.
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(COMMANDS)
            .set_write_backpressure_boundary(BYTES)
            .set_push_sender(move |push: PushInfo| -> Result<(), ()> {
                if push.kind == PushKind::Disconnection {
                    reported.is_over.store(true, Ordering::SeqCst);
                    reported.report();
                }
                Ok(())
            });
        let (allowance, silence) = (Arc::new(Allowance::new()), Silence::new());
        let stream = BoundedStream::new(stream, Arc::clone(&allowance), Arc::clone(&silence));
        let opened = MultiplexedConnection::new_with_config(login, stream, config).await;
        let (client, driver) = opened.map_err(in_its_words)?;
        let overdue = Overdue::from(Duration::ZERO);
        let driver = tokio::spawn(overdue.watch(driver)).abort_handle();
        let shared = WireShared { allowance, silence, driver, overdue, end };
        Ok(Self { client, shared: Arc::new(shared) })
    }

    /// Sets what is called when the connection ends, or at once if that was before; to be called by
    /// the one owner that keeps the connection.
    pub(super) fn when_over(&self, hang_up: impl Fn() + Send + Sync + 'static) {
        let end = &self.shared.end;
        // Fails if it was set before.
        let _ = end.hang_up.set(Box::new(hang_up));
        // Each side notes its own part before it reads that of the other. So at least one of them
        // sees both, and the end is reported.
        if end.is_over.load(Ordering::SeqCst) {
            end.report();
        }
    }

    /// How the server has answered lately.
    pub(super) fn silence(&self) -> &Silence {
        &self.shared.silence
    }

    /// How long this process was late so far with what it writes to the server and reads from it.
    pub(super) fn overdue(&self) -> Duration {
        self.shared.overdue.total()
    }

    /// Sends a command once. Its answer has at most `longest` bytes, and a few.
    pub(super) async fn send(&self, command: &Cmd, longest: usize) -> RedisResult<Value> {
        let expected = self.shared.allowance.extend(longest);
        let answer = self.client.clone().req_packed_command(command).await?;
        // Only for a complete answer. A call that fails or is dropped gives back its part of the
        // bound and leaves the count.
        expected.complete();
        answer.extract_error()
    }

    /// Sends several commands once, together. Their answers have at most `longest` bytes, and a few.
    pub(super) async fn send_all(
        &self,
        commands: &Pipeline,
        count: usize,
        longest: usize,
    ) -> RedisResult<Vec<Value>> {
        let expected = self.shared.allowance.extend(longest);
        let answers = self.client.clone().req_packed_commands(commands, 0, count).await?;
        expected.complete();
        Ok(answers)
    }

    /// Sends a command once, about keys that the node is importing.
    pub(super) async fn send_asking(&self, command: &Cmd, longest: usize) -> RedisResult<Value> {
        let mut both = ::redis::pipe();
        both.cmd("ASKING").add_command(command.clone());
        let expected = self.shared.allowance.extend(longest);
        // Both commands are written together, because `ASKING` only holds for the next command of
        // the connection.
        let answers = self.client.clone().req_packed_commands(&both, 0, 2).await?;
        expected.complete();
        match answers.into_iter().next_back() {
            Some(answer) => answer.extract_error(),
            None => Ok(Value::Nil),
        }
    }
}

impl Drop for WireShared {
    fn drop(&mut self) {
        // The task owns the socket, which is closed with it.
        self.driver.abort();
    }
}

impl fmt::Debug for WireShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WireShared").field(&self.allowance).finish()
    }
}

/// The client words the reply of a server that does not know `HELLO` itself, if the server quotes as
/// Redis 6.2 does. It is a reply nevertheless.
fn in_its_words(error: RedisError) -> RedisError {
    match error.kind() {
        ErrorKind::RESP3NotSupported => {
            make_extension_error("ERR".to_owned(), Some("unknown command 'HELLO'".to_owned()))
        }
        _ => error,
    }
}

/// How many commands may wait for the task that writes them, and how many bytes it gathers before
/// it writes. With the client library's own values, it writes far more often under load.
const COMMANDS: usize = 2048;
const BYTES: usize = 64 * 1024;
