//! A page of a store whose names are sorted.

use std::fmt::Write as _;

use super::draft::{NameParts, PageDraft};

use tollgate::backend::{BackendError, BucketRecord};
use tollgate::backend::{DebtorQuery, DebtorReport};
use tollgate::clock::Timestamp;

/// The two ranges in which the names of a limit lie, in the order of their bytes, each from its first
/// end to before its second: those of its shards but the first, and those of its first shard.
pub type NameRanges = [[Vec<u8>; 2]; 2];

/// The ranges of the names that begin with this, `#` and a shard, or `:`.
pub fn ranges_of(start: &[u8]) -> NameRanges {
    let end = |separator: u8| [start, &[separator]].concat();
    [[b'#', b'$'], [b':', b';']].map(|range| range.map(end))
}

/// Names that are still to be looked at, in one of the two ranges.
#[derive(Clone, Debug)]
pub struct KeyRange {
    /// Which of the two.
    nth: usize,
    pub first: Vec<u8>,
    pub behind: Vec<u8>,
}

impl KeyRange {
    fn whole(ranges: &NameRanges, nth: usize) -> Option<Self> {
        let [first, behind] = ranges.get(nth)?.clone();
        Some(Self { nth, first, behind })
    }

    /// The range behind a name: none lies between one and the same with a zero byte.
    fn after_name(mut self, mut name: Vec<u8>) -> Self {
        name.push(0);
        self.first = name;
        self
    }

    /// The range of a cursor: a whole one, or what is behind a name, which the cursor has in digits
    /// from the start of its range on. `None` if there is no such cursor.
    fn of_cursor(ranges: &NameRanges, cursor: &str) -> Option<Self> {
        let Some((nth, digits)) = cursor.split_once('.') else {
            return Self::whole(ranges, cursor.parse().ok()?);
        };
        let range = Self::whole(ranges, nth.parse().ok()?)?;
        let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
        let byte = |pair: &[u8; 2]| {
            let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
            u8::try_from(high?.checked_mul(16)?.checked_add(low?)?).ok()
        };
        let bytes = pairs.iter().map(byte).collect::<Option<Vec<_>>>()?;
        let name = [&*range.first, &bytes].concat();
        rest.is_empty().then(|| range.after_name(name))
    }

    /// The cursor of a name in this range.
    fn cursor(&self, ranges: &NameRanges, name: &[u8]) -> String {
        let start = ranges.get(self.nth).map_or(0, |[first, _]| first.len());
        let mut text = format!("{}.", self.nth);
        for byte in name.get(start..).unwrap_or_default() {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

/// A page that a store fills from its ranges, step by step.
#[derive(Debug)]
pub struct SortedPage {
    ranges: NameRanges,
    draft: PageDraft,
    /// Where the next step begins; `None` at the end.
    place: Option<KeyRange>,
    next: Option<String>,
}

/// A name, and what it and its value say; `None` if that is no bucket of the limit.
pub type SortedEntry = (Vec<u8>, Option<(NameParts, BucketRecord)>);

impl SortedPage {
    /// An empty page that begins where the query says.
    ///
    /// # Errors
    ///
    /// If that is not a cursor.
    pub fn new(
        store: &'static str,
        query: &DebtorQuery,
        ranges: NameRanges,
    ) -> Result<Self, BackendError> {
        let place = match query.get_after() {
            None => KeyRange::whole(&ranges, 0),
            Some(cursor) => {
                let unknown = || BackendError::unknown_cursor(store, cursor);
                Some(KeyRange::of_cursor(&ranges, cursor).ok_or_else(unknown)?)
            }
        };
        Ok(Self { ranges, draft: PageDraft::new(query.clone()), place, next: None })
    }

    pub const fn query(&self) -> &DebtorQuery {
        self.draft.query()
    }

    /// Where the next step begins; `None` if the page is full, or all was looked at.
    pub fn place(&self) -> Option<&KeyRange> {
        self.place.as_ref().filter(|_| !self.draft.is_full())
    }

    /// Takes what a step has found from its place on, in order. `last` is the last name that it has
    /// looked at; `None` if it has come to the end of the range.
    pub fn take(
        &mut self,
        entries: impl IntoIterator<Item = SortedEntry>,
        last: Option<Vec<u8>>,
        now: Timestamp,
    ) {
        let Some(range) = self.place.take() else { return };
        let mut last = last;
        let mut rest = entries.into_iter().peekable();
        while let Some((name, bucket)) = rest.next() {
            if let Some((parts, record)) = bucket {
                self.draft.take(parts, record, now);
            }
            if self.draft.is_full() && rest.peek().is_some() {
                last = Some(name);
                break;
            }
        }
        (self.next, self.place) = match last {
            Some(last) => (Some(range.cursor(&self.ranges, &last)), Some(range.after_name(last))),
            None => {
                let following = KeyRange::whole(&self.ranges, range.nth.saturating_add(1));
                // A whole range: the shortest name is its very start.
                (following.as_ref().map(|range| range.nth.to_string()), following)
            }
        };
    }

    /// The page, with each bucket as it stands at this time.
    pub fn finish(self, at: Timestamp) -> DebtorReport {
        self.draft.finish(at, self.next)
    }
}
