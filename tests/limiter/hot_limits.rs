//! Limits in shards, through the limiter: what they grant, what they report, and their bound.

use std::collections::HashMap;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use tollgate::algebra::{Bucket, State, Terms, Verdict, charge_pair, check_history};
use tollgate::backend::{Adjustment, Answer, Applied, Backend, BucketId, Charge, Key, Memory};
use tollgate::clock::ManualClock;
use tollgate::limiter::LimitCall;
use tollgate::{
    HOUR, Limit, MINUTE, Permit, Quota, RateLimited, RateLimiter, Reservation, SECOND, Snapshot,
    Timestamp,
};
use tollgate_testing::cases::seeds;
use tollgate_testing::{START, at_once, is_admitted, limiter, quotas, store};

/// Ten shards of ten tokens.
static HOT: Limit = Limit::new("hot", Quota::token_bucket(100, HOUR).shards(10));

/// A limiter with a clock that stands still, and with the same random draws in each run.
fn frozen() -> RateLimiter {
    limiter(&ManualClock::new(START)).seed(0)
}

/// The tokens in all shards together, fraction and debt included.
#[track_caller]
fn held(limiter: &RateLimiter, limit: &Limit) -> String {
    at_once(limiter.peek(limit)).unwrap().tokens().to_string()
}

/// How the limit stood when it admitted or refused a request.
#[track_caller]
fn snapshot_of(answer: &Result<Permit<'_>, RateLimited>) -> Snapshot {
    match answer {
        Ok(permit) => permit.snapshot(),
        Err(error) => error.snapshots().first().expect("a refusal").clone(),
    }
}

// What is granted.

#[test]
fn with_nothing_stored_two_shards_grant_what_one_cannot() {
    for shards in [3, 4, 5, 16, 100] {
        let limit =
            Limit::new("cold", Quota::token_bucket(10 * u64::from(shards), HOUR).shards(shards));
        for seed in 0..50 {
            for cost in [11, 15, 20] {
                let limiter = frozen().seed(seed);
                assert!(at_once(limiter.peek(&limit).cost(cost)).unwrap().fits());
                assert!(is_admitted(limiter.limit(&limit).cost(cost)));
                assert_eq!(held(&limiter, &limit), (limit.quota().rate() - cost).to_string());
            }
            assert!(at_once(frozen().limit(&limit).cost(21)).unwrap_err().is_too_large());
        }
    }
}

#[test]
fn two_shards_grant_more_than_half_and_then_the_rest() {
    static TWO: Limit = Limit::new("two", Quota::token_bucket(20, HOUR).shards(2));
    for seed in 0..50 {
        for cost in 11..=20 {
            let limiter = frozen().seed(seed);
            assert!(is_admitted(limiter.limit(&TWO).cost(cost)));
            assert!(!is_admitted(limiter.limit(&TWO).cost(21 - cost)));
            assert!(is_admitted(limiter.limit(&TWO).cost(20 - cost)));
            assert_eq!(held(&limiter, &TWO), "0");
        }
    }
}

#[test]
fn a_drained_limit_has_granted_exactly_its_capacity() {
    for seed in seeds(4) {
        for cost in [1, 2, 5, 10] {
            let limiter = frozen().seed(seed);
            let mut admitted = 0;
            let mut refused = 0;
            while refused < 400 {
                match is_admitted(limiter.limit(&HOT).cost(cost)) {
                    true => (admitted, refused) = (admitted + cost, 0),
                    false => refused += 1,
                }
                assert_eq!(held(&limiter, &HOT), (100 - admitted).to_string());
            }
            assert_eq!(admitted, 100, "seed {seed}, cost {cost}");
        }
    }
}

#[test]
fn keys_have_shards_of_their_own() {
    let limiter = frozen();
    for key in 0_u64..20 {
        for _ in 0..100 - key {
            while !is_admitted(limiter.limit(&HOT).key(key)) {}
        }
    }
    for key in 0..20 {
        assert_eq!(tollgate_testing::remaining(&limiter, &HOT, key), key);
    }
}

