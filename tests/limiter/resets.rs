//! A reset forgives what was taken. A permit from before the reset gives nothing back after it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use http::{HeaderMap, Method, StatusCode};
use proptest::prelude::*;
use tokio::sync::{mpsc, watch};
use tokio::time::advance;
use tollgate::backend::Memory;
use tollgate::clock::ManualClock;
use tollgate::key::header;
use tollgate::limiter::Permit;
use tollgate::middleware::ResponseHead;
use tollgate::{HOUR, Limit, Quota, RateLimitExt, RateLimiter, Rule, SECOND};
use tollgate_testing::cases::times;
use tollgate_testing::queue::{paused, reserve, tokens, waiter};
use tollgate_testing::shared::Shared;
use tollgate_testing::web::{send, serve};
use tollgate_testing::{START, admitted, at_once, limiter, remaining, store};

static FIVE: Limit = Limit::new("five", Quota::token_bucket(5, HOUR));
static WINDOW: Limit = Limit::new("window", Quota::fixed_window(5, HOUR));
static SHARDS: Limit = Limit::new("shards", Quota::token_bucket(40, HOUR).shards(4));
static LLM: Limit = Limit::new("llm", Quota::token_bucket(1_000, HOUR));
static LINE: Limit = Limit::new("line", Quota::token_bucket(1, SECOND).capacity(5));

fn take(limiter: &RateLimiter, limit: &Limit, key: u64, cost: u64) -> Permit<'static> {
    at_once(limiter.limit(limit).key(key).cost(cost)).unwrap().into_owned()
}

fn reset(limiter: &RateLimiter, limit: &Limit, key: u64) {
    at_once(limiter.reset(limit).key(key)).unwrap();
}

/// In a former version, the refunds of the first five permits gave five tokens more: 10 requests
/// ran after the reset, of 5.
#[test]
fn refunds_of_permits_from_before_a_reset_let_no_more_run_after_it() {
    for limit in [&FIVE, &WINDOW] {
        let limiter = limiter(&ManualClock::new(START));
        let five = || [(); 5].map(|()| take(&limiter, limit, 1, 1));
        let before = five();
        reset(&limiter, limit, 1);
        let after = five();
        for permit in before {
            at_once(permit.refund()).unwrap();
        }
        let more = (0..5).filter(|_| admitted(&limiter, limit, 1, 1)).count();
        assert_eq!(more, 0, "{}", limit.name());
        // Permits from after the reset give back what they took.
        for permit in after {
            at_once(permit.refund()).unwrap();
        }
        assert_eq!(remaining(&limiter, limit, 1), 5);
    }
}

#[test]
fn a_settlement_above_what_was_paid_is_taken_also_after_a_reset() {
    let limiter = limiter(&ManualClock::new(START));
    let [less, more] = [2, 2].map(|cost| take(&limiter, &FIVE, 1, cost));
    reset(&limiter, &FIVE, 1);
    let _after = take(&limiter, &FIVE, 1, 3);
    at_once(less.settle(1)).unwrap();
    assert_eq!(remaining(&limiter, &FIVE, 1), 2);
    // The work cost one more than was forgiven.
    at_once(more.settle(3)).unwrap();
    assert_eq!(remaining(&limiter, &FIVE, 1), 1);
}

/// A bucket that is full again may have been dropped before the reset, which makes no difference.
#[test]
fn the_reset_of_a_bucket_that_is_full_again_counts() {
    for drops in [false, true] {
        let clock = ManualClock::new(START);
        let (memory, limiter) = store(Memory::new(), &clock);
        let before = take(&limiter, &FIVE, 1, 5);
        clock.advance(2 * HOUR);
        if drops {
            memory.purge();
        }
        assert_eq!(memory.is_empty(), drops);
        reset(&limiter, &FIVE, 1);
        let _after = take(&limiter, &FIVE, 1, 5);
        at_once(before.refund()).unwrap();
        assert_eq!(remaining(&limiter, &FIVE, 1), 0);
    }
}

/// Without a reset, tokens come back as usual, even to a bucket that was dropped meanwhile.
#[test]
fn a_bucket_that_was_dropped_does_not_count_as_reset() {
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new(), &clock);
    let before = take(&limiter, &FIVE, 1, 5);
    clock.advance(2 * HOUR);
    memory.purge();
    assert!(memory.is_empty());
    let _after = take(&limiter, &FIVE, 1, 5);
    at_once(before.refund()).unwrap();
    assert_eq!(remaining(&limiter, &FIVE, 1), 5);
}

