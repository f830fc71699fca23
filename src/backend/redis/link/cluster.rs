//! The nodes of a cluster, and which of them to ask.
//!
//! # Design
//!
//! Each master has a [`Node`] of its own, so that one which is dead or hangs holds up only the
//! calls about its own slots. Which slots those are is read from any node that answers: before the
//! first call, and again in the background when a node says that it is not the one to ask or
//! cannot be reached. Calls go on meanwhile by what was known, and follow what they are told.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::connection::{Connection, Fault};
use super::dial::{Dial, Server};
use super::node::Node;
use super::slots::Slots;
use super::trouble::Trouble;
use crate::backend::BackendError;

/// A cluster. Clones share everything.
#[derive(Clone, Debug)]
pub(super) struct Cluster(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The nodes that the user has named.
    seeds: Vec<Server>,
    /// How any node is reached, by its address.
    login: Server,
    within: Duration,
    table: watch::Sender<Table>,
    reading: Mutex<Option<AbortHandle>>,
}

#[derive(Debug)]
struct Table {
    slots: Slots,
    nodes: HashMap<String, Node>,
    /// Whether the slots are just being read.
    reading: bool,
    /// When they were read, or why they could not be.
    last: Option<(Instant, Option<BackendError>)>,
    /// How often they were read, so that each time another node is asked first.
    count: usize,
}

/// What somebody who asks for the owner of a slot finds.
enum Found {
    Owner(Node),
    Failure(BackendError),
    Unread,
}

impl Cluster {
    /// A cluster of which these nodes are known; the first has the login of all.
    pub(super) fn new(seeds: Vec<Server>, within: Duration) -> Option<Self> {
        let login = seeds.first()?.clone();
        let table = watch::Sender::new(Table {
            slots: Slots::default(),
            nodes: HashMap::new(),
            reading: false,
            last: None,
            count: 0,
        });
        let reading = Mutex::new(None);
        Some(Self(Arc::new(Shared { seeds, login, within, table, reading })))
    }

    /// What is connected to, for messages.
    pub(super) fn name(&self) -> &str {
        self.0.login.name()
    }

    /// Waits until the slots are known, or could not be read.
    pub(super) async fn ready(&self, deadline: Instant) -> Result<(), BackendError> {
        let mut table = self.0.table.subscribe();
        loop {
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
                Found::Owner(node) => return self.connection(&node, deadline).await,
                Found::Failure(cause) => return Err(cause),
                Found::Unread => self.read(),
            }
            self.change(&mut table, deadline).await?;
        }
    }

    /// A connection to this node; what is known is doubtful if there is none.
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

    /// The node at an address as nodes write it: `host:port`, or `:port` for the host of `teller`.
    pub(super) fn at(&self, address: &str, teller: &Node) -> Option<Node> {
        let (host, port) = address.rsplit_once(':')?;
        let port = port.parse().ok()?;
        let host = if host.is_empty() { teller.host() } else { host };
        let mut node = None;
        self.0.table.send_if_modified(|table| {
            node = Some(self.0.node(table, host, port));
            false
        });
        node
    }

    /// Reads the slots in the background, unless that was just done.
    pub(super) fn read(&self) {
        let mut candidates = None;
        self.0.table.send_if_modified(|table| {
            let recent = table.last.as_ref().is_some_and(|(at, _)| at.elapsed() < PAUSE);
            if !table.reading && !recent {
                table.reading = true;
                table.count = table.count.wrapping_add(1);
                candidates = Some(self.0.candidates(table));
            }
            false
        });
        let Some(candidates) = candidates else { return };
        let reading = Reading(Arc::downgrade(&self.0));
        let Ok(runtime) = Handle::try_current() else {
            return reading.finish(Err(Trouble::new("there is no tokio runtime here")));
        };
        let task = runtime.spawn(async move {
            let read = read_slots(candidates).await;
            reading.finish(read);
        });
        // A poisoned lock guards a handle alone.
        let mut last = self.0.reading.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(task.abort_handle());
    }

    fn find(&self, slot: u16) -> Found {
        let mut found = Found::Unread;
        self.0.table.send_if_modified(|table| {
            let place = table.slots.of(slot).map(|range| (range.host.clone(), range.port));
            found = match (place, &table.last) {
                (Some((host, port)), _) => Found::Owner(self.0.node(table, &host, port)),
                (None, Some((at, cause))) if !table.reading && at.elapsed() < PAUSE => {
                    let text = || format!("no node of the cluster has slot {slot}");
                    Found::Failure(cause.clone().unwrap_or_else(|| Trouble::new(text()).into()))
                }
                (None, _) => Found::Unread,
            };
            false
        });
        found
    }

    async fn change(
        &self,
        table: &mut watch::Receiver<Table>,
        deadline: Instant,
    ) -> Result<(), BackendError> {
        // The sender lives as long as this cluster, so that only the time can run out.
        match timeout_at(deadline, table.changed()).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(BackendError::timeout("redis", self.0.within)),
        }
    }
}

