//! The names of buckets in Redis.
//!
//! A name is readable and unique: no two buckets share one, whatever clients send, nor do buckets
//! of different prefixes. Its fields are separated by `:`; the last one is the key.
//!
//! ```text
//! tollgate:per-client:ip=192.0.2.1
//! tollgate:llm-tokens#3:*
//! tollgate:{acme}:per-user:acme|alice
//! ```
//!
//! | field | what it is |
//! |---|---|
//! | `tollgate:` | the prefix: 1 to 64 letters, digits and `-_.~@+/:` |
//! | `{acme}:` | the hash tag, as [`HashTag`] says; the only braces of a name |
//! | `llm-tokens` | the name of the limit, as text; over 64 bytes, which no `Limit` has, `%sha256-..` |
//! | `#3` | the shard; the first, 0, is not written |
//! | `:` and the key | its parts, joined by a vertical bar, or `*` for the key that all requests share |
//!
//! | part of a key | as |
//! |---|---|
//! | text | letters, digits and `-_.~@+/` as they are, any other byte as `%` and two digits (`%7C`) |
//! | empty text | `text=` |
//! | a number | `n=7`, `n=-7` |
//! | bytes | `b=00ff` |
//! | an IPv4 address | `ip=192.0.2.1` |
//! | an IPv6 network | `ip=2001:db8::/64`, an address with `/128` |
//! | the mark of a fallback | `else=`, so that the fallback to `alice` is <code>else=\|alice</code> |
//!
//! Text has no `=`, so it is never taken for another part, and no `:`, so the first field with a
//! `=` begins the key.
//!
//! The key may be replaced by 32 hexadecimal digits, 128 bits of a hash of [`Key::as_bytes`]:
//!
//! * `sha256=..` when the name would exceed 200 bytes, so that long keys of clients do not grow the
//!   store. The tag is hashed by itself when it would exceed 64.
//! * `hmac=..` always when there is a secret (HMAC-SHA-256), so that the store has no personal
//!   data. A tag made of a key's first part is then the hash of that part.
//!
//! The time at which a store was initialized is kept under `tollgate:#init`, or
//! `tollgate:#init:{n}` for each slot of a cluster. No name of a limit begins with `#`, as text
//! does not contain it.

mod hash_tag;
mod read;
pub mod slot;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

pub use self::hash_tag::HashTag;
pub use self::writer::KeyName;
use tollgate::backend::{BucketId, Key};
use tollgate::kit::KeySink as _;
use tollgate::kit::{Part, next_part};

/// The naming scheme of a store.
#[derive(Clone)]
pub struct KeyNames {
    /// The start of all names: the prefix, and a tag that they share.
    head: Box<[u8]>,
    /// The start of the names of initialization keys.
    init: Box<[u8]>,
    by_first_part: bool,
    /// Keyed with the secret.
    hasher: Option<Hmac<Sha256>>,
}

impl KeyNames {
    /// A scheme with this prefix. With a secret, names have hashes in place of keys.
    ///
    /// # Errors
    ///
    /// A sentence about the prefix or the secret that does not fit.
    pub fn untagged(prefix: String, secret: Option<&[u8]>) -> Result<Self, String> {
        if !is_plain(&prefix) {
            return Err(unfit("prefix", &prefix));
        }
        let head = format!("{prefix}:");
        Self::with_head(prefix, head, false, secret)
    }

    /// A scheme with this prefix and tag. With a secret, names have hashes in place of keys.
    ///
    /// # Errors
    ///
    /// A sentence about the prefix, the tag or the secret that does not fit.
    pub fn new(prefix: String, tag: HashTag, secret: Option<&[u8]>) -> Result<Self, String> {
        if !is_plain(&prefix) {
            return Err(unfit("prefix", &prefix));
        }
        let (head, by_first_part) = match tag {
            HashTag::Bucket => (format!("{prefix}:"), false),
            HashTag::FirstPart => (format!("{prefix}:"), true),
            HashTag::Fixed(tag) if is_plain(&tag) => (format!("{prefix}:{{{tag}}}:"), false),
            HashTag::Fixed(tag) => return Err(unfit("hash tag", &tag)),
        };
        Self::with_head(prefix, head, by_first_part, secret)
    }

