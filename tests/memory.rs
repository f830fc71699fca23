//! The memory store: bounded, forgetting, and made for keys that others choose.

mod support;

use std::time::Duration;

use support::{START, at_once, store};
use tollgate::algebra::{Terms, Verdict};
use tollgate::backend::{Backend, BucketId, Charge, Memory};
use tollgate::clock::ManualClock;
use tollgate::{Decision, HOUR, Limit, MINUTE, Quota, RateLimiter, SECOND};

static LOGIN: Limit = Limit::new("login", Quota::token_bucket(10, HOUR));
static BURST: Limit = Limit::new("burst", Quota::token_bucket(10, SECOND));

#[track_caller]
fn admitted(limiter: &RateLimiter, limit: &Limit, key: u64, cost: u64) -> bool {
    at_once(limiter.limit(limit).key(key).cost(cost)).unwrap().is_admitted()
}

#[track_caller]
fn remaining(limiter: &RateLimiter, limit: &Limit, key: u64) -> u64 {
    at_once(limiter.value(limit).key(key)).unwrap().remaining()
}

#[test]
fn made_up_keys_cannot_grow_it_past_the_bound() {
    for bound in [1, 2, 7, 100, 2_048, 5_000] {
        let (memory, limiter) = store(Memory::new().max_keys(bound), &ManualClock::new(START));
        for key in 0..30_000 {
            assert!(admitted(&limiter, &LOGIN, key, 1));
            if key % 1_000 == 0 {
                assert!(memory.len() <= bound, "{} of {bound}", memory.len());
            }
        }
        assert!(memory.len() <= bound);
        // Shares are equal and keys fall at random, so that the fullest shard is full first; after
        // a flood all of them are.
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

/// Each bucket owes another number of tokens; a bound that is one shard makes the order exact.
#[test]
fn the_bucket_nearest_to_full_makes_room_first() {
    const KEYS: u64 = 500;
    static DEEP: Limit = Limit::new("deep", Quota::token_bucket(1_000, HOUR));
    let (memory, limiter) = store(Memory::new().max_keys(500), &ManualClock::new(START));
    // In an order that has nothing to do with who goes first.
    for nth in 0..KEYS {
        let key = nth * 7 % KEYS;
        assert!(admitted(&limiter, &DEEP, key, 100 + key));
    }
    for newcomer in 0..KEYS - 1 {
        assert!(admitted(&limiter, &DEEP, KEYS + newcomer, 1_000));
        assert_eq!(memory.len(), 500);
        assert_eq!(remaining(&limiter, &DEEP, newcomer), 1_000, "it made room");
        assert_eq!(remaining(&limiter, &DEEP, newcomer + 1), 1_000 - 101 - newcomer, "it is next");
    }
}

#[test]
fn a_bucket_that_was_charged_since_is_passed_over() {
    let (_, limiter) = store(Memory::new().max_keys(64), &ManualClock::new(START));
    for key in 0..64 {
        assert!(admitted(&limiter, &LOGIN, key, 2));
    }
    // The first newcomer has the shard looked through; then those noted as next are used more.
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
    assert!(kept >= 31, "only one of the even keys may have made room: {kept}");
}

/// Two hundred times the bound in keys that cost one request each do not free a key that has used
/// all of its tokens.
#[test]
fn a_flood_does_not_free_who_has_used_more() {
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new().max_keys(1_000), &clock);
    assert!(admitted(&limiter, &LOGIN, u64::MAX, 10));
    for key in 0..200_000 {
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
        let ask = || at_once(limiter.limit(&LOGIN).key(key).cost(10)).unwrap().is_admitted();
        assert!(ask());
        assert!(!ask());
        assert!(memory.len() <= 3);
    }
}

#[test]
fn limits_with_other_names_have_other_buckets() {
    let (_, limiter) = store(Memory::new(), &ManualClock::new(START));
    static OTHER: Limit = Limit::new("login2", Quota::token_bucket(10, HOUR));
    assert!(admitted(&limiter, &LOGIN, 7, 10));
    assert_eq!(remaining(&limiter, &OTHER, 7), 10);
    // The name ends where the key begins: "login" for "2…" is not "login2" for "…".
    assert!(at_once(limiter.limit(&LOGIN).key("2x").cost(10)).unwrap().is_admitted());
    assert_eq!(at_once(limiter.value(&OTHER).key("x")).unwrap().remaining(), 10);
}

#[test]
fn a_bucket_begins_with_its_initial_tokens_and_fills_from_its_first_use() {
    static SLOW_START: Limit =
        Limit::new("slow-start", Quota::token_bucket(1, MINUTE).capacity(10).initial(2));
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new(), &clock);
    // Looking is no use: a bucket begins when somebody asks for its tokens.
    assert_eq!(remaining(&limiter, &SLOW_START, 1), 2);
    clock.advance(HOUR);
    assert_eq!(remaining(&limiter, &SLOW_START, 1), 2);
    assert!(memory.is_empty());

    let refused = at_once(limiter.limit(&SLOW_START).key(1_u64).cost(5)).unwrap();
    assert_eq!(refused.retry_after(), Some(3 * MINUTE));
    clock.advance(3 * MINUTE - Duration::from_micros(1));
    assert!(!admitted(&limiter, &SLOW_START, 1, 5));
    clock.advance(Duration::from_micros(1));
    assert!(admitted(&limiter, &SLOW_START, 1, 5));

    // Full is not like none here, so it is kept however long it is idle.
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
fn a_bucket_with_initial_tokens_starts_again_when_the_bound_needs_its_room() {
    static SLOW_START: Limit =
        Limit::new("slow-start", Quota::token_bucket(1, MINUTE).capacity(10).initial(0));
    let clock = ManualClock::new(START);
    let (_, limiter) = store(Memory::new().max_keys(10), &clock);
    assert!(!admitted(&limiter, &SLOW_START, 1, 1));
    clock.advance(HOUR);
    assert_eq!(remaining(&limiter, &SLOW_START, 1), 10);
    for key in 100..110 {
        assert!(admitted(&limiter, &LOGIN, key, 5));
    }
    // Closed, never more.
    assert_eq!(remaining(&limiter, &SLOW_START, 1), 0);
    assert!(!admitted(&limiter, &SLOW_START, 1, 1));
}

#[test]
fn new_numbers_keep_what_was_used() {
    let clock = ManualClock::new(START);
    let (_, limiter) = store(Memory::new(), &clock);
    let limit = |quota: &str| Limit::try_new("plan", quota.parse().unwrap()).unwrap();
    let (small, large) = (limit("10 per hour"), limit("1000 per minute"));
    assert!(admitted(&limiter, &small, 1, 7));
    // 3 are left, whatever they are counted in, and no more than the new capacity.
    assert_eq!(remaining(&limiter, &large, 1), 3);
    assert!(admitted(&limiter, &large, 1, 3));
    assert!(!admitted(&limiter, &small, 1, 1));
    // It has filled at the rate it was last used at, and full is full under any numbers.
    clock.advance(MINUTE);
    assert!(admitted(&limiter, &small, 1, 10));
    let window = limit("fixed window: 5 per day");
    assert_eq!(remaining(&limiter, &window, 1), 0);
    let Decision::Refused(refusal) = at_once(limiter.limit(&window).key(1_u64)).unwrap() else {
        panic!("there is nothing left");
    };
    clock.advance(refusal.retry_after());
    assert_eq!(remaining(&limiter, &window, 1), 5);
}

/// A bucket that was full under small numbers was taken for a full one under large ones: whoever
/// could switch between two plans had no limit.
#[test]
fn switching_between_numbers_grants_nothing() {
    static SMALL: Limit = Limit::new("plan", Quota::token_bucket(1, SECOND));
    static LARGE: Limit =
        Limit::new("plan", Quota::token_bucket(1_000, Duration::from_secs(1_000)));
    let clock = ManualClock::new(START);
    let (_, limiter) = store(Memory::new(), &clock);
    let mut taken = 0;
    for _ in 0..1_000 {
        clock.advance(SECOND);
        while admitted(&limiter, &LARGE, 1, 1) {
            taken += 1;
        }
        taken += u64::from(admitted(&limiter, &SMALL, 1, 1));
    }
    assert!(taken <= 2_001, "{taken} in 1,000 s, where both numbers grant 1 a second");
}

/// A value too large for the numbers that it was rescaled to became the deepest debt, and a debt
/// deeper than the new `max_reserved` was forgiven.
#[test]
fn new_numbers_neither_turn_tokens_into_debt_nor_forgive_it() {
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new(), &clock);
    let limit = |quota: &str| Limit::try_new("plan", quota.parse().unwrap()).unwrap();
    let (many, one) = (limit("fixed window: 10_000_000_000 per day"), limit("1 per day"));
    assert!(admitted(&limiter, &many, 1, 1));
    assert!(admitted(&limiter, &one, 1, 1));

    let (deep, shallow) = (limit("1 per second"), limit("1 per second, max_reserved 5"));
    let key = tollgate::Key::from(2_u64);
    let bucket = deep.bucket();
    let charge = Charge::take(BucketId::new("plan", &key), bucket, bucket.units(101).unwrap());
    let charge = charge.on(Terms::reserving(bucket.floor()));
    assert_eq!(at_once(memory.apply(&[charge]).wait()).unwrap().verdict(), Verdict::Reserved);
    let standing = at_once(limiter.value(&shallow).key(key)).unwrap();
    assert_eq!(standing.tokens().to_string(), "-100");
}