#[test]
fn limiters_on_one_store_know_of_each_others_resets() {
    let memory = Arc::new(Memory::new().clock(ManualClock::new(START)));
    let [one, other] = [(); 2].map(|()| RateLimiter::new(Arc::clone(&memory)));
    let before = take(&one, &FIVE, 1, 5);
    reset(&other, &FIVE, 1);
    let _after = take(&one, &FIVE, 1, 5);
    at_once(before.refund()).unwrap();
    assert_eq!(remaining(&one, &FIVE, 1), 0);
}

#[test]
fn of_several_limits_the_one_that_was_reset_gets_nothing_back() {
    let limiter = limiter(&ManualClock::new(START));
    let call = || limiter.limit(&FIVE).key(1_u64).cost(5).and(&WINDOW).key(1_u64).cost(5);
    let left = || (remaining(&limiter, &FIVE, 1), remaining(&limiter, &WINDOW, 1));
    // First the buckets are new to the store, then it knows them.
    for _ in 0..2 {
        let before = at_once(call()).unwrap().into_owned();
        reset(&limiter, &FIVE, 1);
        let after = take(&limiter, &FIVE, 1, 5);
        at_once(before.refund()).unwrap();
        assert_eq!(left(), (0, 5));
        at_once(after.refund()).unwrap();
        // What was taken since the reset comes back.
        let since = at_once(call()).unwrap();
        assert_eq!(left(), (0, 0));
        at_once(since.refund()).unwrap();
        assert_eq!(left(), (5, 5));
    }
}

#[test]
fn all_shards_of_a_limit_are_reset() {
    let limiter = limiter(&ManualClock::new(START)).seed(7);
    let all = || (0..40).filter_map(|_| at_once(limiter.limit(&SHARDS).key(1_u64)).ok());
    let all = || all().map(Permit::into_owned).collect::<Vec<_>>();
    let before = all();
    reset(&limiter, &SHARDS, 1);
    let after = all();
    let left = remaining(&limiter, &SHARDS, 1);
    for permit in before {
        at_once(permit.refund()).unwrap();
    }
    assert_eq!(remaining(&limiter, &SHARDS, 1), left);
    for permit in after {
        at_once(permit.refund()).unwrap();
    }
    assert_eq!(remaining(&limiter, &SHARDS, 1), 40);
}

#[test]
fn a_reservation_that_is_dropped_after_a_reset_gives_nothing_back() {
    let limiter = limiter(&ManualClock::new(START));
    let at_once_there = at_once(limiter.limit(&FIVE).key(1_u64).cost(5).reserve()).unwrap();
    reset(&limiter, &FIVE, 1);
    let _after = take(&limiter, &FIVE, 1, 5);
    drop(at_once_there);
    assert_eq!(remaining(&limiter, &FIVE, 1), 0);
}

/// After a reset the waiters go on from a fresh bucket, and are charged to it.
#[tokio::test(start_paused = true)]
async fn tokens_granted_to_waiters_after_a_reset_come_back() {
    let limiter = paused();
    let _empty = at_once(limiter.limit(&LINE).cost(5)).unwrap();
    let granted_before = waiter(&limiter, &LINE, 1);
    let [served, dropped] = [2, 2].map(|cost| waiter(&limiter, &LINE, cost));
    let kept = reserve(&limiter, &LINE, 1);
    advance(SECOND).await;
    let granted_before = granted_before.await;
    at_once(limiter.reset(&LINE)).unwrap();
    assert_eq!(tokens(&limiter, &LINE), 0.0, "5, less the 5 of the waiters");
    at_once(granted_before.refund()).unwrap();
    assert_eq!(tokens(&limiter, &LINE), 0.0, "it was granted before the reset");
    at_once(served.await.refund()).unwrap();
    drop(dropped);
    at_once(kept.keep().refund()).unwrap();
    assert_eq!(tokens(&limiter, &LINE), 5.0, "all waiters have given their tokens back");
}

