//! Saving the buckets, and going on with them in another store.

mod errors;
mod files;
mod killed;
mod old_dump;
mod under_load;
mod waiters;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use tollgate::backend::Memory;
use tollgate::{DAY, Limit, Quota, RateLimiter, Timestamp};
use tollgate_testing::at_once;

/// It gains its next tokens in 2216.
pub(crate) static HOARD: Limit = Limit::new("hoard", ERA.capacity(CAPACITY));

const ERA: Quota = Quota::fixed_window(1, DAY.saturating_mul(90_000)).start(Timestamp::UNIX_EPOCH);
const CAPACITY: u64 = 100_000;

fn dump_of(memory: &Memory) -> Vec<u8> {
    let mut dump = Vec::new();
    memory.save(&mut dump).unwrap();
    dump
}

/// What a key has taken of [`HOARD`].
fn taken(limiter: &RateLimiter, key: u64) -> u64 {
    CAPACITY - at_once(limiter.peek(&HOARD).key(key)).unwrap().remaining()
}

/// A folder of its own for a test, removed afterwards.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static FOLDERS: AtomicU64 = AtomicU64::new(0);
        let nth = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tollgate-dump-{}-{nth}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("limits.dump")
    }

    /// Makes a file one to which nothing was written for so long.
    fn age(&self, name: &str, age: Duration) {
        let file = File::options().write(true).open(self.0.join(name)).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    }

    /// The names of all that is in it.
    fn names(&self) -> Vec<String> {
        names(&self.0)
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}
