//! Sentinels, the master that they watch, and its replica.

use std::fs;

use super::client::Reply;
use super::process::until;
use super::server::{Server, socket};

const NAME: &str = "tollgate";

/// A master, a replica, and three sentinels, two of which have to agree that the master is down.
///
/// A master that is replaced while it runs is made a replica after some eight seconds only; until
/// then it takes writes, which are lost.
#[derive(Debug)]
pub struct Sentinels {
    servers: [Server; 2],
    sentinels: [Server; 3],
}

impl Sentinels {
    /// All five, when the replica has what the master has, and all sentinels know all others.
    #[track_caller]
    pub fn start() -> Self {
        // A replica does not wait for more to come.
        let settings = ["--repl-diskless-sync-delay", "0"];
        let master = Server::with(&settings);
        let port = master.port().to_string();
        let replica = Server::with(&[&settings[..], &["--replicaof", "127.0.0.1", &port]].concat());
        until("the replica is in sync", || {
            replica.info("replication", "master_link_status") == "up"
                && master.info("replication", "slave0").contains("state=online")
        });
        // Now they find the replica the first time that they ask, and not ten seconds later.
        let sentinels = [(); 3].map(|()| sentinel(&port));
        for sentinel in &sentinels {
            until("a sentinel knows the others and the replica", || knows_all(sentinel));
        }
        Self { servers: [master, replica], sentinels }
    }

    /// Where the sentinels are.
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Server::url).collect()
    }

    /// One of the three sentinels.
    pub fn sentinel(&self, nth: usize) -> &Server {
        &self.sentinels[nth]
    }

    /// The name that the sentinels know the master by.
    pub fn master_name(&self) -> &'static str {
        NAME
    }

    /// The port of the master, as the first sentinel says that runs.
    #[track_caller]
    pub fn master(&self) -> u16 {
        master_by(self.sentinels.iter().find(|sentinel| sentinel.is_running()).unwrap())
    }

    /// The server that the sentinels take for the master.
    #[track_caller]
    pub fn master_server(&self) -> &Server {
        let port = self.master();
        self.servers.iter().find(|server| server.port() == port).unwrap()
    }

    /// The server that the sentinels do not take for the master.
    #[track_caller]
    pub fn other_server(&self) -> &Server {
        let port = self.master();
        self.servers.iter().find(|server| server.port() != port).unwrap()
    }

    /// Kills the master, and returns its port; see [`Sentinels::until_replaced`].
    #[track_caller]
    pub fn kill_master(&self) -> u16 {
        let master = self.master_server();
        master.kill();
        master.port()
    }

    /// Has the sentinels replace the master while it runs, and waits until they have. Returns the
    /// port that was its.
    #[track_caller]
    pub fn failover(&self) -> u16 {
        let old = self.master();
        until("a sentinel can begin", || {
            let reply = self.sentinels[0].command(&["SENTINEL", "FAILOVER", NAME]);
            // It may not have heard from the replica lately.
            !matches!(reply, Reply::Error(_))
        });
        self.until_replaced(old);
        old
    }

    /// Waits until all sentinels that run have another master than this, and it agrees.
    #[track_caller]
    pub fn until_replaced(&self, old: u16) {
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_running()) {
            until("a sentinel knows the new master", || master_by(sentinel) != old);
        }
        let role = role(self.master_server());
        assert_eq!(role.list()[0].text(), "master");
    }

    /// Makes the former master a replica of the new one at once, as sentinels do later.
    #[track_caller]
    pub fn until_obeyed(&self) {
        until("the old master obeys the new one", || {
            let (old, port) = (self.other_server(), self.master().to_string());
            let role = role(old);
            let obeys =
                role.list()[0].text() == "slave" && role.list()[2].int().to_string() == port;
            if !obeys {
                // Whether it was heard is seen the next time.
                drop(old.client().call(&["REPLICAOF", "127.0.0.1", &port]));
            }
            obeys
        });
    }
}

/// What a server says that it is. Sentinels hang up its clients when they make it something else.
#[track_caller]
fn role(server: &Server) -> Reply {
    let mut role = None;
    until("a server tells its role", || {
        role = server.client().call(&["ROLE"]).ok();
        role.is_some()
    });
    role.unwrap()
}

/// A sentinel, which writes into its settings what it learns.
#[track_caller]
fn sentinel(master: &str) -> Server {
    Server::launch("redis://127.0.0.1", |port, directory| {
        let (dir, socket) = (directory.display(), socket(directory));
        let settings = format!(
            "port {port}\n\
             bind 127.0.0.1\n\
             dir {dir}\n\
             unixsocket {}\n\
             sentinel monitor {NAME} 127.0.0.1 {master} 2\n\
             sentinel down-after-milliseconds {NAME} 500\n\
             sentinel failover-timeout {NAME} 3000\n",
            socket.display(),
        );
        let file = directory.join("sentinel.conf");
        fs::write(&file, settings).unwrap();
        vec![file.to_str().unwrap().to_owned(), "--sentinel".to_owned()]
    })
}

#[track_caller]
fn master_by(sentinel: &Server) -> u16 {
    let address = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]);
    u16::try_from(address.list()[1].int()).unwrap()
}

fn knows_all(sentinel: &Server) -> bool {
    let known = |of: &str| sentinel.command(&["SENTINEL", of, NAME]).list().len();
    let master = sentinel.command(&["SENTINEL", "MASTER", NAME]);
    let is_up = master.list().windows(2).any(|pair| match pair {
        [field, value] => (field.text(), value.text()) == ("flags", "master"),
        _ => false,
    });
    is_up && known("REPLICAS") == 1 && known("SENTINELS") == 2
}
