//! The nodes of a cluster, and which of them has a slot.
//!
//! # Design
//!
//! Each master has a [`Node`] of its own, so a dead node holds up only the calls about its own
//! slots.
//!
//! The slots are read before the first call, and again in the background when a node redirects a
//! call or cannot be reached. Meanwhile, calls use the slots as they were last read, and follow
//! redirections. One reading is under way at a time, and the next one starts 100 ms later at the
//! earliest, however many calls find that a slot has moved.
//!
//! A reading asks some nodes in turn. Different readings begin with different nodes, so a few nodes
//! that hang do not stop all readings.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::address::is_host;
use super::address_map::AddressMap;
use super::call::Connection;
use super::dial::Dial;
use super::error::LinkError;
use super::node::Node;
use super::node_state::NodeState;
use super::server::Server;
use super::single_flight::SingleFlight;
use super::slot_map::SlotMap;
use super::slot_query::read_slots;
use tollgate::backend::BackendError;

/// A cluster. Clones share everything.
#[derive(Clone, Debug)]
pub(super) struct Cluster(Arc<ClusterShared>);

#[derive(Debug)]
struct ClusterShared {
    /// The nodes that the user has named.
    seeds: Vec<Server>,
    /// The login that all nodes share; the address is replaced.
    login: Server,
    /// Where the nodes are reached that others name.
    map: AddressMap,
    within: Duration,
    table: watch::Sender<ClusterTable>,
    reading: SingleFlight,
    /// The calls that are with another node than the slots say, or were lately.
    detours: Mutex<Vec<DetourRecord>>,
}

#[derive(Debug)]
struct DetourRecord {
    slot: u16,
    node: Node,
    ended: Option<Instant>,
}

/// A call that another node was named for.
pub(super) struct Detour {
    cluster: Arc<ClusterShared>,
    slot: u16,
    node: Node,
}

impl Drop for Detour {
    fn drop(&mut self) {
        let mut detours = self.cluster.detours();
        let is_this = |one: &&mut DetourRecord| {
            one.ended.is_none() && one.slot == self.slot && one.node.is(&self.node)
        };
        if let Some(one) = detours.iter_mut().find(is_this) {
            one.ended = Some(Instant::now());
        }
    }
}

#[derive(Debug)]
struct ClusterTable {
    slots: SlotMap,
    nodes: HashMap<String, Node>,
    /// The nodes that only a redirection has named, in this order.
    strays: VecDeque<String>,
    /// Whether the slots are being read.
    reading: bool,
    /// When the last reading ended, with its error if it failed.
    last: Option<(Instant, Option<BackendError>)>,
    /// The number of readings. Each begins with another node.
    count: usize,
}

/// The result of a search for the master of a slot.
enum OwnerLookup {
    Owner(Node),
    Failure(BackendError),
    Unread,
}

impl Cluster {
    /// A cluster with these known nodes; the first has the login of all.
    pub(super) fn new(seeds: Vec<Server>, map: AddressMap, within: Duration) -> Option<Self> {
        let login = seeds.first()?.clone();
        let table = watch::Sender::new(ClusterTable {
            slots: SlotMap::default(),
            nodes: HashMap::new(),
            strays: VecDeque::new(),
            reading: false,
            last: None,
            count: 0,
        });
        let (reading, detours) = Default::default();
        let shared = ClusterShared { seeds, login, map, within, table, reading, detours };
        Some(Self(Arc::new(shared)))
    }

    /// The name of the cluster, for messages.
    pub(super) fn name(&self) -> &str {
        self.0.login.name()
    }

    /// Waits until the slots are known or cannot be read.
    pub(super) async fn ready(&self, deadline: Instant) -> Result<(), BackendError> {
        let mut table = self.0.table.subscribe();
        loop {
            // Before the look, so that a reading that ends in between ends the wait.
            table.mark_unchanged();
            self.read();
            {
                let table = table.borrow();
                match &table.last {
                    _ if !table.slots.is_empty() => return Ok(()),
                    Some((_, Some(cause))) if !table.reading => return Err(cause.clone()),
                    _ => {}
                }
            }
            self.change(&mut table, deadline).await?;
        }
    }

