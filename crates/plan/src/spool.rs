//! The requests of a log in short, in a temporary file: the search for a quota reads them many times,
//! and standard input can be read only once.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::{env, process};

use tollgate::Timestamp;

/// A time, a cost and the number of a key.
pub(crate) type Request = (Timestamp, u64, u32);

const BYTES: usize = 20;

#[derive(Debug)]
pub(crate) struct Spool {
    file: BufWriter<File>,
    /// Where the system does not remove open files.
    left_over: Option<PathBuf>,
}

impl Spool {
    /// An empty file in the directory for temporary files (`TMPDIR`), for this process alone.
    pub(crate) fn new() -> io::Result<Self> {
        for attempt in 0.. {
            let path = env::temp_dir().join(format!("tollgate-plan-{}-{attempt}", process::id()));
            match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => {
                    // Removed at once, so that nothing is left if the program is stopped. The open
                    // file remains readable.
                    let left_over = fs::remove_file(&path).is_err().then_some(path);
                    return Ok(Self { file: BufWriter::new(file), left_over });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        unreachable!("one of the names is free")
    }

    pub(crate) fn write(&mut self, (at, cost, key): Request) -> io::Result<()> {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&at.as_micros().to_le_bytes());
        bytes[8..16].copy_from_slice(&cost.to_le_bytes());
        bytes[16..].copy_from_slice(&key.to_le_bytes());
        self.file.write_all(&bytes)
    }

    /// Reads all requests from the first one on, until `each` answers `false`.
    pub(crate) fn read(&mut self, mut each: impl FnMut(Request) -> bool) -> io::Result<()> {
        self.file.flush()?;
        self.file.seek(SeekFrom::Start(0))?;
        let mut file = BufReader::with_capacity(1 << 16, self.file.get_ref());
        let mut bytes = [0; BYTES];
        loop {
            match file.read_exact(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                read => read?,
            }
            if !each(decode(&bytes)) {
                return Ok(());
            }
        }
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if let Some(path) = &self.left_over {
            // It is in the directory for temporary files, which the system clears.
            let _ = fs::remove_file(path);
        }
    }
}

fn decode(bytes: &[u8; BYTES]) -> Request {
    let part = |begin: usize| u64::from_le_bytes(std::array::from_fn(|at| bytes[begin + at]));
    let key = u32::from_le_bytes(std::array::from_fn(|at| bytes[16 + at]));
    (Timestamp::from_micros(part(0).cast_signed()), part(8), key)
}