/// Both shards have paid, and both have queues.
#[tokio::test(start_paused = true)]
async fn tokens_granted_to_waiters_by_two_shards_after_a_reset_come_back() {
    static TWO: Limit =
        Limit::new("two", Quota::token_bucket(10, SECOND).max_reserved(20).shards(2));
    let limiter = paused();
    let before = at_once(limiter.limit(&TWO).cost(10)).unwrap();
    let line = [8, 6].map(|cost| waiter(&limiter, &TWO, cost));
    at_once(limiter.reset(&TWO)).unwrap();
    at_once(before.refund()).unwrap();
    assert_eq!(tokens(&limiter, &TWO), -4.0, "10, less the 14 of the waiters");
    for one in line {
        at_once(one.await.refund()).unwrap();
    }
    advance(SECOND / 2).await;
    assert_eq!(tokens(&limiter, &TWO), 10.0);
    let _all = at_once(limiter.limit(&TWO).cost(10)).unwrap();
}

/// A kept reservation is in the queue without a waiter, and a reset forgives it.
#[tokio::test(start_paused = true)]
async fn a_kept_reservation_that_was_forgiven_gives_nothing_back() {
    let limiter = paused();
    let _empty = at_once(limiter.limit(&LINE).cost(5)).unwrap();
    let kept = reserve(&limiter, &LINE, 3).keep();
    let _waiter = waiter(&limiter, &LINE, 1);
    let other = reserve(&limiter, &LINE, 2);
    at_once(limiter.reset(&LINE)).unwrap();
    assert_eq!(tokens(&limiter, &LINE), 2.0, "5, less 1 and 2");
    let other = other.keep();
    at_once(kept.refund()).unwrap();
    assert_eq!(tokens(&limiter, &LINE), 2.0);
    at_once(other.refund()).unwrap();
    assert_eq!(tokens(&limiter, &LINE), 4.0);
}

/// Each of the two limits keeps track of its own resets.
#[tokio::test(start_paused = true)]
async fn a_waiter_on_two_limits_gives_back_to_each_what_was_taken_since_its_reset() {
    static OTHER: Limit = Limit::new("other", Quota::token_bucket(5, HOUR));
    let limiter = paused();
    let _empty = at_once(limiter.limit(&LINE).cost(5)).unwrap();
    let call = || limiter.limit(&LINE).cost(5).and(&OTHER).cost(5);
    for gives_up in [false, true] {
        let waits = at_once(call().reserve()).unwrap().ready();
        // The other limit has granted its part already, and its reset forgives that.
        at_once(limiter.reset(&OTHER)).unwrap();
        at_once(limiter.reset(&LINE)).unwrap();
        let other = at_once(limiter.limit(&OTHER).cost(5)).unwrap().into_owned();
        if gives_up {
            drop(waits);
        } else {
            at_once(waits.await.refund()).unwrap();
        }
        assert_eq!(at_once(limiter.peek(&OTHER)).unwrap().remaining(), 0, "{gives_up}");
        assert_eq!(tokens(&limiter, &LINE), 5.0, "{gives_up}");
        at_once(other.refund()).unwrap();
        let _empty = at_once(limiter.limit(&LINE).cost(5)).unwrap();
    }
}

