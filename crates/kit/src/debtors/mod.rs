//! Lists of debtors, for stores that keep names: pages of a scan, and of sorted names.

mod draft;
mod sorted;

pub use self::draft::{NameParts, PageDraft};
pub use self::sorted::{KeyRange, NameRanges, SortedEntry, SortedPage, ranges_of};