/// The distance between a start in the far past and now overflowed, so that windows began anew with
/// every look.
#[test]
fn windows_stay_where_they_are_however_far_their_start() {
    for start in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX] {
        let quota = format!("fixed window: 10 per hour, start @{start}");
        let limit = Limit::try_new("far", quota.parse().unwrap()).unwrap();
        let clock = ManualClock::new(START);
        let (_, limiter) = store(Memory::new(), &clock);
        let first = at_once(limiter.value(&limit)).unwrap().window_start().unwrap();
        let from_start = i128::from(first.as_micros()) - i128::from(start);
        assert_eq!(from_start.rem_euclid(3_600_000_000), 0);
        clock.set(first + (HOUR - Duration::from_micros(1)));
        assert_eq!(at_once(limiter.value(&limit)).unwrap().window_start(), Some(first));
        clock.set(first + HOUR);
        assert_eq!(at_once(limiter.value(&limit)).unwrap().window_start(), Some(first + HOUR));
    }
}

/// The second charge on a bucket was judged as if the first had not been asked, so that the wait
/// was too short for both.
#[test]
fn a_bucket_named_twice_waits_for_both() {
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new(), &clock);
    assert!(admitted(&limiter, &BURST, 1, 10));
    let key = tollgate::Key::from(1_u64);
    let bucket = BURST.bucket();
    let six = Charge::take(BucketId::new("burst", &key), bucket, bucket.units(5).unwrap());
    let both = || at_once(memory.apply(&[six, six]).wait()).unwrap();
    let refused = both();
    assert_eq!((refused.verdict(), refused.wait()), (Verdict::Refused, SECOND));
    assert!(refused.readings().iter().all(|reading| reading.state().value == 0), "{refused:?}");
    clock.advance(SECOND);
    let admitted = both();
    assert_eq!(admitted.verdict(), Verdict::Admitted);
    assert!(admitted.readings().iter().all(|reading| reading.state().value == 0), "{admitted:?}");
}

