//! The requests of a log in short, in a temporary file: the search for a quota reads them many times,
//! and standard input can be read only once.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::{env, process};

use tollgate::Timestamp;

/// A request without the name of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) at: Timestamp,
    pub(crate) cost: u64,
    /// The hash of the key.
    pub(crate) key: u64,
    /// Where the windows of the key begin.
    pub(crate) phase: Timestamp,
}

const BYTES: usize = 32;

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

    pub(crate) fn write(&mut self, request: Request) -> io::Result<()> {
        let Request { at, cost, key, phase } = request;
        let [at, phase] = [at, phase].map(|time| time.as_micros().cast_unsigned());
        for part in [at, cost, key, phase] {
            self.file.write_all(&part.to_le_bytes())?;
        }
        Ok(())
    }

    /// Reads all requests from the first one on.
    pub(crate) fn read(&mut self, mut each: impl FnMut(Request)) -> io::Result<()> {
        self.file.flush()?;
        self.file.seek(SeekFrom::Start(0))?;
        let mut file = BufReader::with_capacity(1 << 16, self.file.get_ref());
        let mut bytes = [0; BYTES];
        loop {
            match file.read_exact(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                read => read?,
            }
            each(decode(&bytes));
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
    let (parts, _) = bytes.as_chunks::<8>();
    let [at, cost, key, phase] =
        std::array::from_fn(|part| parts.get(part).copied().map_or(0, u64::from_le_bytes));
    let [at, phase] = [at, phase].map(|micros| Timestamp::from_micros(micros.cast_signed()));
    Request { at, cost, key, phase }
}