#[test]
fn a_reset_drops_every_shard() {
    let (memory, limiter) = store(Memory::new(), &ManualClock::new(START));
    let limiter = limiter.seed(0);
    for key in ["a", "b"] {
        for _ in 0..50 {
            let _ = at_once(limiter.limit(&HOT).key(key));
        }
    }
    assert_eq!(memory.len(), 20);
    at_once(limiter.reset(&HOT).key("a")).unwrap();
    assert_eq!(memory.len(), 10);
    let left = |key| at_once(limiter.peek(&HOT).key(key)).unwrap().remaining();
    assert_eq!((left("a"), left("b")), (100, 50));
}

#[test]
fn in_a_transaction_a_hot_limit_pays_with_the_others_or_not_at_all() {
    static REQUESTS: Limit = Limit::new("requests", Quota::token_bucket(30, HOUR));
    for seed in 0..50 {
        let (memory, limiter) = store(Memory::new(), &ManualClock::new(START));
        let limiter = limiter.seed(seed);
        let both = |cost| at_once(limiter.limit(&REQUESTS).cost(10).and(&HOT).cost(cost));
        let permit = both(17).unwrap();
        assert_eq!(permit.snapshots().count(), 2);
        assert_eq!((held(&limiter, &REQUESTS), held(&limiter, &HOT)), ("20".into(), "83".into()));
        assert!(both(21).unwrap_err().is_too_large());
        assert!(both(3).is_ok() && both(0).is_ok());
        let stored = memory.len();
        assert!(both(1).unwrap_err().is_refused());
        assert_eq!((held(&limiter, &HOT), memory.len()), ("80".into(), stored));
        at_once(permit.refund()).unwrap();
        assert_eq!((held(&limiter, &REQUESTS), held(&limiter, &HOT)), ("10".into(), "97".into()));
    }
}

#[test]
fn a_hot_limit_that_is_named_twice_pays_twice_from_the_same_two_shards() {
    for seed in 0..100 {
        let limiter = frozen().seed(seed);
        let twice = |a, b| at_once(limiter.limit(&HOT).cost(a).and(&HOT).cost(b));
        let error = twice(9, 12).unwrap_err();
        assert!(error.is_too_large());
        assert!(error.to_string().starts_with("cost of 21 can never fit limit `hot`"), "{error}");
        assert!(twice(9, 11).is_ok());
        assert_eq!(held(&limiter, &HOT), "80");
        at_once(limiter.reset(&HOT)).unwrap();
        at_once(twice(12, 3).unwrap().refund()).unwrap();
        assert_eq!(held(&limiter, &HOT), "100");
    }
}

// What is reported.

/// What a decision reports is unbiased, for a request that takes nothing and for one that is
/// admitted.
#[test]
fn the_remaining_tokens_that_decisions_report_are_right_on_average() {
    let draws = 4_000_u32;
    let limiter = frozen().seed(5);
    for nth in 0..30 {
        let _ = at_once(limiter.limit(&HOT).cost(nth % 4));
    }
    let truth = at_once(limiter.peek(&HOT)).unwrap().tokens().to_f64();
    let mean = |told: &dyn Fn() -> f64| (0..draws).map(|_| told()).sum::<f64>() / f64::from(draws);
    let looked = mean(&|| snapshot_of(&at_once(limiter.limit(&HOT).cost(0))).tokens().to_f64());
    assert!((looked - truth).abs() < 1.0, "{looked}, and not {truth}");
    for cost in [1, 3, 4] {
        let taken = mean(&|| {
            let permit = at_once(limiter.limit(&HOT).cost(cost)).unwrap();
            let told = permit.snapshot().tokens().to_f64();
            at_once(permit.refund()).unwrap();
            told
        });
        let left = truth - f64::from(u32::try_from(cost).unwrap());
        assert!((taken - left).abs() < 1.0, "{taken}, and not {left}, after {cost}");
    }
}