    /// A connection to the master of a slot.
    pub(super) async fn owner(
        &self,
        slot: u16,
        deadline: Instant,
    ) -> Result<Connection, BackendError> {
        let mut table = self.0.table.subscribe();
        loop {
            table.mark_unchanged();
            match self.find(slot) {
                OwnerLookup::Owner(node) => return self.connection(&node, deadline).await,
                OwnerLookup::Failure(cause) => return Err(cause),
                OwnerLookup::Unread => self.read(),
            }
            self.change(&mut table, deadline).await?;
        }
    }

    /// Notes that a call about this slot goes to a node that another one has named, until the returned
    /// value is dropped.
    pub(super) fn detour(&self, slot: u16, node: &Node) -> Detour {
        let mut detours = self.0.detours();
        // Callers look back no further than their deadline.
        let is_over = |ended: Instant| ended.elapsed() > self.0.within.saturating_mul(2);
        detours.retain(|one| !one.ended.is_some_and(is_over));
        detours.push(DetourRecord { slot, node: node.clone(), ended: None });
        Detour { cluster: Arc::clone(&self.0), slot, node: node.clone() }
    }

    /// As [`NodeState::is_late`], for the master of a slot, and for the nodes to which calls about it were
    /// redirected since then.
    pub(super) fn is_late(
        &self,
        slot: u16,
        begun: Instant,
        time: Duration,
        is_flooded: bool,
    ) -> Option<bool> {
        let is_meant =
            |one: &&DetourRecord| one.slot == slot && one.ended.is_none_or(|ended| ended >= begun);
        let detours: Vec<Node> =
            self.0.detours().iter().filter(is_meant).map(|one| one.node.clone()).collect();
        for node in detours {
            match node.is_late(begun, time, is_flooded) {
                Some(false) => {}
                is_late => return is_late,
            }
        }
        match self.find(slot) {
            OwnerLookup::Owner(node) => node.is_late(begun, time, is_flooded),
            // No node says who has it. A first reading takes several steps, and this process is late with
            // each.
            OwnerLookup::Failure(_) | OwnerLookup::Unread => {
                let has_failed = self.0.table.borrow().last.is_some();
                (has_failed || is_flooded).then_some(has_failed)
            }
        }
    }

    /// A connection to this node. If there is none, the slots are read again, because the node may
    /// be gone.
    pub(super) async fn connection(
        &self,
        node: &Node,
        deadline: Instant,
    ) -> Result<Connection, BackendError> {
        let connection = node.connection(deadline).await;
        if connection.is_err() {
            self.read();
        }
        connection
    }

    /// The first slot of the master that comes behind the one with this slot.
    pub(super) fn next_master(&self, slot: u16) -> Option<u16> {
        self.0.table.borrow().slots.next_master(slot)
    }

    /// The number of known nodes.
    #[cfg(test)]
    pub(super) fn known_nodes(&self) -> usize {
        self.0.table.borrow().nodes.len()
    }

    /// The nodes that a reading asks for the slots, in this order.
    #[cfg(test)]
    pub(super) fn asked_in_turn(&self, turn: usize) -> Vec<String> {
        let mut asked = Vec::new();
        self.0.table.send_if_modified(|table| {
            table.count = turn;
            asked = self.0.candidates(table).iter().map(|node| node.name().to_owned()).collect();
            false
        });
        asked
    }

    /// The node at an address as nodes write it: `host:port`, or `:port` for the host of the node
    /// that wrote it.
    pub(super) fn node_at(&self, address: &str, sender: &NodeState) -> Option<Node> {
        let (host, port) = address.rsplit_once(':')?;
        let port = port.parse().ok()?;
        let host = match host {
            "" => sender.host(),
            host if is_host(host) => host,
            _ => return None,
        };
        let (host, port) = self.0.map.map(host, port).ok()?;
        let mut node = None;
        // For its lock, as in `find` and `read`: no call waits for a new node.
        self.0.table.send_if_modified(|table| {
            node = Some(self.0.stray(table, &host, port));
            false
        });
        node
    }

