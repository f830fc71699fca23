//! PgBouncer in transaction mode, before a server.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::server::{Guard, Server, watch};

/// A pooler that gives each transaction one of two connections to the server.
#[derive(Debug)]
pub struct Pooler {
    port: u16,
    child: Child,
    /// Closed by the end of this process.
    guard: Guard,
}

impl Pooler {
    /// Starts one before this server, and waits until it takes connections.
    #[track_caller]
    pub fn before(server: &Server) -> Self {
        let (account, directory) = server.place();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let users = directory.join("users");
        fs::write(&users, "\"app\" \"\"\n").unwrap();
        let settings = directory.join("pgbouncer.ini");
        let text = format!(
            "[databases]\npostgres = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {}\n\
             pool_mode = transaction\ndefault_pool_size = 2\nmax_client_conn = 100\n",
            server.port(),
            users.display(),
        );
        fs::write(&settings, text).unwrap();
        let mut command = Command::new("/usr/sbin/pgbouncer");
        command.arg(&settings).current_dir(directory).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(account) = account {
            account.run(&mut command);
        }
        let child = command.spawn();
        let child = child.expect("pgbouncer is missing (bash scripts/programs --install postgres)");
        let guard = watch(child.id(), Path::new(""));
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "pgbouncer has not started");
            sleep(Duration::from_millis(5));
        }
        Self { port, child, guard }
    }

    /// The port of 127.0.0.1 on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        self.guard.has_ended();
    }
}
