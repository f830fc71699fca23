//! Where a configuration comes from: its name, its text, and the lines of the text.

use std::fmt;

/// The text of a configuration with the name that errors give.
#[derive(Debug, Default)]
pub(super) struct ConfigOrigin {
    /// The path of the file; `None` for a part of another configuration, which has no places.
    pub(super) name: Option<String>,
    pub(super) text: String,
}

impl ConfigOrigin {
    /// Where this byte of the text is.
    ///
    /// It counts from the start. So it is for errors, of which few are shown, and not for each
    /// value of a file that may be one line.
    pub(super) fn position(&self, offset: usize) -> Position {
        let before = self.text.get(..offset).unwrap_or(&self.text);
        let line = before.rsplit('\n').next().unwrap_or_default();
        let lines = before.bytes().filter(|byte| *byte == b'\n').count();
        Position { line: lines.saturating_add(1), column: line.chars().count().saturating_add(1) }
    }

    /// The byte at a line and a column that counts bytes, both from 1.
    pub(super) fn offset(&self, line: usize, column: usize) -> usize {
        let lines = self.text.split_inclusive('\n').take(line.saturating_sub(1));
        let start = lines.fold(0, |start: usize, line| start.saturating_add(line.len()));
        start.saturating_add(column.saturating_sub(1)).min(self.text.len())
    }
}

/// A place in a text, as editors show it: both numbers begin at 1, and columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}
