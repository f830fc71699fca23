//! Tallies over time, in a bounded number of rows.

use std::collections::BTreeMap;

use tollgate::Timestamp;

use super::replay::Tally;

/// More rows than this are put together.
pub(crate) const MAX_ROWS: i64 = 512;

/// Each is a multiple of the one before it, so that rows can be put together.
const WIDTHS: [i64; 11] = [1, 5, 15, 60, 300, 900, 3_600, 10_800, 21_600, 43_200, DAY];
const DAY: i64 = 86_400;

/// A row for each so many seconds in which there was a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Series {
    /// Seconds.
    pub(crate) width: i64,
    /// By the number of the row since 1970.
    pub(crate) rows: BTreeMap<i64, Tally>,
}

impl Series {
    pub(crate) fn new() -> Self {
        Self { width: 1, rows: BTreeMap::new() }
    }

    /// The row of a time.
    pub(crate) fn at(&mut self, at: Timestamp) -> &mut Tally {
        let row = loop {
            let row = at.as_unix_seconds().div_euclid(self.width);
            let first = self.rows.first_key_value().map_or(row, |(first, _)| row.min(*first));
            let last = self.rows.last_key_value().map_or(row, |(last, _)| row.max(*last));
            if last.saturating_sub(first) < MAX_ROWS {
                break row;
            }
            self.widen();
        };
        self.rows.entry(row).or_default()
    }

    /// The same in fewer rows.
    pub(crate) fn within(&self, max_rows: i64) -> Self {
        let mut series = self.clone();
        while series.span() > max_rows {
            series.widen();
        }
        series
    }

    /// How many rows there are, with those that had no request.
    pub(crate) fn span(&self) -> i64 {
        match (self.rows.first_key_value(), self.rows.last_key_value()) {
            (Some((first, _)), Some((last, _))) => last.saturating_sub(*first).saturating_add(1),
            _ => 0,
        }
    }

    /// When a row begins, in words.
    pub(crate) fn begin(&self, row: i64) -> String {
        let begin = Timestamp::from_unix_seconds(row.saturating_mul(self.width)).to_string();
        let length = if self.width < 60 { 19 } else { 16 };
        begin.get(..length).unwrap_or(&begin).replace('T', " ")
    }

    /// `hour`, or `5 minutes`.
    pub(crate) fn unit(&self) -> String {
        let (unit, seconds) = match self.width {
            width if width >= DAY => ("day", DAY),
            width if width >= 3_600 => ("hour", 3_600),
            width if width >= 60 => ("minute", 60),
            _ => ("second", 1),
        };
        match self.width / seconds {
            1 => unit.to_owned(),
            several => format!("{several} {unit}s"),
        }
    }

    fn widen(&mut self) {
        let old = self.width;
        let next = WIDTHS.into_iter().find(|width| *width > old);
        self.width = next.unwrap_or(old.saturating_mul(2));
        let mut rows: BTreeMap<i64, Tally> = BTreeMap::new();
        for (row, tally) in &self.rows {
            let row = row.saturating_mul(old).div_euclid(self.width);
            rows.entry(row).or_default().merge(*tally);
        }
        self.rows = rows;
    }
}
