//! One server.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::client::{Client, Reply};
use super::guard::Guard;
use super::process::{Directory, free_port, signal, until};
use super::tls;
use crate::certificates::{CA, make_certificates};
use crate::clock::ServerClock;

/// A server that begins empty, keeps nothing on a disk, and is killed when this is dropped.
#[derive(Debug)]
pub struct Server {
    child: Mutex<Child>,
    port: u16,
    scheme: &'static str,
    args: Vec<String>,
    clock: Option<ServerClock>,
    directory: Directory,
}

impl Server {
    /// A server with the settings that it has by itself.
    #[track_caller]
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// A server with these settings, as in `--maxmemory 1mb`.
    #[track_caller]
    pub fn with(args: &[&str]) -> Self {
        Self::with_clock(args, None)
    }

    /// The same, with a clock that [can be moved](Self::set_clock).
    #[track_caller]
    pub fn with_clock(args: &[&str], clock: Option<ServerClock>) -> Self {
        Self::launch_with_clock(clock, "redis://127.0.0.1", |port, directory| {
            let port = port.to_string();
            let mut all = defaults(directory);
            all.extend(["--port", &port].iter().chain(args).map(|&arg| arg.to_owned()));
            all
        })
    }

    /// A server that speaks TLS only, with a certificate for 127.0.0.1 and `localhost`.
    #[track_caller]
    pub fn tls() -> Self {
        Self::tls_with(&[])
    }

    /// The same with these settings.
    #[track_caller]
    pub fn tls_with(args: &[[&str; 2]]) -> Self {
        Self::launch("rediss://localhost", |port, directory| {
            make_certificates(directory);
            let mut all = defaults(directory);
            all.extend(tls::args(port, directory));
            all.extend(args.as_flattened().iter().map(|&arg| arg.to_owned()));
            all
        })
    }

    /// A server on a free port, with the arguments that are made for this port and its directory.
    #[track_caller]
    pub(super) fn launch(scheme: &'static str, args: impl Fn(u16, &Path) -> Vec<String>) -> Self {
        Self::launch_with_clock(None, scheme, args)
    }

    #[track_caller]
    fn launch_with_clock(
        clock: Option<ServerClock>,
        scheme: &'static str,
        args: impl Fn(u16, &Path) -> Vec<String>,
    ) -> Self {
        let mut log = String::new();
        for _ in 0..20 {
            let (port, directory) = (free_port(), Directory::new());
            let args = args(port, directory.path());
            match spawn(&args, directory.path(), clock.as_ref()) {
                Ok(child) => {
                    let child = Mutex::new(child);
                    return Self { child, port, scheme, args, clock, directory };
                }
                Err(said) => log = said,
            }
            // Another process was quicker.
            if !log.contains("Address already in use") {
                break;
            }
        }
        panic!("a server has not started:\n{log}");
    }

    /// Where the server is, as clients are told: `redis://127.0.0.1:10000`.
    pub fn url(&self) -> String {
        format!("{}:{}", self.scheme, self.port)
    }

    /// Its port of 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id of the server.
    pub fn pid(&self) -> u32 {
        self.child.lock().unwrap().id()
    }

    /// The certificate of the authority that has signed the server's, of a server that speaks TLS.
    pub fn ca_pem(&self) -> Vec<u8> {
        fs::read(self.directory.path().join(CA)).unwrap()
    }

    /// The file that [`Server::ca_pem`] is in.
    pub fn ca_file(&self) -> PathBuf {
        self.directory.path().join(CA)
    }

    /// Kills the server, and waits until it is gone.
    pub fn kill(&self) {
        end(&mut self.child.lock().unwrap());
    }

    /// Whether the server was not killed; one that is stopped runs too.
    pub fn is_running(&self) -> bool {
        self.child.lock().unwrap().try_wait().unwrap().is_none()
    }

    /// Freezes the server: its connections stay, and it does not answer.
    pub fn stop(&self) {
        let pid = self.pid();
        assert!(signal(pid, "STOP"), "{pid} is gone");
        // Where the system tells: `pid (name) state ..`.
        until("the server is stopped", || {
            fs::read_to_string(format!("/proc/{pid}/stat"))
                .map_or(true, |stat| stat.contains(") T "))
        });
    }