/// A former version reported 95 left, as if every pair of shards had paid what one pair did.
#[test]
fn the_first_request_sees_what_is_really_left() {
    let limiter = frozen();
    for cost in [1, 10, 20] {
        let permit = at_once(limiter.limit(&HOT).cost(cost)).unwrap();
        assert_eq!(permit.remaining(), 100 - cost);
        assert_eq!(at_once(permit.refund()).unwrap().remaining(), 100);
    }
    for seed in 0..20 {
        for (cost, actual) in [(9, 4), (9, 9), (5, 8), (20, 13), (15, 19)] {
            let limiter = frozen().seed(seed);
            let permit = at_once(limiter.limit(&HOT).cost(cost)).unwrap();
            let settled = at_once(permit.settle(actual)).unwrap();
            assert_eq!(settled.remaining(), 100 - actual, "{cost} settled by {actual}");
        }
    }
    static OWING: Limit =
        Limit::new("owing", Quota::token_bucket(10, SECOND).capacity(0).shards(5));
    let owed = at_once(limiter.limit(&OWING).cost(7).reserve()).unwrap();
    assert_eq!(owed.snapshot().tokens().to_string(), "-7");
    drop(owed);
    static TWO: Limit = Limit::new("two", Quota::token_bucket(20, HOUR).shards(2));
    assert!(is_admitted(limiter.limit(&TWO).cost(15)));
    let refused = at_once(limiter.limit(&TWO).cost(6)).unwrap_err();
    assert_eq!(refused.snapshots()[0].remaining(), 5);
}

proptest! {
    /// A peek takes nothing. It counts the tokens of all shards, and a cost fits if the two fullest
    /// shards have it. A cost that no two shards could ever hold has no wait.
    #[test]
    fn a_peek_sees_all_shards_and_fits_what_the_two_fullest_have(
        quota in quotas(),
        shards in 2_u32..=6,
        steps in prop::collection::vec((0_u32..4_000, 0_u64..20, 0_u64..40), 1..40),
        seed in any::<u64>(),
    ) {
        let Ok(limit) = Limit::try_new("hot", quota.shards(shards)) else { return Ok(()) };
        let bucket = limit.bucket();
        let token = (bucket.token() / bucket.gain() * bucket.step()).max(1_000);
        let clock = ManualClock::new(START);
        let (memory, limiter) = store(Memory::new(), &clock);
        let limiter = limiter.seed(seed);
        let states = || -> Vec<State> {
            let key = Key::GLOBAL;
            let id = |shard| BucketId::new("hot", &key).shard(shard);
            let look = |shard| Charge::look(id(shard), bucket, 0);
            let looks: Vec<_> = (0..shards).map(look).collect();
            let applied = at_once(memory.apply(&looks).wait()).unwrap();
            applied.readings().iter().map(|reading| reading.state()).collect()
        };
        for (thousandths, taken, cost) in steps {
            clock.advance(Duration::from_micros(token / 1_000 * u64::from(thousandths)));
            let _ = at_once(limiter.limit(&limit).cost(taken));
            let (stored, mut held) = (memory.len(), states());
            let seen = at_once(limiter.peek(&limit).cost(cost)).unwrap();
            prop_assert_eq!((memory.len(), &states()), (stored, &held));
            let sum: i64 = held.iter().map(|state| state.value).sum();
            prop_assert_eq!(seen.tokens().units(), sum);
            prop_assert_eq!(seen.cost(), cost);

            let units = bucket.units(cost).unwrap();
            let Some(wait) = seen.wait() else {
                prop_assert!(!seen.fits() && units > 2 * bucket.capacity());
                prop_assert!(at_once(limiter.limit(&limit).cost(cost)).unwrap_err().is_too_large());
                continue;
            };
            held.sort_by_key(|state| std::cmp::Reverse(state.value));
            let fullest = charge_pair(bucket, [held[0], held[1]], units, Terms::AT_ONCE, seen.at());
            prop_assert_eq!(seen.fits(), fullest.verdict() == Verdict::Admitted);
            prop_assert_eq!((seen.fits(), wait), (wait.is_zero(), fullest.wait()));
            if shards == 2 {
                // Both shards are always drawn, so a request gets the answer that a peek shows.
                let answer = at_once(limiter.limit(&limit).cost(cost));
                prop_assert_eq!(answer.is_ok(), seen.fits());
                let told = answer.err().and_then(|error| error.retry_after());
                prop_assert_eq!(told.unwrap_or_default(), wait);
            } else if !seen.fits() {
                prop_assert!(at_once(limiter.limit(&limit).cost(cost)).unwrap_err().is_refused());
                let fits_at = |at: Timestamp| {
                    clock.set(at);
                    at_once(limiter.peek(&limit).cost(cost)).unwrap().fits()
                };
                prop_assert!(!fits_at(seen.at() + (wait - Duration::from_micros(1))));
                prop_assert!(fits_at(seen.at() + wait));
            }
        }
    }
}

