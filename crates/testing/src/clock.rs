//! The clocks of servers, which tests move.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A library that is loaded into a server. It adds some seconds to the time that the system tells.
///
/// The C compiler makes it, which Rust needs to link anything.
#[derive(Debug)]
pub struct ServerClock {
    directory: PathBuf,
    seconds: File,
}

impl ServerClock {
    /// One that tells the time of the system.
    #[track_caller]
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tollgate-clock-{}-{nth}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        drop(fs::remove_dir_all(&directory));
        fs::create_dir_all(&directory).unwrap();
        let source = directory.join("clock.c");
        fs::write(&source, include_str!("clock.c")).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).args([&directory.join(LIBRARY), &source]);
        assert!(compiler.status().unwrap().success());
        let seconds = File::create(directory.join(SECONDS)).unwrap();
        let clock = Self { directory, seconds };
        clock.set(0);
        clock
    }

    /// Tells a time that is so many seconds ahead.
    pub fn set(&self, seconds: i64) {
        self.seconds.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }

    pub(crate) fn load_into(&self, server: &mut Command) {
        server.env("LD_PRELOAD", self.directory.join(LIBRARY));
        server.env("TOLLGATE_CLOCK", self.directory.join(SECONDS));
    }
}

impl Drop for ServerClock {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.directory));
    }
}

const LIBRARY: &str = "clock.so";
const SECONDS: &str = "seconds";
