//! A log, read line by line: no more than one line is in memory.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;

use super::line::{Entry, Lines};

/// Longer lines are broken; without a bound, a log without line ends would fill the memory.
const MAX_LINE: usize = 64 * 1024;
/// A log of which so many lines are in no format that is known is not read on.
const MAX_UNKNOWN: u64 = 10_000;
const BUFFER: usize = 1 << 16;
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// What was wrong with some lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) lines: u64,
    /// The number of the first of them, from 1.
    pub(crate) first: u64,
    /// What was wrong with the first one.
    pub(crate) reason: String,
}

impl Fault {
    pub(crate) fn count(fault: &mut Option<Self>, line: u64, reason: impl FnOnce() -> String) {
        let fault = fault.get_or_insert_with(|| Self { lines: 0, first: line, reason: reason() });
        fault.lines += 1;
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) lines: u64,
    pub(crate) broken: Option<Fault>,
}

/// Counts the bytes of a log as they are read, compressed or not.
#[derive(Debug)]
pub(crate) struct Counted<R> {
    inner: R,
    bytes: Rc<Cell<u64>>,
}

impl<R> Counted<R> {
    pub(crate) fn new(inner: R, bytes: &Rc<Cell<u64>>) -> Self {
        Self { inner, bytes: Rc::clone(bytes) }
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.bytes.set(self.bytes.get().saturating_add(u64::try_from(read).unwrap_or(0)));
        Ok(read)
    }
}

/// Unpacks a log that was packed by gzip, also if several of them are put together.
pub(crate) fn unpacked<'a>(mut log: impl Read + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    // A pipe may give the first byte alone.
    let mut magic = Vec::new();
    log.by_ref().take(2).read_to_end(&mut magic)?;
    let is_packed = magic == GZIP;
    let log = BufReader::with_capacity(BUFFER, io::Cursor::new(magic).chain(log));
    match is_packed {
        true => Ok(Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(log)))),
        false => Ok(Box::new(log)),
    }
}

/// Passes each request of a log on with the number of its line, in the order of the lines. Empty lines
/// and comments are left out.
pub(crate) fn read(
    mut log: impl BufRead,
    lines: &mut Lines,
    mut each: impl FnMut(Entry<'_>, u64) -> io::Result<()>,
) -> io::Result<Counts> {
    let mut counts = Counts::default();
    let mut line = Vec::new();
    while let Some(is_whole) = next_line(&mut log, &mut line)? {
        counts.lines += 1;
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\r', ' ']).trim_start_matches(['\u{feff}', ' ']);
        if text.is_empty() && is_whole {
            continue;
        }
        let entry = match is_whole {
            true => lines.read(text),
            false => Err(format!("longer than {MAX_LINE} bytes")),
        };
        match entry {
            Ok(Some(entry)) => each(entry, counts.lines)?,
            Ok(None) => {}
            Err(reason) => {
                Fault::count(&mut counts.broken, counts.lines, || reason);
                if lines.format().is_none() && counts.lines >= MAX_UNKNOWN {
                    break;
                }
            }
        }
    }
    Ok(counts)
}

/// The next line without its end; `false` if it was cut, and `None` at the end of the log.
fn next_line(log: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Option<bool>> {
    line.clear();
    let (mut is_whole, mut has_begun) = (true, false);
    loop {
        let filled = match log.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            filled => filled?,
        };
        if filled.is_empty() {
            return Ok(has_begun.then_some(is_whole));
        }
        has_begun = true;
        let end = filled.iter().position(|byte| *byte == b'\n');
        let part = filled.get(..end.unwrap_or(filled.len())).unwrap_or_default();
        is_whole &= line.len() + part.len() <= MAX_LINE;
        if is_whole {
            line.extend_from_slice(part);
        }
        let used = part.len() + usize::from(end.is_some());
        log.consume(used);
        if end.is_some() {
            return Ok(Some(is_whole));
        }
    }
}