/// A former version reported the debt of the first shard as that of the whole limit.
#[test]
fn a_limit_is_out_of_debt_if_a_shard_is() {
    let limiter = frozen();
    static OWING: Limit = Limit::new("owing", Quota::token_bucket(40, SECOND).shards(4));
    for seed in 0..20 {
        let limiter = limiter.clone().seed(seed);
        at_once(limiter.reset(&OWING)).unwrap();
        let permit = at_once(limiter.limit(&OWING).cost(5)).unwrap();
        let settled = at_once(permit.settle(25)).unwrap();
        assert_eq!(settled.limit(), &OWING);
        let seen = at_once(limiter.peek(&OWING).cost(0)).unwrap();
        assert_eq!(seen.tokens().to_string(), "15");
        assert_eq!((seen.fits(), seen.wait()), (true, Some(Duration::ZERO)));
    }
}

#[test]
fn a_hot_limit_is_full_again_when_all_that_was_taken_has_been_refilled() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock).seed(0);
    static FAST: Limit = Limit::new("fast", Quota::token_bucket(100, SECOND).shards(10));
    for _ in 0..200 {
        let _ = at_once(limiter.limit(&FAST));
    }
    let full_after = |limit| {
        let seen = at_once(limiter.peek(limit)).unwrap();
        seen.full_at().since(seen.at())
    };
    assert!(full_after(&FAST) <= SECOND && full_after(&FAST) >= SECOND * 9 / 10);
    clock.advance(SECOND);
    assert_eq!(held(&limiter, &FAST), "100");
    static WINDOW: Limit =
        Limit::new("window", Quota::fixed_window(100, MINUTE).shards(7).start(START));
    while at_once(limiter.peek(&WINDOW)).unwrap().tokens().to_f64() > 10.0 {
        let _ = at_once(limiter.limit(&WINDOW).cost(3));
    }
    assert_eq!(at_once(limiter.peek(&WINDOW)).unwrap().window_start(), Some(START));
    assert_eq!(full_after(&WINDOW), MINUTE - SECOND);
    clock.advance(MINUTE - SECOND);
    assert_eq!((held(&limiter, &WINDOW), full_after(&WINDOW)), ("100".into(), Duration::ZERO));
}

// Reserving and settling.

#[test]
fn reservations_go_into_debt_and_come_back_exactly() {
    static SPACED: Limit =
        Limit::new("spaced", Quota::token_bucket(10, SECOND).capacity(0).shards(4));
    for seed in 0..30 {
        let limiter = frozen().seed(seed);
        let mut kept = Vec::new();
        for nth in 1..=20 {
            let own = at_once(limiter.limit(&SPACED).reserve()).unwrap();
            // Each shard gains a token in 400 ms.
            assert!(own.wait() > Duration::ZERO);
            assert_eq!(own.wait().as_micros() % 400_000, 0);
            kept.push(own);
            assert_eq!(held(&limiter, &SPACED), format!("-{nth}"));
        }
        let longest = kept.iter().map(|own| own.wait()).max().unwrap();
        assert!(longest >= SECOND * 2 && longest <= SECOND * 4, "{longest:?}");
        // The last reservation of each shard can be undone, and then the one before it.
        while kept.pop().is_some() {
            let left = held(&limiter, &SPACED);
            assert_eq!(left, if kept.is_empty() { "0".into() } else { format!("-{}", kept.len()) });
        }
    }
    static BOUNDED: Limit = Limit::new(
        "bounded",
        Quota::token_bucket(10, SECOND).capacity(20).max_reserved(40).shards(2),
    );
    let limiter = frozen();
    let all = at_once(limiter.limit(&BOUNDED).cost(60).reserve()).unwrap();
    assert_eq!((all.wait(), held(&limiter, &BOUNDED)), (SECOND * 4, "-40".to_owned()));
    assert!(at_once(limiter.limit(&BOUNDED).reserve()).unwrap_err().is_refused());
    assert!(at_once(limiter.limit(&BOUNDED).cost(61).reserve()).unwrap_err().is_too_large());
    drop(all);
    assert_eq!(held(&limiter, &BOUNDED), "20");
}

