//! Reading the names of the buckets of a limit.

use super::{KeyName, KeyNames};
use crate::debtors::NameParts;
use crate::debtors::{NameRanges, ranges_of};
use tollgate::backend::{BucketId, Key};

impl KeyNames {
    /// What this name of a bucket of the limit says; `None` for any other name.
    pub fn read(&self, limit: &str, name: &[u8]) -> Option<NameParts> {
        let mut rest = name.strip_prefix(&*self.head)?;
        if self.by_first_part && rest.starts_with(b"{") {
            // A tag has neither brace nor colon.
            let end = rest.windows(2).position(|pair| pair == b"}:")?;
            (_, rest) = rest.split_at_checked(end.checked_add(2)?)?;
        }
        let rest = str::from_utf8(rest.strip_prefix(KeyName::of_limit(limit).as_ref())?).ok()?;
        // Neither a limit nor a shard has a colon, and nor has the text of a limit a `#`.
        let (shard, key) = match rest.strip_prefix('#') {
            Some(rest) => {
                let (shard, key) = rest.split_once(':')?;
                (shard.parse().ok()?, key)
            }
            None => (0, rest.strip_prefix(':')?),
        };
        if is_digest(key) {
            return Some(NameParts { key: Err(key.into()), shard });
        }
        let key = Key::from_text(key).ok()?;
        // The text form allows for other spellings, and so for names that are not ours.
        let is_its_name = self.name(BucketId::new(limit, &key).shard(shard)).as_ref() == name;
        is_its_name.then_some(NameParts { key: Ok(key), shard })
    }

    /// The pattern of the names of a limit in the language of Redis, which has no special meaning
    /// for any other character of a name. It matches some other names as well.
    pub fn pattern(&self, limit: &str) -> Vec<u8> {
        let tag: &[u8] = if self.by_first_part { b"*" } else { b"" };
        [&self.head, tag, KeyName::of_limit(limit).as_ref(), b"[:#]*"].concat()
    }

    /// The ranges in which the names of a limit lie. Other names lie there only if they are not ours.
    pub fn ranges(&self, limit: &str) -> NameRanges {
        ranges_of(&[&self.head, KeyName::of_limit(limit).as_ref()].concat())
    }
}

/// Whether this stands in a name in place of a key.
fn is_digest(key: &str) -> bool {
    let digits = key.strip_prefix("hmac=").or_else(|| key.strip_prefix("sha256="));
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    digits.is_some_and(|digits| digits.len() == 32 && digits.bytes().all(is_hex))
}
