//! A file that is replaced in one step.
//!
//! # Design
//!
//! The new content goes to a draft beside the file, which is persisted, and then renamed to the
//! name of the file. So that name leads to the whole old content or to the whole new one at any
//! time.
//!
//! **Drafts do not pile up.** A process that is killed leaves its draft. Each replacement removes the
//! drafts of its file to which nothing was written for [`ABANDONED`], by the clock of the file
//! system. A process that stood still for longer, and then renames a draft that is gone, gets an
//! error, and the file stays as it was.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::dump_error::DumpProblem;

/// The end of the name of a draft.
const DRAFT: &str = ".draft";

/// How long nothing was written to a draft that no process works on any more.
const ABANDONED: Duration = Duration::from_secs(600);

/// Replaces a file by what `fill` writes, or leaves it as it is. Only after the error
/// [`Persist`](DumpProblem::Persist) has it the new content.
pub(super) fn replace(
    path: &Path,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), DumpProblem> {
    let (target, draft, mut file) = begin(path).map_err(DumpProblem::Write)?;
    let replaced =
        fill(&mut file).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&draft, &target));
    if replaced.is_err() {
        // If it cannot be removed, the next replacement tries again.
        drop(fs::remove_file(&draft));
    }
    replaced.map_err(DumpProblem::Write)?;
    persist_entry(&target).map_err(DumpProblem::Persist)
}

/// The file that is to be replaced, and its draft.
fn begin(path: &Path) -> io::Result<(PathBuf, PathBuf, File)> {
    let target = target_of(path)?;
    let draft = draft_of(&target);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(&draft)?;
    drop(remove_abandoned(&target, &file));
    Ok((target, draft, file))
}

/// The folder of a file.
pub(super) fn folder_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// The file that is to be replaced: that to which a link leads, if the path is one.
fn target_of(path: &Path) -> io::Result<PathBuf> {
    let target = match fs::symlink_metadata(path) {
        Ok(entry) if entry.file_type().is_symlink() => fs::canonicalize(path)?,
        _ => path.to_owned(),
    };
    match fs::metadata(&target) {
        // A device or a folder must not be replaced by a file.
        Ok(entry) if entry.is_dir() => {
            Err(io::Error::new(ErrorKind::IsADirectory, "it is a folder (name a file in it)"))
        }
        Ok(entry) if !entry.is_file() => {
            Err(io::Error::new(ErrorKind::InvalidInput, "it is no ordinary file (name another)"))
        }
        _ if target.file_name().is_none() => {
            Err(io::Error::new(ErrorKind::InvalidInput, "it has no file name (name a file)"))
        }
        _ => Ok(target),
    }
}

/// A name that no other draft has: two processes may write at the same time, also with the same
/// identifier in two containers.
fn draft_of(target: &Path) -> PathBuf {
    static DRAFTS: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let nth = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let mut name = OsString::from(target);
    name.push(format!(".{}-{since}-{nth}{DRAFT}", process::id()));
    PathBuf::from(name)
}

/// Removes the drafts that killed processes have left long before this one was made. What cannot be
/// removed stays: it takes space and harms nothing.
fn remove_abandoned(target: &Path, draft: &File) -> io::Result<()> {
    let now = draft.metadata()?.modified()?;
    for entry in fs::read_dir(folder_of(target))?.flatten() {
        let age = || now.duration_since(entry.metadata().ok()?.modified().ok()?).ok();
        if is_draft_of(target, &entry.path()) && age().is_some_and(|age| age > ABANDONED) {
            drop(fs::remove_file(entry.path()));
        }
    }
    Ok(())
}

fn is_draft_of(target: &Path, path: &Path) -> bool {
    let names = target.file_name().zip(path.file_name());
    let Some((target, name)) = names.map(|(a, b)| (a.as_encoded_bytes(), b.as_encoded_bytes()))
    else {
        return false;
    };
    let rest = name.strip_prefix(target).and_then(|rest| rest.strip_prefix(b"."));
    let numbers = rest.and_then(|rest| rest.strip_suffix(DRAFT.as_bytes()));
    numbers.is_some_and(|numbers| {
        let mut parts = numbers.split(|byte| *byte == b'-');
        let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
        parts.clone().count() == 3 && parts.all(is_number)
    })
}

/// Persists the entry of the file in its folder. Otherwise the old content could be back after the
/// machine has crashed.
fn persist_entry(target: &Path) -> io::Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    File::open(folder_of(target))?.sync_all()
}