#[test]
fn settling_gives_back_to_the_shards_that_have_paid() {
    let (memory, limiter) = store(Memory::new(), &ManualClock::new(START));
    let key = Key::GLOBAL;
    let shards = || {
        let look = |shard| Charge::look(BucketId::new("hot", &key).shard(shard), HOT.bucket(), 0);
        let looks: Vec<_> = (0..10).map(look).collect();
        let applied = at_once(memory.apply(&looks).wait()).unwrap();
        applied.readings().iter().map(|reading| reading.state().value).collect::<Vec<_>>()
    };
    for seed in 0..50 {
        let limiter = limiter.clone().seed(seed);
        at_once(limiter.reset(&HOT)).unwrap();
        let take = |cost| at_once(limiter.limit(&HOT).cost(cost));
        for cost in 0..8 {
            drop(take(cost % 4));
        }
        let before = shards();
        for cost in [1, 7, 12] {
            let Ok(permit) = take(cost) else { continue };
            at_once(permit.refund()).unwrap();
            assert_eq!(shards(), before, "the shards are as before");
        }
        let Ok(permit) = take(9) else { continue };
        let paid = shards();
        at_once(permit.settle(4)).unwrap();
        let after = shards();
        for ((before, paid), after) in before.into_iter().zip(paid).zip(after) {
            assert!((paid..=before).contains(&after), "no shard gets more back than it has paid");
        }
    }
}