    fn with_head(
        prefix: String,
        head: String,
        by_first_part: bool,
        secret: Option<&[u8]>,
    ) -> Result<Self, String> {
        Ok(Self {
            head: head.into_bytes().into(),
            init: format!("{prefix}:#init").into_bytes().into(),
            by_first_part,
            hasher: secret.map(keyed).transpose()?,
        })
    }

    /// The name of a bucket.
    #[inline]
    pub fn name(&self, id: BucketId<'_>) -> KeyName {
        let mut name = KeyName::new(&self.head);
        if self.by_first_part
            && let Some(first) = first_part(id.key())
        {
            name.push(b'{');
            self.write_key(&mut name, first, MAX_TAG);
            name.extend(b"}:");
        }
        name.limit(id.limit());
        name.shard(id.shard_index());
        let room = MAX_NAME.saturating_sub(name.len());
        self.write_key(&mut name, id.key().as_bytes(), room);
        name.complete()
    }

    /// The name of the key that holds when the store was initialized: one for all buckets, or on a
    /// cluster one in the slot of this bucket.
    pub fn init_key(&self, of: &KeyName, cluster: bool) -> KeyName {
        let mut name = KeyName::new(&self.init);
        if cluster {
            name.extend(b":{");
            name.number(u64::from(slot::number_in(of.slot())));
            name.push(b'}');
        }
        name.complete()
    }

    /// Writes a key, or the first part of one, in no more than `room` bytes unless it is a hash.
    #[inline]
    fn write_key(&self, name: &mut KeyName, key: &[u8], room: usize) {
        if let Some(hasher) = &self.hasher {
            // A copy of the keyed state, which saves deriving it from the secret for each name.
            let mut hasher = hasher.clone();
            hasher.update(key);
            name.hash(b"hmac=", &hasher.finalize().into_bytes().into());
            return;
        }
        let before = name.len();
        // Written first and cut off if it is too long, as nearly all keys fit.
        if !name.key(key, before.saturating_add(room)) {
            name.truncate(before);
            name.hash(b"sha256=", &Sha256::digest(key).into());
        }
    }
}

/// The secret is not shown.
impl fmt::Debug for KeyNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyNames")
            .field("head", &String::from_utf8_lossy(&self.head))
            .field("by_first_part", &self.by_first_part)
            .field("hashed", &self.hasher.is_some())
            .finish_non_exhaustive()
    }
}

/// The bytes of a key's first part. The mark of a fallback does not count as a part, because a
/// tenant's fallbacks belong to the tenant.
#[inline]
fn first_part(key: &Key) -> Option<&[u8]> {
    let mut bytes = key.as_bytes();
    loop {
        let (part, after) = next_part(bytes)?;
        if !matches!(part, Part::Fallback) {
            return bytes.get(..bytes.len().saturating_sub(after.len()));
        }
        bytes = after;
    }
}

fn keyed(secret: &[u8]) -> Result<Hmac<Sha256>, String> {
    let short = || {
        format!(
            "the secret to hash keys with has {} bytes (use at least {MIN_SECRET}, drawn at random)",
            secret.len()
        )
    };
    if secret.len() < MIN_SECRET {
        return Err(short());
    }
    Hmac::new_from_slice(secret).map_err(|_| short())
}

fn unfit(what: &str, given: &str) -> String {
    format!(
        "{what} {given:?} cannot be part of a name (use 1 to {MAX_PLAIN} letters, digits \
         and {OTHER_PLAIN})"
    )
}

fn is_plain(text: &str) -> bool {
    let plain = |byte| tollgate::kit::is_plain(byte) || byte == b':';
    (1..=MAX_PLAIN).contains(&text.len()) && text.bytes().all(plain)
}

const OTHER_PLAIN: &str = "`-_.~@+/:`";
const MAX_PLAIN: usize = 64;
const MAX_NAME: usize = 200;
const MAX_TAG: usize = 64;
const MIN_SECRET: usize = 16;
