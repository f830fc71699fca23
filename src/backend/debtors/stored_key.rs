//! The key of a bucket as a store has it.

use std::fmt;

use crate::backend::Key;

/// The key of a bucket, as far as its store knows it.
///
/// It is shown in the [text form](Key::to_text) of the key, or as the digest.
///
/// # Examples
///
/// ```
/// use tollgate::Key;
/// use tollgate::backend::StoredKey;
///
/// let key = StoredKey::Key(Key::from(7));
/// assert_eq!((key.to_string().as_str(), key.as_key()), ("n=7", Some(&Key::from(7))));
///
/// let hashed = StoredKey::Digest("hmac=9486dee870413ee96e370a8f3def234a".into());
/// assert_eq!(hashed.to_string(), "hmac=9486dee870413ee96e370a8f3def234a");
/// assert_eq!(hashed.as_key(), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoredKey {
    /// The key itself.
    Key(Key),
    /// A digest of the key, as in `sha256=..` or `hmac=..`: the key is too long for a name, or the
    /// store must not show which clients there are. It tells the bucket from others, and not the
    /// key: that has to be known to look at the bucket.
    Digest(Box<str>),
}

impl StoredKey {
    /// The key; `None` if the store has only a digest of it.
    #[must_use]
    pub const fn as_key(&self) -> Option<&Key> {
        match self {
            Self::Key(key) => Some(key),
            Self::Digest(_) => None,
        }
    }
}

impl fmt::Display for StoredKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => f.write_str(&key.to_text()),
            Self::Digest(digest) => f.write_str(digest),
        }
    }
}
