//! One server's connection: made when somebody asks for it, and made anew when it breaks.
//!
//! # Design
//!
//! There is no task that outlives its work. Whoever asks finds a connection, or an attempt under
//! way, or a short pause after one that has failed, or begins an attempt in a task of its own. So
//! an idle node costs nothing, and one that nobody holds any longer ends what it has begun.
//!
//! Each connection has a number, its `serial`. What was lost is told by number to all calls that
//! are under way on it, since the client itself would let them wait for ever on a silent server.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::connection::Connection;
use super::dial::Dial;
use super::trouble::Trouble;
use crate::backend::BackendError;

/// A server, and the way to it. Clones share the connection.
#[derive(Clone, Debug)]
pub(super) struct Node(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    dial: Dial,
    within: Duration,
    state: watch::Sender<State>,
    attempt: Mutex<Option<AbortHandle>>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// The number of the last attempt, and of the connection that it made.
    serial: u64,
    /// Connections up to this number are lost, and whatever was under way on them.
    lost: u64,
    /// How often an attempt has failed, or its connection broke early, since one lived for a while.
    failures: u32,
}

#[derive(Debug)]
enum Phase {
    Apart,
    Connecting,
    Connected { client: MultiplexedConnection, since: Instant },
    Pausing { until: Instant, cause: BackendError },
}

/// What somebody who asks for the connection finds.
enum Found {
    Connection(Connection),
    Attempt { begin: Option<u64> },
    Failure(BackendError),
}

impl Node {
    /// A node that is not connected yet; `within` is what callers are told who wait in vain.
    pub(super) fn new(dial: Dial, within: Duration) -> Self {
        let phase = Phase::Apart;
        let state = watch::Sender::new(State { phase, serial: 0, lost: 0, failures: 0 });
        Self(Arc::new(Shared { dial, within, state, attempt: Mutex::new(None) }))
    }

    /// How long whoever asks here waits at most.
    pub(super) fn within(&self) -> Duration {
        self.0.within
    }

    /// Where the node is, for messages.
    pub(super) fn name(&self) -> &str {
        self.0.dial.name()
    }

    /// The host, for nodes that do not know their own; empty for a socket.
    pub(super) fn host(&self) -> &str {
        self.0.dial.host()
    }

    /// Begins to connect, if nobody has.
    pub(super) fn connect(&self) {
        if let Found::Attempt { begin: Some(serial) } = self.look() {
            self.begin(serial);
        }
    }

    /// The connection, waiting for the attempt that is under way.
    pub(super) async fn connection(&self, deadline: Instant) -> Result<Connection, BackendError> {
        let mut state = self.0.state.subscribe();
        loop {
            // What changes from here on wakes the wait below.
            state.mark_unchanged();
            match self.look() {
                Found::Connection(connection) => return Ok(connection),
                Found::Failure(cause) => return Err(cause),
                Found::Attempt { begin: Some(serial) } => self.begin(serial),
                Found::Attempt { begin: None } => {}
            }
            // The sender lives as long as this node, so that only the time can run out.
            if !matches!(timeout_at(deadline, state.changed()).await, Ok(Ok(()))) {
                return Err(BackendError::timeout("redis", self.0.within));
            }
        }
    }

    /// Waits until the connection with this number is lost.
    pub(super) async fn loss(&self, serial: u64) {
        // The sender lives as long as this node: there is no other end of this wait.
        let _ = self.0.state.subscribe().wait_for(|state| state.lost >= serial).await;
    }

    /// Gives up this connection together with all that is under way on it.
    ///
    /// One that had lived for a while is made anew at once, for the next call. Any other is made
    /// anew when it is asked for, with pauses if this happens again, or a server that hangs up on
    /// everybody would be called for ever.
    pub(super) fn lose(&self, serial: u64) {
        let mut again = false;
        self.0.state.send_if_modified(|state| {
            if state.lost >= serial {
                return false;
            }
            state.lost = serial;
            if let Phase::Connected { since, .. } = &state.phase
                && state.serial == serial
            {
                again = since.elapsed() >= STEADY;
                if again {
                    state.failures = 0;
                }
                if again || state.failures == 0 {
                    state.failures = state.failures.saturating_add(u32::from(!again));
                    state.phase = Phase::Apart;
                } else {
                    state.fail(Trouble::new(self.lost_text()).into());
                }
            }
            true
        });
        if again {
            self.connect();
        }
    }

