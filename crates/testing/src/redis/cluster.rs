//! A cluster with slots that can be moved.

use super::client::Reply;
use super::process::until;
use super::server::Server;

const SLOTS: usize = 16_384;

/// Masters without replicas, which share the slots evenly.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
    ids: Vec<String>,
}

impl Cluster {
    /// A cluster of so many nodes, all of which know that it is complete.
    #[track_caller]
    pub fn start(masters: usize) -> Self {
        let settings = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
        let nodes: Vec<_> = (0..masters).map(|_| Server::with(&settings)).collect();
        let ask = |node: &Server, words: &[&str]| node.command(&[&["CLUSTER"], words].concat());
        let ids = nodes.iter().map(|node| ask(node, &["MYID"]).text().to_owned()).collect();
        for (nth, node) in nodes.iter().enumerate() {
            // Nodes that begin with one epoch would spend a while on agreeing about others.
            ask(node, &["SET-CONFIG-EPOCH", &(nth + 1).to_string()]).ok();
            let (first, end) = (SLOTS * nth / masters, SLOTS * (nth + 1) / masters);
            // Redis 6.2 takes no ranges.
            let slots: Vec<_> = (first..end).map(|slot| slot.to_string()).collect();
            let slots = slots.iter().map(String::as_str);
            ask(node, &std::iter::once("ADDSLOTS").chain(slots).collect::<Vec<_>>()).ok();
            for other in &nodes[..nth] {
                ask(node, &["MEET", "127.0.0.1", &other.port().to_string()]).ok();
            }
        }
        let cluster = Self { nodes, ids };
        cluster.until_complete();
        cluster
    }

    /// Where all nodes are.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    /// All nodes.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// A node, by its place in [`Cluster::nodes`].
    pub fn node(&self, nth: usize) -> &Server {
        &self.nodes[nth]
    }

    /// Waits until every node knows all others, and that each slot has an owner.
    #[track_caller]
    pub fn until_complete(&self) {
        let known = format!("cluster_known_nodes:{}\r\n", self.nodes.len());
        for node in &self.nodes {
            until("a node knows that its cluster is complete", || {
                let info = node.command(&["CLUSTER", "INFO"]);
                let has = |line| info.text().contains(line);
                has("cluster_state:ok\r\n") && has("cluster_slots_ok:16384\r\n") && has(&known)
            });
        }
        let owners: Vec<_> = self.nodes.iter().map(|node| self.owners(node)).collect();
        assert!(owners.iter().all(|of_node| *of_node == owners[0]), "{owners:?}");
    }

    /// The slot of a key.
    #[track_caller]
    pub fn slot_of(&self, key: impl AsRef<[u8]>) -> u16 {
        let slot = self.running().command(&[&b"CLUSTER"[..], b"KEYSLOT", key.as_ref()]);
        u16::try_from(slot.int()).unwrap()
    }

    /// The node that owns a slot, according to the first node that runs.
    #[track_caller]
    pub fn node_of_slot(&self, slot: u16) -> usize {
        self.owner(self.running(), slot)
    }

    /// Moves a slot with its keys.
    #[track_caller]
    pub fn move_slot(&self, slot: u16, from: usize, to: usize) {
        self.begin_move(slot, from, to);
        self.move_keys(slot, from, to);
        self.finish_move(slot, from, to);
    }

    /// Begins to move a slot: new keys go to one node, and the other still answers for the keys
    /// that it has.
    #[track_caller]
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) {
        self.set_slot(to, slot, &["IMPORTING", &self.ids[from]]);
        self.set_slot(from, slot, &["MIGRATING", &self.ids[to]]);
    }

    /// Moves the keys of a slot until there are none; the move of the slot must have begun.
    #[track_caller]
    pub fn move_keys(&self, slot: u16, from: usize, to: usize) {
        while self.move_some_keys(slot, from, to, 100) > 0 {}
    }

    /// Moves this number of keys at most, and says how many.
    #[track_caller]
    pub fn move_some_keys(&self, slot: u16, from: usize, to: usize, most: usize) -> usize {
        let mut client = self.nodes[from].client();
        let (slot, most) = (slot.to_string(), most.to_string());
        let keys = client.call(&["CLUSTER", "GETKEYSINSLOT", &slot, &most]).unwrap();
        let port = self.nodes[to].port().to_string();
        let mut command: Vec<_> = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"]
            .map(|word| word.as_bytes().to_vec())
            .into();
        command.extend(keys.list().iter().map(|key| key.bytes().to_vec()));
        if !keys.list().is_empty() {
            // `NOKEY` where all have expired meanwhile.
            let moved = client.call(&command).unwrap();
            assert!(["OK", "NOKEY"].contains(&moved.text()), "{moved:?}");
        }
        keys.list().len()
    }

    /// Tells all nodes which of them owns a slot after its keys were moved.
    #[track_caller]
    pub fn finish_move(&self, slot: u16, from: usize, to: usize) {
        let others = (0..self.nodes.len()).filter(|&nth| nth != from && nth != to);
        // First the two nodes between which keys could be lost.
        for node in [to, from].into_iter().chain(others) {
            self.set_slot(node, slot, &["NODE", &self.ids[to]]);
        }
        for node in &self.nodes {
            until("a node knows the owner of the slot", || self.owner(node, slot) == to);
        }
    }

    #[track_caller]
    fn set_slot(&self, node: usize, slot: u16, words: &[&str]) {
        let slot = slot.to_string();
        self.nodes[node].command(&[&["CLUSTER", "SETSLOT", &slot], words].concat()).ok();
    }

    #[track_caller]
    fn running(&self) -> &Server {
        self.nodes.iter().find(|node| node.is_running()).unwrap()
    }

    #[track_caller]
    fn owner(&self, node: &Server, slot: u16) -> usize {
        let owners = self.owners(node);
        owners.into_iter().find(|(first, last, _)| (first..=last).contains(&&slot)).unwrap().2
    }

    /// The slots that have an owner, as first, last, and the node; as one of them says.
    #[track_caller]
    fn owners(&self, node: &Server) -> Vec<(u16, u16, usize)> {
        let slots = node.command(&["CLUSTER", "SLOTS"]);
        let mut owners: Vec<_> = slots
            .list()
            .iter()
            .map(|range| {
                let [first, last, master, ..] = range.list() else { panic!("{slots:?}") };
                let id = master.list()[2].text();
                let number = |reply: &Reply| u16::try_from(reply.int()).unwrap();
                let nth = self.ids.iter().position(|other| other == id).unwrap();
                (number(first), number(last), nth)
            })
            .collect();
        owners.sort_unstable();
        owners
    }
}