    /// Reads the slots in the background, unless that was done just now.
    pub(super) fn read(&self) {
        let mut candidates = None;
        self.0.table.send_if_modified(|table| {
            let recent = table.last.as_ref().is_some_and(|(at, _)| at.elapsed() < READ_PAUSE);
            if !table.reading && !recent {
                // Under the lock of the table: of all calls that find the slots outdated, one
                // starts a reading. `settle` clears it in every case, as `SingleFlight` promises;
                // if it did not, the slots would never be read again.
                table.reading = true;
                table.count = table.count.wrapping_add(1);
                candidates = Some(self.0.candidates(table));
            }
            false
        });
        // The reading starts after the unlock. Without a runtime it fails in this very call, and
        // `settle` locks the table.
        let Some(candidates) = candidates else { return };
        // The task must not keep the cluster alive: the last handle, when it is dropped, ends the
        // task.
        let cluster = Arc::downgrade(&self.0);
        self.0.reading.start(read_slots(candidates), move |read| settle(&cluster, read));
    }

    fn find(&self, slot: u16) -> OwnerLookup {
        let mut owner = OwnerLookup::Unread;
        self.0.table.send_if_modified(|table| {
            let place = table.slots.master(slot).map(|range| (range.host.clone(), range.port));
            owner = match (place, &table.last) {
                (Some((host, port)), _) => OwnerLookup::Owner(self.0.node(table, &host, port)),
                // Fails at once while the last reading is recent, since waiting for the next would
                // end in the same answer for many calls.
                (None, Some((at, cause))) if !table.reading && at.elapsed() < READ_PAUSE => {
                    let text = || format!("no node of the cluster has slot {slot}");
                    OwnerLookup::Failure(
                        cause.clone().unwrap_or_else(|| LinkError::new(text()).into()),
                    )
                }
                (None, _) => OwnerLookup::Unread,
            };
            false
        });
        owner
    }

    async fn change(
        &self,
        table: &mut watch::Receiver<ClusterTable>,
        deadline: Instant,
    ) -> Result<(), BackendError> {
        // The sender lives as long as this cluster, so only the time can run out.
        match timeout_at(deadline, table.changed()).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(BackendError::timeout("redis", self.0.within)),
        }
    }
}

impl ClusterShared {
    /// A poisoned lock is harmless: nothing panics while it is held.
    fn detours(&self) -> MutexGuard<'_, Vec<DetourRecord>> {
        self.detours.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node at this address; made if it is not known.
    fn node(&self, table: &mut ClusterTable, host: &str, port: u16) -> Node {
        let server = self.login.with_host(host, port);
        if let Some(node) = table.nodes.get(server.name()) {
            return node.clone();
        }
        let node = self.find_or_make(table, server);
        table.nodes.insert(node.name().to_owned(), node.clone());
        node
    }

    /// The node that a redirection names, which may be unknown. A node that redirects to ever
    /// different addresses does not fill the memory: the oldest of them is forgotten.
    fn stray(&self, table: &mut ClusterTable, host: &str, port: u16) -> Node {
        let before = table.nodes.len();
        let node = self.node(table, host, port);
        if table.nodes.len() > before {
            table.strays.push_back(node.name().to_owned());
            if table.strays.len() > MOST_STRAYS
                // Calls that hold this node still finish on it.
                && let Some(oldest) = table.strays.pop_front()
            {
                table.nodes.remove(&oldest);
            }
        }
        node
    }

