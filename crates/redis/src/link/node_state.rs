//! The connection of one node: whether there is one, and what follows when it breaks.
//!
//! # Design
//!
//! ```text
//!                  connect              the attempt succeeds
//! Disconnected ──────────────▶ Connecting ──────────────▶ Connected
//!      ▲                         ▲    │ it fails              │
//!      │      a call comes later │    ▼                       │
//!      │                         Pausing ◀────────────────────┤ lost early, again
//!      └──────────────────────────────────────────────────────┘ lost or retired
//! ```
//!
//! No task outlives its work: a call that needs a connection starts the attempt, and an idle node
//! costs nothing. Behind sentinels, a call every two seconds also starts a check in the background
//! whether the connection still leads to the master.
//!
//! Each connection has a number, its `serial`. When a connection is lost, all calls under way on it
//! learn that by its number, because the client library would let them wait without end on a silent
//! server. The number also makes late reports harmless. For example, a call on connection 3 times
//! out and reports a loss after connection 4 was made. The number is not that of the present
//! connection, so connection 4 stays.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ::redis::RedisError;
use tokio::sync::watch;
use tokio::time::Instant;

use super::dial::Dial;
use super::error::LinkError;
use super::server::CONNECT_TIMEOUT;
use super::single_flight::SingleFlight;
use super::wire::Wire;
use tollgate::backend::BackendError;
use tollgate_kit::late::patiently;

/// What all clones of a [`Node`](super::node::Node), and its connections, share.
#[derive(Debug)]
pub(super) struct NodeState {
    dial: Dial,
    within: Duration,
    connectivity: watch::Sender<Connectivity>,
    attempt: SingleFlight,
    check: SingleFlight,
    /// Since when the server decides nothing: its last answer was that it cannot yet, a connection was
    /// lost while an answer was owed, or there was none to be had.
    refusing: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct Connectivity {
    phase: Phase,
    /// The number of the last attempt, and of the connection that it made.
    serial: u64,
    /// All connections up to this number are lost, with the calls that were under way on them.
    lost: u64,
    /// How many attempts in a row have failed, or made a connection that soon broke.
    failures: u32,
}

#[derive(Debug)]
enum Phase {
    Disconnected,
    Connecting,
    Connected { wire: Wire, since: Instant, checked: Instant },
    Pausing { until: Instant, cause: BackendError },
}

/// The result of a search for the connection.
#[derive(Debug)]
pub(super) enum Lookup {
    /// A connection, and its number.
    Connection(Wire, u64),
    /// An attempt is under way: wait for a change.
    Attempt,
    /// The last attempt has just failed.
    Failure(BackendError),
}

impl NodeState {
    /// A node that is not connected yet. `within` is the time that calls report when they time out.
    pub(super) fn new(dial: Dial, within: Duration) -> Self {
        let phase = Phase::Disconnected;
        let connectivity = Connectivity { phase, serial: 0, lost: 0, failures: 0 };
        let connectivity = watch::Sender::new(connectivity);
        let (attempt, check, refusing) = Default::default();
        Self { dial, within, connectivity, attempt, check, refusing }
    }

    /// How long a call waits at most.
    pub(super) fn within(&self) -> Duration {
        self.within
    }

    /// The address of the node, for messages.
    pub(super) fn name(&self) -> &str {
        self.dial.name()
    }

    /// The host of the node, which a node that does not know it leaves out of its answers; empty
    /// for a socket.
    pub(super) fn host(&self) -> &str {
        self.dial.host()
    }

    /// Observes the connection: the result of an attempt, or a loss.
    pub(super) fn changes(&self) -> Changes {
        Changes(self.connectivity.subscribe())
    }

    /// Notes whether the server has answered that it cannot decide yet.
    pub(super) fn note_answer(&self, is_refusal: bool) {
        let mut refusing = self.refusing();
        *refusing = is_refusal.then(|| refusing.unwrap_or_else(Instant::now));
    }

    fn refusing(&self) -> MutexGuard<'_, Option<Instant>> {
        // A poisoned lock is harmless: it guards one value.
        self.refusing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an answer that decides took, or takes, as long as this for a call that began then; `None`
    /// if that is not known. Of a server that is flooded by this process, only how long it is silent now
    /// tells that.
    pub(super) fn is_late(&self, begun: Instant, time: Duration, is_flooded: bool) -> Option<bool> {
        let refusing = *self.refusing();
        if refusing.is_some_and(|since| since.elapsed() >= time) {
            return Some(true);
        }
        let state = self.connectivity.borrow();
        match &state.phase {
            Phase::Connected { wire, .. } => wire.silence().is_late(begun, time, is_flooded),
            // An attempt takes several steps, and this process is late with each.
            _ => is_flooded.then_some(false),
        }
    }

