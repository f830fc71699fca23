//! A store at its bound, and a flood of made-up keys: the flood evicts its own buckets.

use std::ops::Range;
use std::time::Duration;

use tollgate::backend::Memory;
use tollgate::clock::ManualClock;
use tollgate::{DAY, HOUR, Limit, MINUTE, Quota, RateLimiter, SECOND};
use tollgate_testing::cases::times;
use tollgate_testing::{START, admitted, at_once, remaining, store};

static LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));
static DAILY: Limit = Limit::new("daily", Quota::fixed_window(1_000, DAY));
static ONCE_A_DAY: Limit = Limit::new("once", Quota::token_bucket(1, DAY));
static ONCE_A_WEEK: Limit = Limit::new("rare", Quota::token_bucket(1, DAY.saturating_mul(7)));

/// The key that the attacker wants to free.
const DEBTOR: u64 = u64::MAX;

/// The bound of one shard.
const BOUND: usize = 1_000;

fn one_shard() -> (ManualClock, RateLimiter) {
    let clock = ManualClock::new(START);
    let (_, limiter) = store(Memory::new().max_keys(BOUND), &clock);
    (clock, limiter)
}

/// Sends one request for each of these made-up keys, and one for the debtor after every tenth.
/// Returns how many guesses the debtor got.
fn flood(limiter: &RateLimiter, limits: &[&Limit], keys: Range<u64>) -> usize {
    let mut guesses = 0;
    for (key, limit) in keys.zip(limits.iter().cycle()) {
        assert!(admitted(limiter, limit, key, 1));
        guesses += usize::from(key % 10 == 0 && admitted(limiter, &LOGIN, DEBTOR, 1));
    }
    guesses
}

fn block(limiter: &RateLimiter, limit: &Limit, key: u64, time: Duration) {
    at_once(limiter.block(limit, time).key(key)).unwrap();
}

fn is_blocked(limiter: &RateLimiter, limit: &Limit, key: u64) -> bool {
    at_once(limiter.peek(limit).key(key).cost(0)).unwrap().wait() > Some(Duration::ZERO)
}

/// A former version evicted the bucket that would be full soonest. That was the debtor: with 5 of 5
/// an hour used it was full within the hour, and a made-up key with 1 of 1,000 a day used only at
/// the end of the day.
#[test]
fn made_up_keys_of_a_long_period_do_not_free_a_debtor_of_a_short_one() {
    for made_up in [&DAILY, &ONCE_A_DAY] {
        let (_, limiter) = one_shard();
        assert!(admitted(&limiter, &LOGIN, DEBTOR, 5));
        assert_eq!(flood(&limiter, &[made_up], 0..20_000), 0, "{}", made_up.quota());
    }
}

/// The same in a store of many shards: of the default bound in CI, and of a tenth of it at least. In
/// a former version, 1,070,000 made-up keys freed a debtor of the default store, and every 10,000
/// more gave it 5 more guesses.
#[test]
fn more_made_up_keys_than_a_large_store_holds_free_no_debtor() {
    let bound = times(Memory::MAX_KEYS as u64, Memory::MAX_KEYS as u64 / 10);
    let max_keys = usize::try_from(bound).unwrap();
    let (memory, limiter) = store(Memory::new().max_keys(max_keys), &ManualClock::new(START));
    let debtors = DEBTOR - 200..DEBTOR;
    debtors.clone().for_each(|debtor| assert!(admitted(&limiter, &LOGIN, debtor, 5)));
    for key in 0..bound / 10 * 11 {
        assert!(admitted(&limiter, &DAILY, key, 1));
    }
    assert!(memory.len() > max_keys / 10 * 9, "only {} are held", memory.len());
    assert_eq!(debtors.filter(|&debtor| admitted(&limiter, &LOGIN, debtor, 1)).count(), 0);
}

/// In a former version, a flood evicted a penalty of 100 hours as well.
#[test]
fn made_up_keys_do_not_lift_a_penalty() {
    static WEEKLY: Limit = Limit::new("weekly", Quota::fixed_window(1_000, DAY.saturating_mul(7)));
    let (_, limiter) = one_shard();
    at_once(limiter.penalize(&LOGIN, 505).key(DEBTOR)).unwrap();
    assert_eq!(flood(&limiter, &[&WEEKLY], 0..20_000), 0);
    let owed = at_once(limiter.peek(&LOGIN).key(DEBTOR)).unwrap();
    assert_eq!(owed.wait(), Some(HOUR * 100 + HOUR / 5));
}

