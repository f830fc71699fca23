//! A dump that an earlier build wrote can still be read.
//!
//! `tests/data/memory-1.dump` is of the format 1, and was saved by the store that `filled` makes.
//! It stays as it is. A change to the format, to the hash, or to how keys are encoded has to read
//! it all the same, or to raise the version.

use std::time::Duration;

use tollgate::backend::Memory;
use tollgate::clock::ManualClock;
use tollgate::{DAY, HOUR, Key, Limit, MINUTE, Quota, RateLimiter, Timestamp};
use tollgate_testing::{START, at_once, is_admitted, store};

const DUMP: &[u8] = include_bytes!("../../data/memory-1.dump");

fn limits() -> [Limit; 4] {
    [
        Limit::new("login", Quota::token_bucket(50, HOUR)),
        Limit::new("per-address", Quota::token_bucket(100, MINUTE).capacity(300).max_reserved(9)),
        Limit::new(
            "a limit with a long name",
            Quota::fixed_window(70, DAY).start(Timestamp::UNIX_EPOCH + HOUR),
        ),
        Limit::new("shards", Quota::fixed_window(800, DAY).capacity(900).initial(600).shards(2)),
    ]
}

fn keys() -> [Key; 8] {
    [
        Key::GLOBAL,
        Key::from("alice"),
        Key::from("0123456789".repeat(3) + "6 here"),
        Key::from("x".repeat(60)),
        Key::from("y".repeat(200)),
        Key::from(7_u64),
        Key::from(std::net::Ipv4Addr::new(192, 0, 2, 1)),
        Key::from(("acme", -7_i64)).and(std::net::Ipv6Addr::LOCALHOST),
    ]
}

/// What a key has taken of a limit.
fn cost(limit: usize, key: usize) -> u64 {
    u64::try_from(1 + 3 * key + limit).unwrap()
}

fn filled(limiter: &RateLimiter) {
    for (nth, limit) in limits().iter().enumerate() {
        for (place, key) in keys().iter().enumerate() {
            assert!(is_admitted(limiter.limit(limit).key(key).cost(cost(nth, place))));
        }
    }
    at_once(limiter.block(&limits()[0], HOUR).key("blocked")).unwrap();
    at_once(limiter.penalize(&limits()[1], 500).key("in debt")).unwrap();
}

fn snapshots(limiter: &RateLimiter) -> Vec<String> {
    let mut found = Vec::new();
    let more = ["blocked", "in debt", "unknown"].map(Key::from);
    for limit in &limits() {
        for key in keys().iter().chain(&more) {
            let snapshot = at_once(limiter.peek(limit).key(key)).unwrap();
            found.push(format!("{snapshot:?}"));
        }
    }
    found
}

#[test]
fn a_dump_of_the_first_format_decides_as_the_store_that_wrote_it() {
    let clock = ManualClock::new(START);
    let (_, limiter) = store(Memory::new().max_keys(5_000), &clock);
    let loaded = Memory::new().max_keys(100).clock(clock.clone()).load(DUMP).unwrap();
    let loaded = RateLimiter::new(loaded);
    filled(&limiter);
    let found = snapshots(&loaded);
    assert_eq!(found, snapshots(&limiter));
    assert_eq!(at_once(loaded.peek(&limits()[0]).key("alice")).unwrap().remaining(), 46);
    assert_eq!(at_once(loaded.peek(&limits()[0]).key("blocked")).unwrap().remaining(), 0);
    clock.advance(Duration::from_secs(3_333));
    assert_eq!(snapshots(&loaded), snapshots(&limiter));
}