    /// The connection, if there is one. Otherwise starts an attempt, unless one is under way or the
    /// last one has just failed.
    pub(super) fn lookup(self: &Arc<Self>) -> Lookup {
        let mut lookup = Lookup::Attempt;
        let (mut start, mut check) = (None, None);
        self.connectivity.send_if_modified(|state| {
            match &mut state.phase {
                Phase::Connected { wire, checked, .. } => {
                    lookup = Lookup::Connection(wire.clone(), state.serial);
                    if self.dial.may_be_replaced() && checked.elapsed() >= CHECK_PAUSE {
                        *checked = Instant::now();
                        check = Some(state.serial);
                    }
                }
                Phase::Connecting => {}
                Phase::Pausing { until, cause } if Instant::now() < *until => {
                    lookup = Lookup::Failure(cause.clone());
                }
                Phase::Pausing { .. } | Phase::Disconnected => {
                    state.serial = state.serial.saturating_add(1);
                    state.phase = Phase::Connecting;
                    start = Some(state.serial);
                }
            }
            // The start of an attempt is no change that a call waits for.
            false
        });
        // After the unlock. Without a runtime the attempt fails in this very call, which locks the
        // state.
        if let Some(serial) = start {
            self.start(serial);
        }
        if let Some(serial) = check {
            self.check(serial);
        }
        lookup
    }

    /// Waits until the connection with this number is lost.
    pub(super) async fn loss(&self, serial: u64) {
        // The sender lives as long as this node, so the wait cannot fail.
        let _ = self.connectivity.subscribe().wait_for(|state| state.lost >= serial).await;
    }

    /// Gives up this connection together with all calls that are under way on it.
    ///
    /// One that lived for a while is replaced at once, for the next call. Any other is replaced
    /// when a call needs it, with pauses if it happens again: otherwise a server that accepts
    /// connections and closes them would be dialled without end.
    pub(super) fn lose(self: &Arc<Self>, serial: u64) {
        let mut again = false;
        self.connectivity.send_if_modified(|state| {
            // Reported before, by another call on the same connection.
            if state.lost >= serial {
                return false;
            }
            // If the attempt has not been settled, nothing else tells of the loss: `settle` looks
            // at it.
            state.lost = serial;
            if let Phase::Connected { since, wire, .. } = &state.phase
                && state.serial == serial
            {
                // Until an answer comes on another connection, this is owed.
                if let Some(owed) = wire.silence().since() {
                    self.refusing().get_or_insert(owed);
                }
                again = since.elapsed() >= STEADY;
                if again {
                    state.failures = 0;
                }
                // Only the early losses that follow the first one cause a pause.
                if again || state.failures == 0 {
                    state.failures = state.failures.saturating_add(u32::from(!again));
                    state.phase = Phase::Disconnected;
                } else {
                    state.fail(LinkError::new(self.lost_text()).into());
                }
            }
            true
        });
        // After the unlock: the lookup locks the state.
        if again {
            self.lookup();
        }
    }

    /// Lets this connection finish its calls, and takes another for the next ones.
    ///
    /// One that was just made is kept: the next would end at the same server, and while that is the
    /// wrong one, each call of each process would connect to it, and ask all sentinels, many times.
    pub(super) fn retire(self: &Arc<Self>, serial: u64) {
        self.retire_after(serial, LONGEST_PAUSE);
    }

    /// The same, if nothing was decided for a second: another server may have taken over the name or
    /// the address.
    pub(super) fn retire_unready(self: &Arc<Self>, serial: u64) {
        let since = *self.refusing();
        if since.is_some_and(|since| since.elapsed() >= UNREADY_TIMEOUT) {
            self.retire_after(serial, UNREADY_TIMEOUT);
        }
    }

    fn retire_after(self: &Arc<Self>, serial: u64, age: Duration) {
        let retired = self.connectivity.send_if_modified(|state| {
            let old =
                matches!(&state.phase, Phase::Connected { since, .. } if since.elapsed() >= age);
            let held = old && state.serial == serial;
            if held {
                // `lost` stays as it is: the calls on this connection wait for their answers.
                state.phase = Phase::Disconnected;
            }
            held
        });
        if retired {
            self.lookup();
        }
    }