    /// The nodes to ask for the slots, in this order: some masters and replicas, different ones
    /// each time so that hung nodes are not always among them; the node to which a call was
    /// redirected last; and the seeds, which may be gone.
    fn candidates(&self, table: &ClusterTable) -> Vec<Node> {
        let is_stray = |node: &&Node| table.strays.iter().any(|stray| stray == node.name());
        let mut masters: Vec<_> = table.nodes.values().filter(|node| !is_stray(node)).collect();
        // A map has no order of its own, and the turns have to go round the same list.
        masters.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        let masters = rotate(&masters, table.count, MASTERS_TO_ASK);
        let mut candidates: Vec<_> = masters.map(|&node| node.clone()).collect();
        let replicas = rotate(table.slots.replicas(), table.count, REPLICAS_TO_ASK)
            .map(|(host, port)| self.login.with_host(host, *port));
        // Not added to the table: replicas have no slots, and what has none is not kept.
        let others = replicas.map(|server| self.find_or_make(table, server));
        let stray = table.strays.back().and_then(|name| table.nodes.get(name)).cloned();
        let seeds = self.seeds.iter().map(|server| self.find_or_make(table, server.clone()));
        for node in others.chain(stray).chain(seeds) {
            if !candidates.iter().any(|known| known.name() == node.name()) {
                candidates.push(node);
            }
        }
        candidates
    }

    /// The node of this server, or a new one that is not in the table yet.
    fn find_or_make(&self, table: &ClusterTable, server: Server) -> Node {
        match table.nodes.get(server.name()) {
            Some(node) => node.clone(),
            None => Node::new(Dial::Server(Arc::new(server)), self.within),
        }
    }
}

/// Up to `most` of these items, the next ones in each turn. For example, of 7 items and with `most`
/// 3, turn 0 gives the items 0 to 2, turn 1 gives 3 to 5, and turn 2 gives 6, 0 and 1.
fn rotate<T>(all: &[T], turn: usize, most: usize) -> impl Iterator<Item = &T> {
    let step = if all.len() > most { most } else { 1 };
    let first = turn.wrapping_mul(step).checked_rem(all.len()).unwrap_or_default();
    all.iter().cycle().skip(first).take(most.min(all.len()))
}

/// Stores the result of a reading.
fn settle(cluster: &Weak<ClusterShared>, read: Result<(SlotMap, Vec<Node>), LinkError>) {
    let Some(shared) = cluster.upgrade() else { return };
    let read = read.and_then(|(slots, asked)| Ok((slots.mapped(&shared.map)?, asked)));
    shared.table.send_modify(|table| {
        table.reading = false;
        match read {
            Ok((slots, asked)) => {
                // Keep the nodes that are still in use, with their connections, and drop the
                // others.
                let before = mem::take(&mut table.nodes);
                // A node that was asked is that of the table, or one that the table lacks: its
                // connection is kept as well, if it has slots.
                let known = before.into_values().chain(asked);
                let mut known: HashMap<_, _> =
                    known.map(|node| (node.name().to_owned(), node)).collect();
                // A stray that has slots by this reading stays as one of the nodes, and the others
                // go.
                table.strays.clear();
                for range in slots.ranges() {
                    let server = shared.login.with_host(&range.host, range.port);
                    if let Some(node) = known.remove(server.name()) {
                        table.nodes.insert(server.name().to_owned(), node);
                    }
                    // A hostile answer may name a thousand masters. The rest are connected to when
                    // a call needs them.
                    let is_early = table.nodes.len() < EARLY_CONNECTIONS;
                    let node = shared.node(table, &range.host, range.port);
                    // Connects before a call needs it.
                    if is_early {
                        node.connect();
                    }
                }
                table.slots = slots;
                table.last = Some((Instant::now(), None));
            }
            Err(error) => table.last = Some((Instant::now(), Some(error.into()))),
        }
    });
}

/// How many masters and replicas are asked for the slots before the seeds. If none of them answers,
/// that takes two seconds.
const MASTERS_TO_ASK: usize = 5;
const REPLICAS_TO_ASK: usize = 2;

/// How many nodes are connected to before a call needs them.
const EARLY_CONNECTIONS: usize = 64;

/// How many nodes are kept that only a redirection has named, until the slots are read again.
const MOST_STRAYS: usize = 64;

/// The pause between two readings. A cluster takes longer than this to move a slot.
const READ_PAUSE: Duration = Duration::from_millis(100);
