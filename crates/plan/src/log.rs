//! A log, read line by line: no more than one line is in memory.

use std::io::{self, BufRead};

use tollgate::Timestamp;

use super::line::{Entry, Fields};

/// Longer lines are broken; without a bound, a log without line ends would fill the memory.
const MAX_LINE: usize = 64 * 1024;

/// What was wrong with some lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) lines: u64,
    /// The number of the first of them, from 1.
    pub(crate) first: u64,
    /// What was wrong with the first one.
    pub(crate) reason: String,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Read {
    pub(crate) lines: u64,
    pub(crate) broken: Option<Fault>,
    /// Lines that are earlier than one before them. They count, at the latest time so far, as a
    /// limiter's clock does not go back.
    pub(crate) early: Option<Fault>,
}

/// Passes each request of a log on, in the order of the lines; empty lines are left out.
pub(crate) fn read(
    mut log: impl BufRead,
    fields: &Fields,
    mut each: impl FnMut(Entry<'_>) -> io::Result<()>,
) -> io::Result<Read> {
    let mut read = Read::default();
    let mut latest: Option<Timestamp> = None;
    let mut line = Vec::new();
    while let Some(is_whole) = next_line(&mut log, &mut line)? {
        read.lines += 1;
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        if text.is_empty() && is_whole {
            continue;
        }
        let entry = match is_whole {
            true => fields.read(text),
            false => Err(format!("longer than {MAX_LINE} bytes")),
        };
        let mut entry = match entry {
            Ok(entry) => entry,
            Err(reason) => {
                count(&mut read.broken, read.lines, || reason);
                continue;
            }
        };
        if let Some(latest) = latest.filter(|latest| entry.at < *latest) {
            count(&mut read.early, read.lines, || format!("{} is before {latest}", entry.at));
            entry.at = latest;
        }
        latest = Some(entry.at);
        each(entry)?;
    }
    Ok(read)
}

fn count(fault: &mut Option<Fault>, line: u64, reason: impl FnOnce() -> String) {
    let fault = fault.get_or_insert_with(|| Fault { lines: 0, first: line, reason: reason() });
    fault.lines += 1;
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
        let part = &filled[..end.unwrap_or(filled.len())];
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
