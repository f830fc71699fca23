//! Processes, their ports and directories, and waiting for them.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::guard::Guard;

/// Waits until a condition holds, and panics if it does not within a minute.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}: not after a minute");
        sleep(Duration::from_millis(5));
    }
}

/// A directory that is removed with this value.
#[derive(Debug)]
pub(super) struct Directory(PathBuf);

impl Directory {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
        let path = Guard::of_this_process().directory().join(name);
        // A former process with the same id may have left a directory of this name.
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// A port that is free, as is the one for the bus of a cluster, which is 10000 above it.
///
/// Both are below those that systems give to clients: no connection takes the port of a
/// server while it restarts.
pub fn free_port() -> u16 {
    let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
    for _ in 0..1_000 {
        let random = RandomState::new().hash_one(()) % 12_768;
        let port = 10_000 + u16::try_from(random).unwrap();
        if is_free(port) && is_free(port + 10_000) {
            return port;
        }
    }
    panic!("no port from 10000 to 22767 is free");
}

/// Sends a signal by its name, and says whether there is such a process.
pub(super) fn signal(pid: u32, name: &str) -> bool {
    let command = format!("kill -s {name} {pid}");
    quiet(Command::new("sh").args(["-c", &command])).status().unwrap().success()
}

/// Whether there is such a process, or what is left of it.
pub fn is_alive(pid: u32) -> bool {
    signal(pid, "0")
}

/// Reads nothing and says nothing.
pub(super) fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}