/// A key of a limit with capacity 1 has used all of it after one request.
#[test]
fn a_debtor_is_evicted_only_when_all_other_keys_of_its_limit_have_used_more() {
    static HALF_A_DAY: Limit = Limit::new("half", Quota::token_bucket(1, HOUR.saturating_mul(12)));
    let (clock, limiter) = one_shard();
    assert!(admitted(&limiter, &ONCE_A_DAY, DEBTOR, 1));
    // The keys of another limit, however many, evict one another once they hold more than half of
    // the store.
    for key in 0..5_000 {
        assert!(admitted(&limiter, &HALF_A_DAY, key, 1));
    }
    // The other half is left to the keys of the debtor's limit.
    for key in 10_000..10_499 {
        clock.advance(Duration::from_micros(1));
        assert!(admitted(&limiter, &ONCE_A_DAY, key, 1));
        assert_eq!(remaining(&limiter, &ONCE_A_DAY, DEBTOR), 0, "after {key}");
    }
    clock.advance(Duration::from_micros(1));
    let newcomers = 10_499..10_502;
    newcomers.for_each(|key| assert!(admitted(&limiter, &ONCE_A_DAY, key, 1)));
    assert_eq!(remaining(&limiter, &ONCE_A_DAY, DEBTOR), 1, "all others have used more");
}

#[test]
fn keys_that_have_used_less_free_no_debtor_of_their_own_limit() {
    let (clock, limiter) = one_shard();
    assert!(admitted(&limiter, &LOGIN, DEBTOR, 5));
    assert_eq!(flood(&limiter, &[&LOGIN], 0..20_000), 0);
    // Half an hour later the debtor still lacks 2.5 of 5, more than the 2 of 5 that a made-up key
    // has used.
    clock.advance(HOUR / 2);
    for key in 20_000..40_000 {
        assert!(admitted(&limiter, &LOGIN, key, 2));
        assert!(!admitted(&limiter, &LOGIN, DEBTOR, 3), "after {key}");
    }
}

/// Made-up keys of three limits fill three quarters of the store. The debtor's limit keeps a
/// quarter: the keys that have used the largest shares.
#[test]
fn an_attacker_with_several_limits_frees_no_debtor() {
    let (_, limiter) = one_shard();
    for key in 0..1_000 {
        // One in ten has used all.
        let used = if key % 10 == 0 { 5 } else { 1 + key % 4 };
        assert!(admitted(&limiter, &LOGIN, key, used));
    }
    assert!(admitted(&limiter, &LOGIN, DEBTOR, 5));
    let limits = [&DAILY, &ONCE_A_DAY, &ONCE_A_WEEK];
    assert_eq!(flood(&limiter, &limits, 10_000..40_000), 0);
    for key in (0..1_000).step_by(10) {
        assert_eq!(remaining(&limiter, &LOGIN, key), 0, "{key}");
    }
}

/// Where each quota has one bucket, the smallest used share of the capacity decides.
#[test]
fn of_many_plans_with_one_key_each_the_key_with_the_smallest_used_share_is_evicted() {
    let plan = |rate| Limit::try_new("plan", Quota::token_bucket(rate, HOUR)).unwrap();
    let (_, limiter) = store(Memory::new().max_keys(100), &ManualClock::new(START));
    for key in 0..100 {
        // Every tenth has used its plan up, the others a tenth of it.
        let (plan, rate) = (plan(1_000 + key), 1_000 + key);
        let cost = if key % 10 == 0 { rate } else { rate / 10 };
        assert!(admitted(&limiter, &plan, key, cost));
    }
    for key in 100..5_000 {
        assert!(admitted(&limiter, &plan(1_000 + key), key, 1));
    }
    for key in (0..100).step_by(10) {
        assert_eq!(remaining(&limiter, &plan(1_000 + key), key), 0, "{key}");
    }
}

/// For a limit without capacity, any debt counts as a large share.
#[test]
fn debt_of_a_limit_without_capacity_outweighs_what_others_have_used() {
    static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(1, HOUR).capacity(0));
    let (_, limiter) = store(Memory::new().max_keys(2), &ManualClock::new(START));
    at_once(limiter.penalize(&SPACED, 1).key(1_u64)).unwrap();
    for key in 2..50 {
        // Each quota has one bucket whenever a new key comes.
        let plan = Limit::try_new("plan", Quota::token_bucket(10, MINUTE * (key as u32))).unwrap();
        assert!(admitted(&limiter, &plan, key, 10));
        let wait = at_once(limiter.peek(&SPACED).key(1_u64).cost(0)).unwrap().wait();
        assert_eq!(wait, Some(HOUR), "after {key}");
    }
}

#[test]
fn what_a_debtor_used_protects_its_bucket_under_a_changed_quota_too() {
    let (_, limiter) = one_shard();
    // The debtor's plan changes, and its next charge moves the bucket to the new quota.
    let before = Limit::new("login", Quota::token_bucket(3, MINUTE));
    assert!(admitted(&limiter, &before, DEBTOR, 3));
    at_once(limiter.penalize(&LOGIN, 2).key(DEBTOR)).unwrap();
    assert_eq!(flood(&limiter, &[&DAILY, &before], 0..20_000), 0);
}

