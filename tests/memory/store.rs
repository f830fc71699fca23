//! The memory store: its bound, what it evicts and drops, and keys that clients make up.

use std::time::Duration;

use tollgate::backend::Memory;
use tollgate::clock::ManualClock;
use tollgate::{HOUR, Limit, MINUTE, Quota, SECOND};
use tollgate_testing::cases::times;
use tollgate_testing::{START, admitted, at_once, is_admitted, remaining, store};

static LOGIN: Limit = Limit::new("login", Quota::token_bucket(10, HOUR));
static BURST: Limit = Limit::new("burst", Quota::token_bucket(10, SECOND));

#[test]
fn made_up_keys_cannot_grow_it_past_the_bound() {
    for bound in [1, 2, 7, 100, 2_048, 5_000] {
        let (memory, limiter) = store(Memory::new().max_keys(bound), &ManualClock::new(START));
        // Three times the largest bound at least, so that each shard is full by far.
        for key in 0..times(30_000, 15_000) {
            assert!(admitted(&limiter, &LOGIN, key, 1));
            if key % 1_000 == 0 {
                assert!(memory.len() <= bound, "{} of {bound}", memory.len());
            }
        }
        assert!(memory.len() <= bound);
        // Each shard has an equal part of the bound and keys fall at random, so some shards fill up
        // before others. After a flood all of them are full.
        assert!(memory.len() * 100 >= bound * 99, "{} of {bound}", memory.len());
    }
}

#[test]
fn a_bound_of_zero_is_one_and_a_huge_one_takes_no_memory_up_front() {
    let (memory, limiter) = store(Memory::new().max_keys(0), &ManualClock::new(START));
    assert!(admitted(&limiter, &LOGIN, 1, 10));
    assert!(!admitted(&limiter, &LOGIN, 1, 1));
    assert_eq!(memory.len(), 1);
    assert!(Memory::new().max_keys(usize::MAX).is_empty());
}

/// Each bucket has used a different number of tokens. A bound that is one shard makes the order
/// exact.
#[test]
fn the_bucket_closest_to_full_is_evicted_first() {
    const KEYS: u64 = 500;
    static DEEP: Limit = Limit::new("deep", Quota::token_bucket(1_000, HOUR));
    let (memory, limiter) = store(Memory::new().max_keys(500), &ManualClock::new(START));
    // The order of filling says nothing about the order of eviction.
    for nth in 0..KEYS {
        let key = nth * 7 % KEYS;
        assert!(admitted(&limiter, &DEEP, key, 100 + key));
    }
    for newcomer in 0..KEYS - 1 {
        assert!(admitted(&limiter, &DEEP, KEYS + newcomer, 1_000));
        assert_eq!(memory.len(), 500);
        assert_eq!(remaining(&limiter, &DEEP, newcomer), 1_000, "it was evicted");
        assert_eq!(remaining(&limiter, &DEEP, newcomer + 1), 1_000 - 101 - newcomer, "it is next");
    }
}

#[test]
fn a_bucket_that_was_charged_since_is_passed_over() {
    let (_, limiter) = store(Memory::new().max_keys(64), &ManualClock::new(START));
    for key in 0..64 {
        assert!(admitted(&limiter, &LOGIN, key, 2));
    }
    // The first newcomer makes the store scan the shard and note what to evict next. Then some of
    // these buckets are charged more.
    assert!(admitted(&limiter, &LOGIN, 1_000, 3));
    for key in 0..64 {
        if remaining(&limiter, &LOGIN, key) == 8 && key % 2 == 0 {
            assert!(admitted(&limiter, &LOGIN, key, 5));
        }
    }
    for newcomer in 1_001..1_020 {
        assert!(admitted(&limiter, &LOGIN, newcomer, 3));
    }
    let kept = (0..64).step_by(2).filter(|&key| remaining(&limiter, &LOGIN, key) == 3).count();
    assert!(kept >= 31, "at most one of the even keys may have been evicted: {kept}");
}

/// Keys that cost one request each do not free a key that has used all of its tokens: not two hundred
/// times the bound, which CI plays, and not twenty times.
#[test]
fn a_flood_does_not_free_a_key_that_has_used_more() {
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new().max_keys(1_000), &clock);
    assert!(admitted(&limiter, &LOGIN, u64::MAX, 10));
    for key in 0..times(200_000, 20_000) {
        assert!(admitted(&limiter, &LOGIN, key, 1));
        if key % 1_000 == 0 {
            clock.advance(Duration::from_millis(100));
            assert!(!admitted(&limiter, &LOGIN, u64::MAX, 1));
        }
    }
    assert_eq!(memory.len(), 1_000);
    assert!(!admitted(&limiter, &LOGIN, u64::MAX, 1));
}

#[test]
fn full_buckets_are_dropped_in_passing() {
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new(), &clock);
    // A thousand keys a second for a hundred seconds; each is full again after 100 ms, and held
    // for a second more.
    for round in 0..100 {
        for key in 0..1_000 {
            assert!(admitted(&limiter, &BURST, round * 1_000 + key, 1));
        }
        clock.advance(SECOND);
    }
    assert!(memory.len() < 4_000, "{} of 100,000 are held", memory.len());
    memory.purge();
    assert!(memory.len() < 2_000, "{} are held", memory.len());
    clock.advance(2 * SECOND);
    memory.purge();
    assert!(memory.is_empty());
}

#[test]
fn keys_of_any_length_cost_the_same() {
    let (memory, limiter) = store(Memory::new().max_keys(3), &ManualClock::new(START));
    let long = "k".repeat(1 << 20);
    for key in ["", "k", "kk", &long[..254], &long[..255], &long[..256], &long] {
        let ask = || is_admitted(limiter.limit(&LOGIN).key(key).cost(10));
        assert!(ask());
        assert!(!ask());
        assert!(memory.len() <= 3);
    }
}