    /// Lets this connection finish what is under way on it, and takes another for what comes.
    ///
    /// One that was just made is kept: the next would end at the same server, and while that is the
    /// wrong one, each call of each process would connect to it, and ask all sentinels, many times.
    pub(super) fn retire(&self, serial: u64) {
        let retired = self.0.state.send_if_modified(|state| {
            let old = matches!(&state.phase, Phase::Connected { since, .. } if since.elapsed() >= LONGEST_PAUSE);
            let held = old && state.serial == serial;
            if held {
                state.phase = Phase::Apart;
            }
            held
        });
        if retired {
            self.connect();
        }
    }

    /// What is said about a connection that broke.
    pub(super) fn lost_text(&self) -> String {
        format!("lost the connection to {}", self.name())
    }

    /// What is said about an answer to something else.
    pub(super) fn strange_text(&self) -> String {
        format!("{} has not answered what it was asked", self.name())
    }

    /// Looks at the state, and enters upon an attempt if there is reason to.
    fn look(&self) -> Found {
        let mut found = Found::Attempt { begin: None };
        self.0.state.send_if_modified(|state| {
            found = match &state.phase {
                Phase::Connected { client, .. } => {
                    Found::Connection(Connection::new(client.clone(), self.clone(), state.serial))
                }
                Phase::Connecting => Found::Attempt { begin: None },
                Phase::Pausing { until, cause } if Instant::now() < *until => {
                    Found::Failure(cause.clone())
                }
                Phase::Pausing { .. } | Phase::Apart => {
                    state.serial = state.serial.saturating_add(1);
                    state.phase = Phase::Connecting;
                    Found::Attempt { begin: Some(state.serial) }
                }
            };
            // Nobody waits for an attempt to begin.
            false
        });
        found
    }

    /// Connects in a task of its own, which goes on when those who wait have given up.
    fn begin(&self, serial: u64) {
        let attempt = Attempt { node: Arc::downgrade(&self.0), serial };
        let Ok(runtime) = Handle::try_current() else {
            return attempt.finish(Err(Trouble::new("there is no tokio runtime here")));
        };
        let dial = self.0.dial.clone();
        let task = runtime.spawn(async move {
            let lost = attempt.node.clone();
            let hang_up = move || {
                if let Some(shared) = lost.upgrade() {
                    Self(shared).lose(serial);
                }
            };
            let made = match timeout(ATTEMPT, dial.dial(hang_up)).await {
                Ok(made) => made,
                Err(_) => Err(Trouble::new(format!("no connection to {} within 1 s", dial.name()))),
            };
            attempt.finish(made);
        });
        // A poisoned lock guards a handle alone.
        let mut last = self.0.attempt.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(task.abort_handle());
    }
}

impl State {
    /// Pauses, the longer the more attempts have failed.
    fn fail(&mut self, cause: BackendError) {
        let doubled = SHORTEST_PAUSE.saturating_mul(2_u32.saturating_pow(self.failures));
        self.failures = self.failures.saturating_add(1);
        self.phase = Phase::Pausing { until: Instant::now() + doubled.min(LONGEST_PAUSE), cause };
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let attempt = self.attempt.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = attempt.take() {
            task.abort();
        }
    }
}

/// An attempt that is under way; one that is dropped, as by a runtime that ends, has failed.
struct Attempt {
    node: Weak<Shared>,
    serial: u64,
}

impl Attempt {
    fn finish(mut self, made: Result<MultiplexedConnection, Trouble>) {
        let node = mem::take(&mut self.node);
        Self::settle(&node, self.serial, made);
    }

    fn settle(node: &Weak<Shared>, serial: u64, made: Result<MultiplexedConnection, Trouble>) {
        let Some(shared) = node.upgrade() else { return };
        shared.state.send_if_modified(|state| {
            if state.serial != serial || !matches!(state.phase, Phase::Connecting) {
                return false;
            }
            match made {
                // The server may have hung up before anybody could use the connection.
                Ok(_) if state.lost >= serial => {
                    let text = format!("{} hung up at once", shared.dial.name());
                    state.fail(Trouble::new(text).into());
                }
                Ok(client) => {
                    state.phase = Phase::Connected { client, since: Instant::now() };
                }
                Err(trouble) => state.fail(trouble.into()),
            }
            true
        });
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        // `finish` has left nothing here.
        Self::settle(&self.node, self.serial, Err(Trouble::new("the tokio runtime has ended")));
    }
}

/// How long an attempt may take, name resolution, TLS and login included. A server that is there
/// answers in a few round trips; one that is not must not hold up the next attempt.
const ATTEMPT: Duration = Duration::from_secs(1);

/// The pauses after attempts that failed: long enough not to storm a server that starts, and far
/// shorter than anybody would notice that it is back.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// A connection that has lived this long is worth another at once when it breaks.
const STEADY: Duration = Duration::from_secs(1);
