//! Which buckets of a limit are in debt or blocked: what a store is asked, and what it answers.

mod cursor;
#[cfg(any(feature = "redis", feature = "postgres", feature = "embedded", feature = "optimistic"))]
mod draft;
mod kind;
mod query;
mod report;
#[cfg(any(feature = "postgres", feature = "embedded", feature = "optimistic"))]
mod sorted;
mod stored_key;

pub use self::cursor::DebtorCursor;
#[cfg(any(
    feature = "redis",
    feature = "postgres",
    feature = "embedded",
    feature = "optimistic"
))]
pub(super) use self::draft::NameParts;
#[cfg(feature = "redis")]
pub(super) use self::draft::PageDraft;
pub use self::kind::DebtorKind;
pub use self::query::DebtorQuery;
pub use self::report::{DebtorBucket, DebtorCount, DebtorPage, DebtorReport};
#[cfg(any(feature = "postgres", feature = "embedded"))]
pub(super) use self::sorted::KeyRange;
#[cfg(feature = "embedded")]
pub(super) use self::sorted::SortedEntry;
#[cfg(any(feature = "postgres", feature = "embedded", feature = "optimistic"))]
pub(super) use self::sorted::{NameRanges, SortedPage, ranges_of};
pub use self::stored_key::StoredKey;
