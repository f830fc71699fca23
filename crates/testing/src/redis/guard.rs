//! Kills servers that their test could not kill.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock};

use super::process::quiet;

/// Reads the ids of processes until the pipe is closed, then kills them.
const SCRIPT: &str = r#"
alive=
while read -r verb pid; do
    kept=
    for one in $alive; do [ "$one" = "$pid" ] || kept="$kept $one"; done
    alive=$kept
    [ "$verb" = forget ] || alive="$alive $pid"
done
for one in $alive; do kill -s KILL "$one"; done
rm -rf "$1"
"#;

/// A process that kills what it watches, and removes a directory, as soon as this value is dropped or
/// its process has ended, in whatever way: what a `static` holds is never dropped, nor is anything in
/// a process that is killed.
#[derive(Debug)]
pub struct Guard {
    tell: Mutex<Option<ChildStdin>>,
    shell: Child,
    directory: PathBuf,
}

impl Guard {
    /// The guard of this process.
    pub(super) fn of_this_process() -> &'static Self {
        static GUARD: OnceLock<Guard> = OnceLock::new();
        GUARD.get_or_init(|| {
            let name = format!("tollgate-{}", std::process::id());
            Self::new(&std::env::temp_dir().join(name))
        })
    }

    /// A guard that makes this directory.
    pub fn new(directory: &Path) -> Self {
        std::fs::create_dir_all(directory).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "guard"]).arg(directory);
        // A signal that interrupts the tests does not interrupt the guard.
        let command = quiet(&mut command).stdin(Stdio::piped()).process_group(0);
        let mut shell = command.spawn().unwrap();
        let tell = Mutex::new(shell.stdin.take());
        Self { tell, shell, directory: directory.to_owned() }
    }

    /// The directory that it removes.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Kills this process in the end.
    pub fn watch(&self, pid: u32) {
        self.say("watch", pid);
    }

    /// Lets this process live after all, which has ended.
    pub fn forget(&self, pid: u32) {
        self.say("forget", pid);
    }

    fn say(&self, verb: &str, pid: u32) {
        let mut tell = self.tell.lock().unwrap();
        tell.as_mut().unwrap().write_all(format!("{verb} {pid}\n").as_bytes()).unwrap();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.tell.get_mut().unwrap().take();
        self.shell.wait().unwrap();
    }
}