#[test]
fn a_bucket_begins_with_its_initial_tokens_and_fills_from_its_first_use() {
    static SLOW_START: Limit =
        Limit::new("slow-start", Quota::token_bucket(1, MINUTE).capacity(10).initial(2));
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new(), &clock);
    // A peek does not start a bucket: the first request for its tokens does.
    assert_eq!(remaining(&limiter, &SLOW_START, 1), 2);
    clock.advance(HOUR);
    assert_eq!(remaining(&limiter, &SLOW_START, 1), 2);
    assert!(memory.is_empty());

    let refused = at_once(limiter.limit(&SLOW_START).key(1_u64).cost(5)).unwrap_err();
    assert_eq!(refused.retry_after(), Some(3 * MINUTE));
    clock.advance(3 * MINUTE - Duration::from_micros(1));
    assert!(!admitted(&limiter, &SLOW_START, 1, 5));
    clock.advance(Duration::from_micros(1));
    assert!(admitted(&limiter, &SLOW_START, 1, 5));

    // With initial tokens, a full bucket is not the same as an absent one, so it is kept however
    // long it is idle.
    clock.advance(24 * HOUR);
    memory.purge();
    for key in 100..200 {
        assert!(admitted(&limiter, &BURST, key, 1));
    }
    assert_eq!(remaining(&limiter, &SLOW_START, 1), 10);
    // After a reset the first use is the first again.
    at_once(limiter.reset(&SLOW_START).key(1_u64)).unwrap();
    assert_eq!(remaining(&limiter, &SLOW_START, 1), 2);
}

#[test]
fn a_bucket_with_initial_tokens_starts_over_when_it_was_evicted() {
    static SLOW_START: Limit =
        Limit::new("slow-start", Quota::token_bucket(1, MINUTE).capacity(10).initial(0));
    let clock = ManualClock::new(START);
    let (_, limiter) = store(Memory::new().max_keys(10), &clock);
    assert!(!admitted(&limiter, &SLOW_START, 1, 1));
    clock.advance(HOUR);
    assert_eq!(remaining(&limiter, &SLOW_START, 1), 10);
    for key in 100..110 {
        assert!(!admitted(&limiter, &SLOW_START, key, 1));
    }
    // It starts over with no tokens: to be evicted gains nothing.
    assert_eq!(remaining(&limiter, &SLOW_START, 1), 0);
    assert!(!admitted(&limiter, &SLOW_START, 1, 1));
}

#[test]
fn purging_gives_the_memory_back() {
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new().max_keys(2_000), &clock);
    for key in 0..2_000 {
        assert!(admitted(&limiter, &BURST, key, 1));
    }
    assert!(admitted(&limiter, &LOGIN, 1, 3));
    clock.advance(MINUTE);
    memory.purge();
    assert_eq!(memory.len(), 1);
    assert_eq!(remaining(&limiter, &LOGIN, 1), 7);
    for key in 0..2_000 {
        assert!(admitted(&limiter, &BURST, key, 10));
        assert!(!admitted(&limiter, &BURST, key, 1));
    }
}

#[test]
fn tokens_are_shown_rounded_down() {
    let tokens = |units| LOGIN.bucket().tokens(units).to_string();
    let token = i64::try_from(LOGIN.bucket().token()).unwrap();
    let shown = [0, 1, token - 1, token, token * 5 / 2, -1, -token, -token * 5 / 2].map(tokens);
    let wanted = ["0", "0", "0.999999", "1", "2.5", "-0.000001", "-1", "-2.5"];
    assert_eq!(shown, wanted);
    let quarter = LOGIN.bucket().tokens(token * 401 / 4);
    assert_eq!(format!("{quarter:.0} {quarter:.1} {quarter:.3}"), "100 100.2 100.250");
}

#[test]
fn a_newcomer_that_is_closest_to_full_is_evicted_next() {
    static DEEP: Limit = Limit::new("deep", Quota::token_bucket(1_000, HOUR));
    let (_, limiter) = store(Memory::new().max_keys(100), &ManualClock::new(START));
    let take = |key: u64, cost| assert!(is_admitted(limiter.limit(&DEEP).key(key).cost(cost)));
    let left = |key: u64| at_once(limiter.peek(&DEEP).key(key)).unwrap().remaining();
    (0..100).for_each(|key| take(key, 100 + key));
    take(1_000, 1); // the whole shard is scanned; bucket 0 is evicted
    take(1_001, 2);
    assert_eq!(left(1_000), 1_000, "it was closest to full, and was evicted");
    assert_eq!(left(1), 899, "it was not");
}

#[test]
fn a_bucket_that_was_charged_a_little_since_is_still_evicted_in_turn() {
    static DEEP: Limit = Limit::new("deep", Quota::token_bucket(1_000, HOUR));
    let (_, limiter) = store(Memory::new().max_keys(160), &ManualClock::new(START));
    let take = |key: u64, cost| assert!(is_admitted(limiter.limit(&DEEP).key(key).cost(cost)));
    let left = |key: u64| at_once(limiter.peek(&DEEP).key(key)).unwrap().remaining();
    (0..160).for_each(|key| take(key, 100 + 2 * key));
    take(1_000, 900); // 0 is evicted; 1 to 9 are noted
    take(1, 3); // now behind 2, before 3
    take(1_001, 900);
    assert_eq!((left(2), left(1)), (1_000, 895));
    take(1_002, 900);
    assert_eq!((left(1), left(3)), (1_000, 894));
}