    /// An error reply of the node.
    pub(super) fn reply(&self, reply: &RedisError) -> LinkError {
        self.dial.reply(reply)
    }

    /// The message about a connection that broke.
    pub(super) fn lost_text(&self) -> String {
        format!("lost the connection to {}", self.name())
    }

    /// The message about an answer that does not fit the call.
    pub(super) fn unexpected_answer_text(&self) -> String {
        format!("{} sent an answer that does not fit the call", self.name())
    }

    /// Connects in the background.
    fn start(self: &Arc<Self>, serial: u64) {
        // The task and the wire hold no handle of the node. So a node that the cluster has dropped
        // goes with its last call, and its connection with it.
        let (dial, node) = (self.dial.clone(), Arc::downgrade(self));
        let lost = Weak::clone(&node);
        let hang_up = move || {
            if let Some(node) = lost.upgrade() {
                node.lose(serial);
            }
        };
        let work = async move {
            match patiently(CONNECT_TIMEOUT, dial.dial()).await {
                Some(made) => made.inspect(|wire| wire.when_over(hang_up)),
                None => Err(LinkError::new(format!("no connection to {} within 1 s", dial.name()))),
            }
        };
        self.attempt.start(work, move |made| {
            if let Some(node) = node.upgrade() {
                node.settle(serial, made);
            }
        });
    }

    /// Replaces this connection if another server has become the master. The server that it leads to
    /// may not know that.
    fn check(self: &Arc<Self>, serial: u64) {
        let (dial, node) = (self.dial.clone(), Arc::downgrade(self));
        let work = async move { Ok(dial.is_replaced().await) };
        self.check.start(work, move |is_replaced| {
            if let (Ok(true), Some(node)) = (is_replaced, node.upgrade()) {
                node.retire(serial);
            }
        });
    }

    /// Stores the result of an attempt.
    fn settle(&self, serial: u64, made: Result<Wire, LinkError>) {
        self.connectivity.send_if_modified(|state| {
            // A later attempt has begun meanwhile, and this result is not awaited any more.
            if state.serial != serial || !matches!(state.phase, Phase::Connecting) {
                return false;
            }
            match made {
                // The server has closed the connection before a call could use it.
                Ok(_) if state.lost >= serial => {
                    let text = format!("{} closed the connection at once", self.name());
                    state.fail(LinkError::new(text).into());
                }
                Ok(wire) => {
                    // The failures still count. A server that accepts connections and closes them
                    // would otherwise be dialled without a pause: `lose` forgives them once a
                    // connection has lived.
                    let since = Instant::now();
                    state.phase = Phase::Connected { wire, since, checked: since };
                }
                Err(error) => {
                    let error = BackendError::from(error);
                    if error.is_outage() {
                        self.refusing().get_or_insert_with(Instant::now);
                    }
                    state.fail(error);
                }
            }
            true
        });
    }
}

impl Connectivity {
    /// Starts a pause, twice as long after each failure.
    fn fail(&mut self, cause: BackendError) {
        // Saturated: at more than four failures the bound decides.
        let doubled = SHORTEST_PAUSE.saturating_mul(2_u32.saturating_pow(self.failures));
        self.failures = self.failures.saturating_add(1);
        self.phase = Phase::Pausing { until: Instant::now() + doubled.min(LONGEST_PAUSE), cause };
    }
}

/// Wakes calls that wait for a connection.
#[derive(Debug)]
pub(super) struct Changes(watch::Receiver<Connectivity>);

impl Changes {
    /// Ignores earlier changes. To be called before a lookup, so that no change between the lookup
    /// and the wait is missed.
    pub(super) fn mark(&mut self) {
        self.0.mark_unchanged();
    }

    /// Waits for the next change; false if the node is gone.
    pub(super) async fn next(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

/// The pauses after failed attempts. They are long enough not to storm a server that starts, and
/// far shorter than a person would notice once it is back.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// A connection that lived this long is replaced at once when it breaks.
const STEADY: Duration = Duration::from_secs(1);

/// How long a server may answer that it cannot decide yet before its connection is replaced. It is as
/// long as a silent server is waited for, and long enough not to storm a server that loads for minutes.
const UNREADY_TIMEOUT: Duration = Duration::from_secs(1);

/// The pause between two checks. In as much time sentinels tell each other of a failover.
const CHECK_PAUSE: Duration = Duration::from_secs(2);
