//! The creation of a file, in one step for all that can see it.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Creates a file that does not exist, or leaves the one that another process creates meanwhile.
///
/// `fill` writes the content to a draft beside the file. The draft is then linked under the name of
/// the file. So a process that is killed while it fills the draft leaves no half of a file under
/// that name, which nothing could open.
pub(super) fn create<E: From<io::Error>>(
    path: &Path,
    fill: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    let draft = draft_of(path);
    let created = fill(&draft).and_then(|()| Ok(publish(&draft, path)?));
    // After a rename it is gone. If it cannot be removed, it takes space and harms nothing.
    drop(fs::remove_file(&draft));
    created
}

/// A name that no other draft has: two processes may create the file at the same time, also with
/// the same identifier in two containers.
fn draft_of(path: &Path) -> PathBuf {
    static DRAFTS: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let nth = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}-{since}-{nth}.new", process::id()));
    PathBuf::from(name)
}

fn publish(draft: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(draft, path) {
        // A link never replaces a file. The other process has created the same content.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        // Some file systems have no links. A rename replaces a file, hence the second look: two
        // processes that create it at once could pass it both, and the first one's decisions of
        // this instant would be lost.
        Err(_) if !path.exists() => fs::rename(draft, path),
        answer => answer,
    }?;
    persist_entry(path)
}

/// Persists the entry of a new file in its directory. Otherwise the file could be gone after the
/// machine has crashed.
fn persist_entry(path: &Path) -> io::Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}