    /// Goes on after [`Server::stop`].
    pub fn resume(&self) {
        assert!(signal(self.pid(), "CONT"));
    }

    /// Moves the clock of the server so many seconds ahead of that of the system.
    #[track_caller]
    pub fn set_clock(&self, seconds: i64) {
        self.clock.as_ref().expect("a server with a clock").set(seconds);
    }

    /// Kills the server if it runs, and starts an empty one on the same port.
    #[track_caller]
    pub fn restart(&self) {
        let mut child = self.child.lock().unwrap();
        end(&mut child);
        match spawn(&self.args, self.directory.path(), self.clock.as_ref()) {
            Ok(new) => *child = new,
            Err(log) => panic!("a server has not restarted:\n{log}"),
        }
    }

    /// A connection that no proxy and no TLS is between.
    #[track_caller]
    pub fn client(&self) -> Client {
        Client::unix(&socket(self.directory.path())).unwrap()
    }

    /// Asks the server, on a connection of its own.
    #[track_caller]
    pub fn command<W: AsRef<[u8]>>(&self, words: &[W]) -> Reply {
        self.client().call(words).unwrap()
    }

    /// A field of `INFO`, as in `("stats", "expired_keys")`.
    #[track_caller]
    pub fn info(&self, section: &str, field: &str) -> String {
        let info = self.command(&["INFO", section]);
        let value = |line: &str| Some(line.strip_prefix(field)?.strip_prefix(':')?.to_owned());
        let value = info.text().lines().find_map(value);
        value.unwrap_or_else(|| panic!("{section} has no {field}: {info:?}"))
    }

    /// Removes every key.
    #[track_caller]
    pub fn flush_all(&self) {
        self.command(&["FLUSHALL", "SYNC"]).ok();
    }

    /// Forgets every script.
    #[track_caller]
    pub fn script_flush(&self) {
        self.command(&["SCRIPT", "FLUSH", "SYNC"]).ok();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        end(child);
    }
}

/// What each server is told that keeps data.
fn defaults(directory: &Path) -> Vec<String> {
    let (dir, socket) = (directory.to_str().unwrap(), socket(directory));
    let args = [
        ["--bind", "127.0.0.1"],
        ["--unixsocket", socket.to_str().unwrap()],
        ["--dir", dir],
        ["--daemonize", "no"],
        ["--save", ""],
        ["--appendonly", "no"],
    ];
    args.as_flattened().iter().map(|&arg| arg.to_owned()).collect()
}

/// The socket for queries to the server: no other server can be taken for it, whatever its port.
pub(super) fn socket(directory: &Path) -> PathBuf {
    directory.join("socket")
}

/// Starts a server and waits until it answers; else, what it has logged.
#[track_caller]
fn spawn(args: &[String], directory: &Path, clock: Option<&ServerClock>) -> Result<Child, String> {
    let (log, socket) = (directory.join("log"), socket(directory));
    let output = File::create(&log).unwrap();
    let mut command = Command::new("redis-server");
    if let Some(clock) = clock {
        clock.load_into(&mut command);
    }
    command.args(args).stdin(Stdio::null()).stderr(output.try_clone().unwrap()).stdout(output);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            panic!("redis-server is missing (bash scripts/programs --install redis)")
        }
        Err(error) => panic!("redis-server cannot be started: {error}"),
    };
    Guard::of_this_process().watch(child.id());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        if child.try_wait().unwrap().is_some() {
            break;
        }
        // A server that wants a password is ready too.
        if answer(&socket).is_ok() {
            return Ok(child);
        }
        sleep(Duration::from_millis(2));
    }
    end(&mut child);
    Err(fs::read_to_string(&log).unwrap_or_default())
}

fn answer(socket: &Path) -> io::Result<Reply> {
    Client::unix(socket)?.call(&["PING"])
}

/// Kills a server, one that is stopped too.
fn end(child: &mut Child) {
    // It has exited by itself otherwise.
    drop(child.kill());
    child.wait().unwrap();
    Guard::of_this_process().forget(child.id());
}
