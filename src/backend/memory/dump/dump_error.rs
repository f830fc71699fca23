//! Why a dump could not be read or written.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::VERSION;

/// Why a store could not be saved, or a dump of one not be loaded, in the words of an [`io::Error`].
///
/// The message says what is wrong, at which byte, and the way out. It ends with that of the cause,
/// where there is one, so [`source`](Error::source) is `None`.
#[derive(Debug)]
pub(super) struct DumpError {
    problem: DumpProblem,
    file: Option<PathBuf>,
}

#[derive(Debug)]
pub(super) enum DumpProblem {
    Read(io::Error),
    Write(io::Error),
    /// The file is replaced, but its entry in the folder could not be persisted.
    Persist(io::Error),
    /// There is no file, nor a folder that could have it.
    NoFolder,
    /// There is a link where the file should be, and no file to which it leads.
    DeadLink,
    /// It does not begin as a dump does.
    Other,
    Newer {
        version: u32,
    },
    /// It ends before its end mark.
    Cut {
        at: u64,
    },
    /// It goes on after its end mark.
    Longer {
        at: u64,
    },
    /// A block is not what was written.
    Mismatch {
        at: u64,
    },
    /// A block has a check that is right, and a content that no store writes.
    Content {
        at: u64,
        what: &'static str,
    },
    /// Another build names buckets by other hashes.
    OtherNames,
}

impl DumpProblem {
    pub(super) fn into_io(self, file: Option<&Path>) -> io::Error {
        let error = DumpError { problem: self, file: file.map(Path::to_owned) };
        io::Error::new(error.kind(), error)
    }
}

impl DumpError {
    fn kind(&self) -> ErrorKind {
        match &self.problem {
            DumpProblem::Read(error) | DumpProblem::Write(error) | DumpProblem::Persist(error) => {
                error.kind()
            }
            // No first start, which is what a file is that is not found.
            DumpProblem::NoFolder | DumpProblem::DeadLink => ErrorKind::Other,
            DumpProblem::Newer { .. } | DumpProblem::OtherNames => ErrorKind::Unsupported,
            DumpProblem::Other
            | DumpProblem::Cut { .. }
            | DumpProblem::Longer { .. }
            | DumpProblem::Mismatch { .. }
            | DumpProblem::Content { .. } => ErrorKind::InvalidData,
        }
    }
}

impl fmt::Display for DumpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |f: &mut fmt::Formatter<'_>| match &self.file {
            Some(path) => write!(f, "the dump `{}`", path.display()),
            None => f.write_str("the dump"),
        };
        match &self.problem {
            DumpProblem::Read(error) => {
                f.write_str("cannot read ")?;
                name(f)?;
                write!(f, ": {error}")?;
                return match error.kind() {
                    ErrorKind::NotFound => f.write_str(" (`load_or_empty` begins without one)"),
                    _ => Ok(()),
                };
            }
            DumpProblem::Write(error) => {
                f.write_str("cannot write ")?;
                name(f)?;
                write!(f, ": {error}")?;
                return match self.file {
                    Some(_) => f.write_str(" (the dump before it is unchanged)"),
                    None => Ok(()),
                };
            }
            _ => name(f)?,
        }
        match &self.problem {
            DumpProblem::Read(_) | DumpProblem::Write(_) => Ok(()),
            DumpProblem::Persist(error) => write!(
                f,
                " is written, but its folder could not be synced: {error} (save again: until then, \
                 a crash of the machine may restore the dump before it)"
            ),
            DumpProblem::NoFolder => f.write_str(
                " cannot be written: its folder does not exist (create it, or name another)",
            ),
            DumpProblem::DeadLink => {
                f.write_str(" is a dangling link (restore its target, or remove it)")
            }
            DumpProblem::Other => write!(
                f,
                " is not a dump of a memory store: it does not begin with `tollgate memory` (name \
                 another file{WITHOUT}"
            ),
            DumpProblem::Newer { version } => write!(
                f,
                " has the format {version}, written by a newer version of tollgate, and this one \
                 reads the format {VERSION} (go back to that version{WITHOUT}"
            ),
            DumpProblem::OtherNames => write!(
                f,
                " was written by a version of tollgate that names buckets by other hashes (go \
                 back to that version{WITHOUT}"
            ),
            DumpProblem::Cut { at } => {
                write!(f, " is damaged: it ends at byte {at}, before its end mark{OLDER}")
            }
            DumpProblem::Longer { at } => {
                write!(f, " is damaged: it goes on at byte {at}, after its end mark{OLDER}")
            }
            DumpProblem::Mismatch { at } => {
                write!(f, " is damaged: the block at byte {at} does not match its check{OLDER}")
            }
            DumpProblem::Content { at, what } => {
                write!(f, " is damaged: the block at byte {at} {what}{OLDER}")
            }
        }
    }
}

impl Error for DumpError {}

const OLDER: &str = " (restore an older dump, or start without one: then all buckets are full)";
const WITHOUT: &str = ", or start without a dump: then all buckets are full)";
