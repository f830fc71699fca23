//! The key of a bucket as a store has it.

use std::fmt;

use crate::backend::Key;

/// The key of a bucket, as far as its store knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoredKey {
    Key(Key),
    Digest(Box<str>),
}

impl fmt::Display for StoredKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => f.write_str(&key.to_text()),
            Self::Digest(digest) => f.write_str(digest),
        }
    }
}