impl Shared {
    /// The node at this address, a new one if need be.
    fn node(&self, table: &mut Table, host: &str, port: u16) -> Node {
        let server = self.login.at(host, port);
        let new = |server| Node::new(Dial::Server(Arc::new(server)), self.within);
        let name = server.name().to_owned();
        table.nodes.entry(name).or_insert_with(|| new(server)).clone()
    }

    /// Whom to ask for the slots: another node first each time, so that none that hangs is always
    /// the first, then the replicas, and the seeds last, which may be long gone.
    fn candidates(&self, table: &Table) -> Vec<Node> {
        let mut candidates: Vec<_> = table.nodes.values().cloned().collect();
        candidates.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        if let Some(first) = table.count.checked_rem(candidates.len()) {
            candidates.rotate_left(first);
        }
        let replicas = table.slots.replicas().iter().map(|(host, port)| self.login.at(host, *port));
        for server in replicas.chain(self.seeds.iter().cloned()) {
            if !candidates.iter().any(|known| known.name() == server.name()) {
                candidates.push(Node::new(Dial::Server(Arc::new(server)), self.within));
            }
        }
        candidates
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let reading = self.reading.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = reading.take() {
            task.abort();
        }
    }
}

/// Asks one after the other until one knows.
async fn read_slots(candidates: Vec<Node>) -> Result<(Slots, Vec<Node>), Trouble> {
    let mut trouble = Trouble::new("there are no nodes to ask");
    let command = {
        let mut command = ::redis::cmd("CLUSTER");
        command.arg("SLOTS");
        command
    };
    for node in &candidates {
        let ask = async {
            let connection = node.connection(Instant::now() + ASK).await?;
            match connection.run(&command).await {
                Ok(answer) => Ok(Slots::read(answer, node.host())),
                Err(Fault::Reply(reply)) => Err(Trouble::reply(node.name(), &reply).into()),
                Err(Fault::Unknown(error)) => Err(error),
            }
        };
        trouble = match timeout(ASK, ask).await {
            Ok(Ok(Some(slots))) if !slots.is_empty() => return Ok((slots, candidates)),
            Ok(Ok(_)) => Trouble::new(format!("{} knows of no slots", node.name())),
            Ok(Err(error)) => Trouble::because("cannot read the slots of the cluster", error),
            Err(_) => Trouble::new(format!("{} did not tell the slots", node.name())),
        };
    }
    Err(trouble)
}

/// A reading that is under way; one that is dropped, as by a runtime that ends, has failed.
struct Reading(Weak<Shared>);

impl Reading {
    fn finish(mut self, read: Result<(Slots, Vec<Node>), Trouble>) {
        settle(&mem::take(&mut self.0), read);
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        // `finish` has left nothing here.
        settle(&self.0, Err(Trouble::new("the tokio runtime has ended")));
    }
}

fn settle(cluster: &Weak<Shared>, read: Result<(Slots, Vec<Node>), Trouble>) {
    let Some(shared) = cluster.upgrade() else { return };
    shared.table.send_modify(|table| {
        table.reading = false;
        match read {
            Ok((slots, asked)) => {
                let before = mem::take(&mut table.nodes);
                let known = before.into_values().chain(asked);
                let mut known: HashMap<_, _> =
                    known.map(|node| (node.name().to_owned(), node)).collect();
                for range in slots.ranges() {
                    let server = shared.login.at(&range.host, range.port);
                    if let Some(node) = known.remove(server.name()) {
                        table.nodes.insert(server.name().to_owned(), node);
                    }
                    // Connected before anybody asks.
                    shared.node(table, &range.host, range.port).connect();
                }
                table.slots = slots;
                table.last = Some((Instant::now(), None));
            }
            Err(trouble) => table.last = Some((Instant::now(), Some(trouble.into()))),
        }
    });
}

/// How long one node may take to tell the slots before the next is asked.
const ASK: Duration = Duration::from_millis(300);

/// The slots are not read more often than this, however many calls find out that they moved: a
/// cluster takes longer than that to move them.
const PAUSE: Duration = Duration::from_millis(100);
