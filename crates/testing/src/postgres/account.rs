//! The account that the server runs as: PostgreSQL refuses to run as root.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// An account that is not root's.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Account {
    uid: u32,
    gid: u32,
}

impl Account {
    /// The account to run a server as: `postgres` or `nobody` if this process is root's, and
    /// otherwise none, so that the server has that of this process.
    #[track_caller]
    pub(super) fn choose() -> Option<Self> {
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            return None;
        }
        let known = fs::read_to_string("/etc/passwd").unwrap();
        let find = |name: &str| {
            let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
            let entry = known.lines().map(fields).find(|fields| fields[0] == name)?;
            Some(Self { uid: entry[2].parse().unwrap(), gid: entry[3].parse().unwrap() })
        };
        Some(find("postgres").or_else(|| find("nobody")).expect("no account but root's"))
    }

    /// Gives a directory to this account.
    pub(super) fn own(self, directory: &Path) {
        std::os::unix::fs::chown(directory, Some(self.uid), Some(self.gid)).unwrap();
    }

    /// Lets a program run as this account.
    pub(super) fn run(self, command: &mut Command) {
        command.uid(self.uid).gid(self.gid);
    }
}