/// In a former version, blocked keys filled the store, and every other key was evicted at once.
#[test]
fn blocked_keys_hold_no_more_than_half_of_the_bound() {
    let (_, limiter) = one_shard();
    assert!(admitted(&limiter, &LOGIN, DEBTOR, 5));
    for key in 0..5_000 {
        block(&limiter, &DAILY, key, HOUR * 100);
        assert!(!admitted(&limiter, &LOGIN, DEBTOR, 1), "after {key}");
    }
    for key in 10_000..10_400 {
        assert!(admitted(&limiter, &LOGIN, key, 1));
    }
    let kept = || (10_000..10_400).filter(|&key| remaining(&limiter, &LOGIN, key) == 4).count();
    assert_eq!(kept(), 400, "ordinary keys have half of the bound");
    // Keys of other limits compete for that half as well. The blocked keys keep theirs.
    assert_eq!(flood(&limiter, &[&ONCE_A_DAY], 20_000..40_000), 0);
    let blocked = (0..5_000).filter(|&key| is_blocked(&limiter, &DAILY, key)).count();
    assert_eq!(blocked, BOUND / 2);
    assert!(kept() >= 249, "the limit keeps {} keys, a half of that half", kept());
}

/// Made-up keys with long blocks do not lift the short blocks of another limit.
#[test]
fn blocks_of_a_flooded_limit_are_lifted_first() {
    let (_, limiter) = one_shard();
    for key in 0..100 {
        block(&limiter, &LOGIN, key, MINUTE);
    }
    for key in 1_000..6_000 {
        block(&limiter, &DAILY, key, HOUR * 100);
    }
    let kept = (0..100).filter(|&key| is_blocked(&limiter, &LOGIN, key)).count();
    assert_eq!(kept, 100);
}

/// Blocking a key again, or resetting it, does not count it twice.
#[test]
fn a_key_that_is_blocked_again_and_again_lifts_no_other_block() {
    let (_, limiter) = one_shard();
    assert!(admitted(&limiter, &LOGIN, DEBTOR, 5));
    for key in 0..400 {
        block(&limiter, &LOGIN, key, HOUR);
    }
    // An eviction scans the shard. Later blocks are counted one by one.
    assert_eq!(flood(&limiter, &[&DAILY], 1_000..3_000), 0);
    for nth in 0..600 {
        block(&limiter, &LOGIN, 7, HOUR * 2 + SECOND * nth);
        block(&limiter, &LOGIN, 500, HOUR * 200);
        at_once(limiter.reset(&LOGIN).key(500_u64)).unwrap();
    }
    assert_eq!(flood(&limiter, &[&DAILY], 3_000..5_000), 0);
    let kept = (0..400).filter(|&key| is_blocked(&limiter, &LOGIN, key)).count();
    assert_eq!(kept, 400);
}

#[test]
fn after_its_block_has_ended_a_key_is_ranked_by_its_debt() {
    let (clock, limiter) = one_shard();
    assert!(admitted(&limiter, &LOGIN, DEBTOR, 5));
    for key in 0..450 {
        block(&limiter, &ONCE_A_DAY, key, MINUTE);
    }
    assert_eq!(flood(&limiter, &[&ONCE_A_WEEK], 1_000..3_000), 0);
    clock.advance(MINUTE + SECOND);
    // The blocks have ended, so other keys of their limit may evict these keys again.
    for key in 5_000..7_000 {
        assert!(admitted(&limiter, &ONCE_A_DAY, key, 1));
        block(&limiter, &ONCE_A_WEEK, key, HOUR);
    }
    let kept = (0..450).filter(|&key| remaining(&limiter, &ONCE_A_DAY, key) == 0).count();
    assert_eq!(kept, 0, "keys with ended blocks are still in the store");
}

/// The deficit of a window vanishes when it ends.
#[test]
fn buckets_of_ended_windows_are_evicted_before_buckets_with_a_deficit() {
    static WINDOW: Limit = Limit::new("window", Quota::fixed_window(10, HOUR));
    let (clock, limiter) = one_shard();
    for key in 0..500 {
        assert!(admitted(&limiter, &WINDOW, key, 10));
    }
    // The windows of the keys begin at different times; an hour later all of these are over.
    clock.advance(HOUR);
    for key in 500..1_000 {
        assert!(admitted(&limiter, &WINDOW, key, 1));
    }
    for key in 1_000..1_450 {
        assert!(admitted(&limiter, &WINDOW, key, 1));
    }
    let kept = (500..1_450).filter(|&key| remaining(&limiter, &WINDOW, key) == 9).count();
    assert_eq!(kept, 950);
}