/// The permit of a call that takes at once, or of a reservation that is kept. `None` if it is
/// refused.
#[track_caller]
fn granted(call: LimitCall<'_>, reserves: bool) -> Option<Permit<'static>> {
    let granted = match reserves {
        true => at_once(call.reserve()).map(Reservation::keep),
        false => at_once(call).map(Permit::into_owned),
    };
    granted.map_err(|error| assert!(error.is_refused(), "{error:?}")).ok()
}

/// A peek or a reset takes all shards at one instant, even the most that a quota may have.
#[test]
fn a_peek_sums_up_as_many_shards_as_a_quota_may_have() {
    let quota = Quota::token_bucket(20_480, HOUR).shards(Quota::MAX_SHARDS);
    let (limit, limiter) = (Limit::new("hot", quota), frozen().seed(1));
    let permits: Vec<_> = (0..3_000).map(|_| at_once(limiter.limit(&limit)).unwrap()).collect();
    let left = || at_once(limiter.peek(&limit)).unwrap().remaining();
    assert_eq!(left(), 20_480 - 3_000);
    at_once(limiter.reset(&limit)).unwrap();
    assert_eq!(left(), 20_480);
    drop(permits);
}

proptest! {
    /// No refund is lost because a shard is full, and none grants more than was taken.
    #[test]
    fn the_limit_holds_exactly_what_was_not_used(
        shards in 2_u32..12,
        steps in prop::collection::vec(
            (0_u64..40, prop::option::of(0_u64..60), any::<bool>()),
            1..60,
        ),
        seed in any::<u64>(),
    ) {
        let quota = Quota::token_bucket(20 * u64::from(shards), HOUR).shards(shards);
        let limit = Limit::new("hot", quota);
        let limiter = frozen().seed(seed);
        let mut left = i128::from(limit.quota().rate());
        for (cost, actual, reserves) in steps {
            let call = limiter.limit(&limit).cost(cost);
            let Some(permit) = granted(call, reserves) else { continue };
            left -= i128::from(actual.unwrap_or(cost));
            if let Some(actual) = actual {
                at_once(permit.settle(actual)).unwrap();
            }
            let held = at_once(limiter.peek(&limit)).unwrap().tokens().units();
            prop_assert_eq!(i128::from(held), left * i128::from(limit.bucket().token()));
        }
    }
}

// The bound.

proptest! {
    /// P2 for the whole limit is the sum of its shards' bounds, which is that of a limit without
    /// shards as long as no cost is more than a shard holds.
    #[test]
    fn the_whole_limit_is_within_its_bound(
        windows in any::<bool>(),
        rate in 1_u64..=40,
        each in 1_u64..=8,
        shards in 2_u32..=6,
        steps in prop::collection::vec((0_u32..60_000, 0_u64..=8, any::<bool>()), 1..120),
        seed in any::<u64>(),
    ) {
        let quota = if windows {
            Quota::fixed_window(rate, SECOND)
        } else {
            Quota::token_bucket(rate, SECOND)
        };
        let limit = Limit::new("hot", quota.capacity(each * u64::from(shards)).shards(shards));
        let clock = ManualClock::new(START);
        let limiter = limiter(&clock).seed(seed);
        let mut ran = Vec::new();
        for (micros, cost, reserves) in steps {
            clock.advance(Duration::from_micros(u64::from(micros)));
            let cost = cost.min(each);
            let call = limiter.limit(&limit).cost(cost);
            ran.extend(granted(call, reserves).map(|permit| (permit.at(), cost)));
        }
        prop_assert_eq!(check_history(limit.quota(), &ran).unwrap(), None);
    }

    /// P3: of two shards both are always drawn, so the wait is the smallest that works.
    #[test]
    fn the_wait_for_two_shards_is_the_smallest_that_works(
        quota in quotas(),
        steps in prop::collection::vec((0_u32..4_000, 0_u64..20), 1..40),
        seed in any::<u64>(),
    ) {
        let Ok(limit) = Limit::try_new("two", quota.shards(2)) else { return Ok(()) };
        let bucket = limit.bucket();
        let token = (bucket.token() / bucket.gain() * bucket.step()).max(1_000);
        let clock = ManualClock::new(START);
        let limiter = limiter(&clock).seed(seed);
        for (thousandths, cost) in steps {
            clock.advance(Duration::from_micros(token / 1_000 * u64::from(thousandths)));
            let ask = || at_once(limiter.limit(&limit).cost(cost));
            let Some(wait) = ask().err().and_then(|error| error.retry_after()) else { continue };
            clock.advance(wait - Duration::from_micros(1));
            prop_assert!(ask().unwrap_err().is_refused());
            clock.advance(Duration::from_micros(1));
            prop_assert!(ask().is_ok());
        }
    }

    /// A limit in one shard behaves as a limit without shards.
    #[test]
    fn a_limit_in_one_shard_is_like_any_other(
        quota in quotas(),
        steps in prop::collection::vec((0_u32..4_000, 0_u64..20, any::<bool>()), 1..40),
    ) {
        let limit = |quota| Limit::try_new("limit", quota).unwrap();
        let [plain, one] = [quota, quota.shards(1)].map(limit);
        prop_assert_eq!(plain.bucket(), one.bucket());
        let clock = ManualClock::new(START);
        let limiters = [limiter(&clock).seed(1), limiter(&clock).seed(1)];
        let bucket = plain.bucket();
        let token = (bucket.token() / bucket.gain() * bucket.step()).max(1_000);
        for (thousandths, cost, reserves) in steps {
            clock.advance(Duration::from_micros(token / 1_000 * u64::from(thousandths)));
            let answers = [(&limiters[0], &plain), (&limiters[1], &one)].map(|(limiter, limit)| {
                let call = limiter.limit(limit).cost(cost).jitter(SECOND);
                let told = |told: Snapshot| {
                    let (fits, state, full) = (told.fits(), told.state(), told.full_at());
                    format!("{fits} {:?} {state:?} {full:?}", told.wait())
                };
                let refused = |error: RateLimited| {
                    let snapshot = error.snapshots().first().cloned().map(told);
                    format!("{error} {snapshot:?}")
                };
                if !reserves {
                    return at_once(call).map_or_else(refused, |permit| told(permit.snapshot()));
                }
                at_once(call.reserve()).map_or_else(refused, |own| {
                    let (wait, told) = (own.wait(), told(own.snapshot()));
                    drop(own.keep());
                    format!("{wait:?} {told}")
                })
            });
            prop_assert_eq!(&answers[0], &answers[1]);
        }
    }
}

#[test]
fn what_ran_in_many_threads_while_the_clock_advanced_is_within_the_bound() {
    static FAST: Limit =
        Limit::new("fast", Quota::token_bucket(200, SECOND).capacity(40).shards(4));
    static STEPS: Limit =
        Limit::new("steps", Quota::fixed_window(40, SECOND).capacity(60).shards(5));
    for limit in [&FAST, &STEPS] {
        let clock = ManualClock::new(START);
        let limiter = limiter(&clock);
        let (ran, together) = (Mutex::new(Vec::new()), Barrier::new(8));
        thread::scope(|scope| {
            for thread in 0..8 {
                let (clock, limiter, ran, together) = (&clock, &limiter, &ran, &together);
                scope.spawn(move || {
                    together.wait();
                    for round in 0..1_500 {
                        let cost = (round * 5 + thread) % 7;
                        if let Ok(permit) = at_once(limiter.limit(limit).cost(cost)) {
                            ran.lock().unwrap().push((permit.at(), cost));
                        }
                        clock.advance(Duration::from_micros(700));
                    }
                });
            }
        });
        let ran = ran.into_inner().unwrap();
        assert_eq!(check_history(limit.quota(), &ran).unwrap(), None);
        let used: u64 = ran.iter().map(|&(_, cost)| cost).sum();
        // 12,000 advances are 8.4 s, and the threads asked for all tokens of that time.
        let gained = limit.quota().rate() * 84 / 10;
        assert!(used >= gained * 8 / 10, "{used} of {gained} tokens ran");
    }
}

// Which shards are drawn.

/// A memory store that counts which pairs of shards it was asked for.
#[derive(Debug, Default)]
struct Spy {
    memory: Memory,
    drawn: Arc<Mutex<HashMap<(u32, u32), u32>>>,
}

impl Backend for Spy {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        for charge in charges {
            let pair =
                (charge.id().shard_index(), charge.get_second_shard().expect("a second shard"));
            *self.drawn.lock().unwrap().entry(pair).or_default() += 1;
        }
        self.memory.apply(charges)
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        self.memory.adjust(adjustments)
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.memory.reset(ids)
    }
}