/// Limiters on memory stores of many sizes, and on a store that other processes may charge.
fn many_limiters() -> [(&'static str, RateLimiter); 4] {
    let small = |keys| {
        let memory = Memory::new().max_keys(keys).clock(ManualClock::new(START));
        RateLimiter::new(memory)
    };
    [
        ("1,000 keys", small(1_000)),
        ("10,000 keys", small(10_000)),
        ("a million keys", limiter(&ManualClock::new(START))),
        ("another store", Shared::new().limiter()),
    ]
}

/// Logins that succeed reset their users' failures. In a former version, after 1,025 of them in a
/// small store or in Redis, a permit of another limit that was held meanwhile gave nothing back: of
/// 1,000 tokens, 0 were left after work that cost 10.
#[tokio::test(start_paused = true)]
async fn resets_of_other_keys_do_not_concern_a_permit() {
    for (store, limiter) in many_limiters() {
        let again = take(&limiter, &FIVE, 1, 5);
        let held = (2..5).map(|key| take(&limiter, &LLM, key, 1_000)).collect::<Vec<_>>();
        // That former version failed from 1,025 on.
        for key in 100..100 + times(50_000, 10_000) {
            reset(&limiter, &FIVE, key);
        }
        for (key, permit) in (2..).zip(held) {
            at_once(permit.settle(10)).unwrap();
            assert_eq!(remaining(&limiter, &LLM, key), 990, "{store}");
        }
        reset(&limiter, &FIVE, 1);
        let after = take(&limiter, &FIVE, 1, 5);
        at_once(again.refund()).unwrap();
        assert_eq!(remaining(&limiter, &FIVE, 1), 0, "{store}");
        at_once(after.refund()).unwrap();
        assert_eq!(remaining(&limiter, &FIVE, 1), 5, "{store}");
    }
}

/// However many keys are reset, nothing is given back twice.
#[tokio::test(start_paused = true)]
async fn many_later_resets_do_not_let_a_permit_from_before_a_reset_give_back() {
    for (store, limiter) in many_limiters() {
        let before = take(&limiter, &FIVE, 1, 5);
        reset(&limiter, &FIVE, 1);
        let after = take(&limiter, &FIVE, 1, 5);
        let resets = times(100_000, 10_000);
        for key in 100..100 + resets {
            reset(&limiter, &FIVE, key);
        }
        at_once(before.refund()).unwrap();
        assert_eq!(remaining(&limiter, &FIVE, 1), 0, "{store}");
        // In a small store, where all keys share 64 stripes of 1,024, this permit gives nothing
        // back: it is older than too many resets.
        let is_too_old = resets == 100_000 && store != "a million keys";
        let back = if is_too_old { 0 } else { 5 };
        at_once(after.refund()).unwrap();
        assert_eq!(remaining(&limiter, &FIVE, 1), back, "{store}");
        let fresh = take(&limiter, &FIVE, 2, 5);
        at_once(fresh.refund()).unwrap();
        assert_eq!(remaining(&limiter, &FIVE, 2), 5, "{store}");
    }
}

proptest! {
    /// Compares with a model that knows of each permit whether it was forgiven. In a small store,
    /// the keys are in several stripes of one shard.
    #[test]
    fn only_what_was_not_forgiven_comes_back(
        keys in prop::sample::select(vec![1_000_usize, 5_000, 1_000_000]),
        steps in prop::collection::vec(
            (0_u8..8, 0_u64..3, 0_u64..4, any::<prop::sample::Index>()),
            1..80,
        ),
    ) {
        let limit = Limit::new("model", Quota::token_bucket(10, Duration::from_micros(1_000)));
        let clock = ManualClock::new(START);
        let (_, limiter) = store(Memory::new().max_keys(keys), &clock);
        let mut permits: Vec<(u64, u64, bool, Permit<'static>)> = Vec::new();
        // The tokens that are left, in hundredths.
        let mut left: HashMap<u64, u64> = (0..3).map(|key| (key, 1_000)).collect();
        for (what, key, cost, nth) in steps {
            match what {
                0..4 => {
                    let call = at_once(limiter.limit(&limit).key(key).cost(cost));
                    prop_assert_eq!(call.is_ok(), left[&key] >= cost * 100);
                    if let Ok(permit) = call {
                        *left.get_mut(&key).unwrap() -= cost * 100;
                        permits.push((key, cost, false, permit.into_owned()));
                    }
                }
                4 | 5 if !permits.is_empty() => {
                    let nth = nth.index(permits.len());
                    let (key, cost, forgiven, permit) = permits.swap_remove(nth);
                    at_once(permit.refund()).unwrap();
                    let back = if forgiven { 0 } else { cost * 100 };
                    let left = left.get_mut(&key).unwrap();
                    *left = (*left + back).min(1_000);
                }
                6 => {
                    reset(&limiter, &limit, key);
                    left.insert(key, 1_000);
                    permits.iter_mut().filter(|one| one.0 == key).for_each(|one| one.2 = true);
                }
                _ => {
                    clock.advance(Duration::from_micros(cost * 50));
                    left.values_mut().for_each(|left| *left = (*left + cost * 50).min(1_000));
                }
            }
            for key in 0..3 {
                prop_assert_eq!(remaining(&limiter, &limit, key), left[&key] / 100);
            }
        }
    }
}

// Stores that other processes may charge, for all that the limiter knows.

/// A store that answers at once, as an application may bring its own.
#[tokio::test(start_paused = true)]
async fn a_store_of_an_applications_own_gives_nothing_back_twice() {
    let store = Shared::new();
    let limiter = store.limiter();
    let five = || [(); 5].map(|()| take(&limiter, &FIVE, 1, 1));
    let before = five();
    let reserved = at_once(limiter.limit(&WINDOW).key(1_u64).cost(5).reserve()).unwrap();
    reset(&limiter, &FIVE, 1);
    reset(&limiter, &WINDOW, 1);
    let after = five();
    let _window = take(&limiter, &WINDOW, 1, 5);
    for permit in before {
        at_once(permit.refund()).unwrap();
    }
    drop(reserved);
    assert_eq!((remaining(&limiter, &FIVE, 1), remaining(&limiter, &WINDOW, 1)), (0, 0));
    for permit in after {
        at_once(permit.refund()).unwrap();
    }
    assert_eq!(remaining(&limiter, &FIVE, 1), 5);
}

/// A waiter on such a store has a slot. In a former version, the slot was undone after the reset
/// although the bucket had been charged since: in a window, the bucket holds the same value again.
#[tokio::test(start_paused = true)]
async fn a_slot_from_before_a_reset_is_not_undone() {
    static WINDOWS: Limit =
        Limit::new("windows", Quota::fixed_window(5, HOUR).start(tollgate::Timestamp::UNIX_EPOCH));
    let store = Shared::new();
    let [limiter, past] = [store.limiter(), store.limiter()];
    let _empty = take(&limiter, &WINDOWS, 1, 5);
    let slot = at_once(limiter.limit(&WINDOWS).key(1_u64).cost(5).reserve()).unwrap();
    reset(&limiter, &WINDOWS, 1);
    let _full = take(&past, &WINDOWS, 1, 5);
    let later = at_once(past.limit(&WINDOWS).key(1_u64).cost(5).reserve()).unwrap().keep();
    drop(slot);
    let left = at_once(limiter.peek(&WINDOWS).key(1_u64)).unwrap().tokens().to_string();
    assert_eq!(left, "-5");
    drop(later);
}

// Through the layer.

const USER: &str = "x-user";
const PASSWORD: &str = "x-password";

fn succeeded(response: &ResponseHead<'_>) -> bool {
    response.is_success()
}

/// A login that succeeds resets the failures of its user, and one that the server could not decide
/// gives its token back. In a former version, four of the latter that were under way during the
/// reset let four more failures through: 9 of 5 an hour.
#[tokio::test]
async fn requests_under_way_during_a_reset_let_no_sixth_failure_through() {
    static FAILURES: Limit = Limit::new("failures", Quota::token_bucket(5, HOUR));
    let limiter = limiter(&ManualClock::new(START));
    let rule = Rule::new(&FAILURES).key(header(USER));
    let rule = rule.reset_if(succeeded).refund_if(|head| head.is_server_error());
    let (open, gate) = watch::channel(false);
    let (entered, mut entries) = mpsc::unbounded_channel();
    let login = async move |headers: HeaderMap| match headers[PASSWORD].as_bytes() {
        b"right" => StatusCode::OK,
        b"wrong" => StatusCode::UNAUTHORIZED,
        _ => {
            entered.send(()).unwrap();
            gate.clone().wait_for(|open| *open).await.unwrap();
            StatusCode::BAD_GATEWAY
        }
    };
    let layer = limiter.layer(rule);
    let server = serve(Router::new().route("/login", post(login).rate_limit(layer))).await;
    let attempt = move |password: &'static str| async move {
        let fields = [(USER, "alice"), (PASSWORD, password)];
        send(server, Method::POST, "/login", &fields).await.status
    };
    let slow: Vec<_> = (0..4).map(|_| tokio::spawn(attempt("slow"))).collect();
    for _ in 0..4 {
        entries.recv().await.unwrap();
    }
    assert_eq!(attempt("right").await, StatusCode::OK);
    let mut failures = 0;
    for _ in 0..5 {
        failures += usize::from(attempt("wrong").await == StatusCode::UNAUTHORIZED);
    }
    assert_eq!(attempt("wrong").await, StatusCode::TOO_MANY_REQUESTS);
    open.send_replace(true);
    for slow in slow {
        assert_eq!(slow.await.unwrap(), StatusCode::BAD_GATEWAY);
    }
    for _ in 0..5 {
        failures += usize::from(attempt("wrong").await == StatusCode::UNAUTHORIZED);
    }
    assert_eq!(failures, 5, "failures after one success, of 5 an hour");
}
