//! Why a dump could not be read or written.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::VERSION;

/// Why a store could not be saved, or a dump of one not be loaded.
///
/// The message says what is wrong, at which byte, and the way out. It ends with that of the cause,
/// where there is one, so [`source`](Error::source) is `None`; [`cause`](Self::cause) returns it.
///
/// # Examples
///
/// ```
/// use tollgate::backend::Memory;
///
/// let mut dump = Vec::new();
/// Memory::new().save(&mut dump)?;
/// dump[40] ^= 1;
/// let error = Memory::new().load(dump.as_slice()).unwrap_err();
/// assert!(error.is_damaged());
/// assert_eq!(error.offset(), Some(28));
/// assert_eq!(
///     error.to_string(),
///     "the dump is damaged: the block at byte 28 does not match its check (restore an older dump, \
///      or start without one: then all buckets are full)"
/// );
/// # Ok::<(), tollgate::backend::DumpError>(())
/// ```
#[derive(Clone, Debug)]
pub struct DumpError {
    problem: DumpProblem,
    file: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub(super) enum DumpProblem {
    Read(Arc<io::Error>),
    Write(Arc<io::Error>),
    /// The file is replaced, but its entry in the folder could not be persisted.
    Persist(Arc<io::Error>),
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
    pub(super) fn read(error: io::Error) -> Self {
        Self::Read(Arc::new(error))
    }

    pub(super) fn write(error: io::Error) -> Self {
        Self::Write(Arc::new(error))
    }

    pub(super) fn persist(error: io::Error) -> Self {
        Self::Persist(Arc::new(error))
    }
}

impl DumpError {
    pub(super) const fn new(problem: DumpProblem) -> Self {
        Self { problem, file: None }
    }

    pub(super) fn in_file(problem: DumpProblem, path: &Path) -> Self {
        Self { problem, file: Some(path.to_owned()) }
    }

    /// Whether there is no file, as before the first start.
    /// [`load_or_empty`](super::super::Memory::load_or_empty) begins without one.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(&self.problem, DumpProblem::Read(error) if error.kind() == ErrorKind::NotFound)
    }

    /// Whether what was read is no whole dump: bytes have changed, are missing or are too many, or
    /// it is something else.
    #[must_use]
    pub const fn is_damaged(&self) -> bool {
        match self.problem {
            DumpProblem::Other
            | DumpProblem::Cut { .. }
            | DumpProblem::Longer { .. }
            | DumpProblem::Mismatch { .. }
            | DumpProblem::Content { .. } => true,
            DumpProblem::Read(_)
            | DumpProblem::Write(_)
            | DumpProblem::Persist(_)
            | DumpProblem::NoFolder
            | DumpProblem::DeadLink
            | DumpProblem::Newer { .. }
            | DumpProblem::OtherNames => false,
        }
    }

    /// Whether another version of this crate wrote the dump, in a way that this one cannot read.
    #[must_use]
    pub const fn is_other_version(&self) -> bool {
        matches!(self.problem, DumpProblem::Newer { .. } | DumpProblem::OtherNames)
    }

    /// The byte at which the damage was found, counted from 0: the begin of the block that has it,
    /// or the end of a dump that is cut off.
    #[must_use]
    pub const fn offset(&self) -> Option<u64> {
        match self.problem {
            DumpProblem::Other => Some(0),
            DumpProblem::Cut { at }
            | DumpProblem::Longer { at }
            | DumpProblem::Mismatch { at }
            | DumpProblem::Content { at, .. } => Some(at),
            _ => None,
        }
    }

    /// The error of the file or the stream, if that failed.
    #[must_use]
    pub fn cause(&self) -> Option<&io::Error> {
        match &self.problem {
            DumpProblem::Read(error) | DumpProblem::Write(error) | DumpProblem::Persist(error) => {
                Some(error)
            }
            _ => None,
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
