//! The names of buckets in stores of bytes.

use sha2::{Digest as _, Sha256};

use crate::debtors::{NameParts, NameRanges, ranges_of};
use crate::key_name::KeyName;
use tollgate::backend::{BucketId, Key};
use tollgate::kit::KeySink as _;

/// The name of a bucket: letters, digits and `-_.~@+/%#:=`, at most 300 bytes.
///
/// It is the name of the limit, `#` and the shard unless that is the first, `:`, and
/// [`Key::as_bytes`](tollgate::Key::as_bytes). Bytes other than letters, digits and `-_.~@+/` stand
/// as `%` and two digits. A key that is too long stands as `sha256=` and 128 bits of its hash, so
/// that long keys of clients do not grow the store. No other name has a `=`. The name of a limit that
/// is longer than any [`Limit`](tollgate::Limit) has stands as `%sha256-` and its hash.
pub fn bucket_name(id: BucketId<'_>) -> KeyName {
    let mut name = KeyName::of_limit(id.limit());
    name.shard(id.shard_index());
    let (before, key) = (name.len(), id.key().as_bytes());
    // Written first and cut off if it is too long, as nearly all keys fit.
    if key.len() <= MAX_NAME {
        name.text(key);
    }
    if key.len().max(name.len()) > MAX_NAME {
        name.truncate(before);
        name.hash(b"sha256=", &Sha256::digest(key).into());
    }
    name.complete()
}

/// The ranges in which the names of a limit lie.
pub fn name_ranges(limit: &str) -> NameRanges {
    ranges_of(KeyName::of_limit(limit).as_ref())
}

/// What this name of a bucket of the limit says; `None` for any other name.
pub fn read_bucket_name(limit: &str, name: &str) -> Option<NameParts> {
    // Neither a limit nor a shard has a colon, and nor has the text of a limit a `#`.
    let (shard, key) =
        match name.strip_prefix(KeyName::of_limit(limit).as_str())?.split_once(':')? {
            ("", key) => (0, key),
            (shard, key) => (shard.strip_prefix('#')?.parse().ok()?, key),
        };
    if let Some(digits) = key.strip_prefix("sha256=") {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_digest = digits.len() == 32 && digits.bytes().all(is_hex);
        return is_digest.then(|| NameParts { key: Err(key.into()), shard });
    }
    let key = Key::from_encoded(&decode(key)?)?;
    // Other spellings are names that are not ours.
    let is_its_name = bucket_name(BucketId::new(limit, &key).shard(shard)).as_str() == name;
    is_its_name.then_some(NameParts { key: Ok(key), shard })
}

/// The bytes of a text without its escapes.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        let ([high, low], rest) = piece.as_bytes().split_first_chunk::<2>()?;
        let [high, low] = [high, low].map(|digit| char::from(*digit).to_digit(16));
        bytes.push(u8::try_from(high?.checked_mul(16)?.checked_add(low?)?).ok()?);
        bytes.extend_from_slice(rest);
    }
    Some(bytes)
}

/// The longest name with its key in full, as in Redis.
const MAX_NAME: usize = 200;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use tollgate::Key;

    #[test]
    fn names_are_readable_text() {
        let alice = Key::from("alice");
        let address = Key::from(std::net::Ipv4Addr::new(10, 0, 0, 1));
        for (id, name) in [
            (BucketId::new("login", &Key::GLOBAL), "login:"),
            (BucketId::new("login", &alice), "login:s%05alice"),
            (BucketId::new("log:in", &alice).shard(3), "log%3Ain#3:s%05alice"),
            (BucketId::new("per client", &address), "per%20client:4%0A%00%00%01"),
        ] {
            assert_eq!(bucket_name(id).as_str(), name);
        }
    }

    /// A client that chooses its key must not reach the bucket of another.
    #[test]
    fn different_buckets_have_different_names() {
        let hash = "sha256=".to_owned() + &"0".repeat(32);
        let long = "x".repeat(400);
        let texts = ["", "a", "a:b", "#1", "%", "%25", "=", "é", &hash, &long];
        let keys: Vec<Key> = texts.iter().copied().map(Key::from).chain([Key::GLOBAL]).collect();
        let longer = [Key::from("x".repeat(401)), Key::from((long.as_str(), "x"))];
        let mut names = HashSet::new();
        let mut count = 0;
        let long = "a".repeat(65);
        let hashed = format!("%sha256-{}", "0".repeat(32));
        for limit in ["", "a", "a:", "a#1", "#1", "%", "a%3A", &hashed, &long[1..], &long] {
            for key in keys.iter().chain(&longer) {
                for shard in [0, 1, 11] {
                    let name =
                        bucket_name(BucketId::new(limit, key).shard(shard)).as_str().to_owned();
                    let parts = read_bucket_name(limit, &name).unwrap();
                    assert_eq!(parts.shard, shard);
                    assert!(parts.key.as_ref().ok().is_none_or(|read| read == key), "{parts:?}");
                    assert!(parts.key.is_ok() || name.contains("sha256="), "{name}");
                    assert_eq!(read_bucket_name("other", &name), None);
                    let holds = |[first, behind]: &[Vec<u8>; 2]| {
                        first.as_slice() <= name.as_bytes() && name.as_bytes() < behind.as_slice()
                    };
                    assert!(name_ranges(limit).iter().any(holds), "{name}");
                    assert!(!name_ranges("other").iter().any(holds), "{name}");
                    assert!(name.len() <= MAX_NAME && name.is_ascii(), "{name}");
                    assert!(names.insert(name), "{limit} {key} {shard}");
                    count += 1;
                }
            }
        }
        assert_eq!(names.len(), count);
    }

    #[test]
    fn names_that_are_not_ours_are_not_read() {
        for name in [
            "",
            "l",
            "l:s%05alic",
            "l:s%05alicee",
            "l:x",
            "l:s%01%FF",
            "l#0:",
            "l#01:",
            "l#x:",
            "l#:",
            "l:s%01%61",
            "l:%",
            "l:%4",
            "l:s%05al%69ce",
            "l:sha256=",
            "l:sha256=0",
            "lx:s%01a",
            "l#4294967296:",
            "l:s%c3",
        ] {
            assert_eq!(read_bucket_name("l", name), None, "{name}");
        }
    }
}