#[test]
fn every_pair_in_either_order_is_drawn_equally_often() {
    for shards in [2, 3, 5] {
        let limit = Limit::new("hot", Quota::token_bucket(100_000, HOUR).shards(shards));
        for (seed, times) in [(0, 1), (1, 1), (7, 2)] {
            let spy = Spy::default();
            let drawn = Arc::clone(&spy.drawn);
            let limiter = RateLimiter::new(spy).seed(seed);
            let pairs = shards * (shards - 1);
            for _ in 0..pairs * 1_000 / times {
                let first = limiter.limit(&limit);
                // In a transaction on different keys, each charge draws a pair of its own.
                match times {
                    1 => drop(at_once(first)),
                    _ => drop(at_once(limiter.limit(&limit).key(1).and(&limit).key(2))),
                }
            }
            let drawn = drawn.lock().unwrap();
            assert_eq!(drawn.len(), usize::try_from(pairs).unwrap(), "{shards} shards");
            for (pair, count) in &*drawn {
                assert!(pair.0 != pair.1 && pair.0 < shards && pair.1 < shards);
                // Five times the standard deviation.
                assert!((840..=1_160).contains(count), "{pair:?} of {shards} shards: {count}");
            }
        }
    }
}

/// If the second charge drew another pair, the sum of both might fit although neither pair could
/// ever grant it.
#[test]
fn a_limit_that_is_named_twice_draws_once() {
    let limit = Limit::new("hot", Quota::token_bucket(100_000, HOUR).shards(10));
    let spy = Spy::default();
    let drawn = Arc::clone(&spy.drawn);
    let limiter = RateLimiter::new(spy).seed(0);
    for _ in 0..500 {
        drop(at_once(limiter.limit(&limit).and(&HOT).and(&limit).and(&HOT)));
    }
    assert!(drawn.lock().unwrap().values().all(|count| count.is_multiple_of(2)));
}

#[test]
fn a_seed_draws_the_same_shards_again() {
    let drawn = || {
        let limiter = frozen().seed(42);
        let call = || at_once(limiter.limit(&HOT).cost(7));
        (0..40).map(|_| format!("{:?}", snapshot_of(&call()).state())).collect::<Vec<_>>()
    };
    assert_eq!(drawn(), drawn());
}

/// The shards together have the capacity and the debt of the limit, however many they are.
#[test]
fn shards_have_equal_parts_of_the_whole_quota() {
    let quota = Quota::token_bucket(100, HOUR).capacity(60).max_reserved(30);
    let [whole, shard] =
        [Bucket::new(&quota), Bucket::of_shard(&quota.shards(6))].map(Result::unwrap);
    for (all, each) in [(whole.capacity(), shard.capacity()), (whole.floor(), shard.floor())] {
        assert_eq!(whole.tokens(all).to_f64(), 6.0 * shard.tokens(each).to_f64());
    }
}