#[test]
fn giving_back_fills_no_further_than_the_capacity() {
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new(), &clock);
    assert!(admitted(&limiter, &LOGIN, 1, 10));
    let key = tollgate::Key::from(1_u64);
    let refund = |limit: &Limit, tokens: u64| {
        let id = BucketId::new(limit.name(), &key);
        let units = limit.bucket().units(tokens).unwrap();
        let state = at_once(memory.refund(id, limit.bucket(), units).wait()).unwrap();
        let seen = at_once(limiter.value(limit).key(1_u64)).unwrap();
        assert_eq!(seen.state(), state, "what is reported is what is stored");
        seen.remaining()
    };
    assert_eq!(refund(&LOGIN, 4), 4);
    assert_eq!(refund(&LOGIN, 1_000), 10);
    assert_eq!(
        at_once(memory.refund(BucketId::new("login", &key), LOGIN.bucket(), -1).wait())
            .unwrap()
            .value,
        LOGIN.bucket().capacity()
    );
    // A bucket that nobody has used has nothing to get back.
    static NEW: Limit = Limit::new("new", Quota::token_bucket(10, HOUR).initial(3));
    assert_eq!(refund(&NEW, 5), 3);
}

#[test]
fn a_charge_of_less_than_nothing_gives_nothing() {
    let (memory, limiter) = store(Memory::new(), &ManualClock::new(START));
    assert!(admitted(&limiter, &LOGIN, 1, 4));
    let key = tollgate::Key::from(1_u64);
    let charge = Charge::take(BucketId::new("login", &key), LOGIN.bucket(), i64::MIN);
    assert_eq!(at_once(memory.apply(&[charge]).wait()).unwrap().verdict(), Verdict::Admitted);
    assert_eq!(remaining(&limiter, &LOGIN, 1), 6);
}

#[test]
fn a_call_asks_when_it_is_polled_and_not_before() {
    let (_, limiter) = store(Memory::new(), &ManualClock::new(START));
    drop(limiter.limit(&LOGIN).key(1_u64).into_future());
    assert_eq!(remaining(&limiter, &LOGIN, 1), 10);
    let look = at_once(limiter.check(&LOGIN).key(1_u64).cost(4)).unwrap();
    let Decision::Admitted(permit) = look else { panic!("there are ten") };
    assert_eq!(permit.remaining(), 10, "a look leaves all that there is");
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
