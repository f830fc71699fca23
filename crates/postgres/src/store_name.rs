//! The name of the store.

/// The store, for errors.
pub(super) const STORE: &str = "postgres";
