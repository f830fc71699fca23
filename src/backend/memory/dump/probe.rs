//! Whether two builds name buckets alike.
//!
//! A store knows its buckets by the hashes of their names. A build that hashed other bytes would
//! find none of the buckets of a dump, and each of them would be full. So a dump has a number that
//! is made of the hashes of some names of each kind: a build that comes to another number does not
//! read the dump.

use std::hash::Hasher as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::new_check;
use crate::backend::charge::BucketId;
use crate::backend::key::Key;
use crate::backend::memory::fingerprint::Hasher;

pub(super) fn number(hasher: &Hasher) -> u64 {
    let text = |bytes| Key::from("0123456789".repeat(12).get(..bytes).unwrap_or_default());
    let keys = [
        Key::GLOBAL,
        Key::from("alice"),
        text(36),
        text(37),
        text(70),
        text(120),
        Key::from([1_u8, 2, 3]),
        Key::from(7_u64),
        Key::from(-7_i64),
        Key::from(u128::MAX),
        Key::from(true),
        Key::from(Ipv4Addr::new(192, 0, 2, 1)),
        Key::network(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 0), 64),
        Key::from(("acme", 7_u64)),
        Key::from("alice").fallback(),
    ];
    let mut sum = new_check();
    for limit in ["login", "per-address", "a limit with a long name"] {
        for (key, shard) in keys.iter().flat_map(|key| [(key, 0), (key, 3)]) {
            let id = BucketId::new(limit, key).shard(shard);
            let (low, high) = hasher.fingerprint(id).tag();
            sum.write(&low.to_le_bytes());
            sum.write(&high.to_le_bytes());
        }
    }
    sum.finish()
}
