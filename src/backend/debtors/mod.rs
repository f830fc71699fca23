//! Which buckets of a limit are in debt or blocked: what a store is asked, and what it answers.

mod kind;
mod query;
mod report;
mod stored_key;
mod unknown_cursor;

#[cfg(feature = "memory")]
pub(super) use self::kind::DebtorKind;
pub use self::query::DebtorQuery;
pub use self::report::{Debtor, DebtorReport};
