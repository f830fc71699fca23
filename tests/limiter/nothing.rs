//! A quota that grants nothing: a plan that is paused, a client that is shut out.

use std::sync::{Arc, Mutex};

use tollgate::algebra::{Bucket, Terms, Verdict, calculate};
use tollgate::backend::{DebtorReport, Memory};
use tollgate::clock::ManualClock;
use tollgate::limiter::{Decision, Outcome};
use tollgate::{
    DAY, HOUR, Limit, MINUTE, Observer, OnFailure, Quota, RateLimited, RateLimiter, SECOND,
    Timestamp,
};
use tollgate_testing::broken::Broken;
use tollgate_testing::{START, at_once, limiter};

static FREE: Limit = Limit::new("per-tenant", Quota::token_bucket(100, DAY));
static PAUSED: Limit = Limit::new("per-tenant", Quota::none());
static OTHER: Limit = Limit::new("other", Quota::token_bucket(5, HOUR));
static SHARDED: Limit = Limit::new("hot", Quota::none().shards(4));

const SAID: &str = "refused by limit `per-tenant` (it grants nothing: 0 per day)";

#[track_caller]
fn is_refused_for_good(error: &RateLimited, limit: &Limit) {
    assert!(error.is_refused(), "{error}");
    assert!(!error.is_too_large() && !error.is_unavailable() && !error.is_outage(), "{error}");
    assert_eq!(error.retry_after(), None, "{error}");
    assert_eq!(error.limit(), limit);
    let [snapshot] = error.snapshots() else { panic!("{error:?}") };
    assert_eq!(snapshot.limit(), limit);
    assert_eq!((snapshot.remaining(), snapshot.capacity(), snapshot.fits()), (0, 0, false));
    assert_eq!((snapshot.wait(), snapshot.resets_at()), (None, None));
    assert_eq!((snapshot.window_end(), snapshot.blocked_until()), (None, None));
    assert_eq!(snapshot.tokens().to_string(), "0");
}

/// What is left of the free plan.
#[track_caller]
fn left(limiter: &RateLimiter) -> u64 {
    at_once(limiter.peek(&FREE).key(7)).unwrap().remaining()
}

#[test]
fn every_cost_is_refused_without_a_time_to_come_back() {
    let limiter = limiter(&ManualClock::new(START));
    for limit in [&PAUSED, &SHARDED] {
        for cost in [0, 1, 2, u64::MAX] {
            let call = || limiter.limit(limit).key(7).cost(cost);
            is_refused_for_good(&at_once(call()).unwrap_err(), limit);
            is_refused_for_good(&at_once(call().jitter(HOUR)).unwrap_err(), limit);
            is_refused_for_good(&at_once(call().reserve()).unwrap_err(), limit);
            is_refused_for_good(&at_once(call().reserve_within(DAY)).unwrap_err(), limit);
            // Twice in one call, and beside another limit, whichever comes first.
            let twice = at_once(call().and(limit).key(7)).unwrap_err();
            is_refused_for_good(&twice, limit);
            let last = at_once(limiter.limit(&OTHER).and(limit).key(7).cost(cost)).unwrap_err();
            is_refused_for_good(&last, limit);
            is_refused_for_good(&at_once(call().and(&OTHER)).unwrap_err(), limit);
            is_refused_for_good(&at_once(call().and(&OTHER).reserve()).unwrap_err(), limit);
            let seen = at_once(limiter.peek(limit).key(7).cost(cost)).unwrap();
            assert_eq!((seen.remaining(), seen.capacity(), seen.cost()), (0, 0, cost));
            assert_eq!((seen.fits(), seen.wait(), seen.resets_at()), (false, None, None));
        }
    }
    assert_eq!(at_once(limiter.peek(&OTHER)).unwrap().remaining(), 5, "all or nothing");
    assert_eq!(at_once(limiter.limit(&PAUSED)).unwrap_err().to_string(), SAID);
    assert_eq!(left(&limiter), 100);
}

/// A store that cannot be reached is no reason to let a paused customer in, nor to answer with 503.
#[tokio::test]
async fn the_store_is_not_asked() {
    for later in [false, true] {
        let limiter = RateLimiter::new(Broken { later }).on_failure(OnFailure::Admit);
        for limit in [&PAUSED, &SHARDED] {
            is_refused_for_good(&limiter.limit(limit).key(7).await.unwrap_err(), limit);
            is_refused_for_good(&limiter.limit(limit).key(7).reserve().await.unwrap_err(), limit);
            let several = limiter.limit(&OTHER).and(limit).key(7);
            is_refused_for_good(&several.await.unwrap_err(), limit);
            assert!(limiter.peek(limit).key(7).await.is_ok());
        }
        assert_eq!(limiter.passed_uncounted(), 0);
        // A reset is by name, and needs no numbers.
        assert!(limiter.reset(&PAUSED).key(7).await.unwrap_err().is_unavailable());
    }
}

#[test]
fn what_was_used_is_still_used_when_the_key_is_back() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    at_once(limiter.limit(&FREE).key(7).cost(60)).unwrap();
    // As another plan of the same name.
    for _ in 0..50 {
        assert!(at_once(limiter.limit(&PAUSED).key(7)).is_err());
    }
    assert_eq!(left(&limiter), 40);
    // By replacing the numbers, and by putting them back.
    let before = limiter.replace(&FREE, Quota::none()).unwrap();
    assert_eq!((before, limiter.quota(&FREE)), (*FREE.quota(), Quota::none()));
    assert_eq!(at_once(limiter.limit(&FREE).key(7)).unwrap_err().to_string(), SAID);
    assert_eq!(left(&limiter), 0);
    // Meanwhile the bucket goes on as it was.
    clock.advance(DAY / 10);
    assert!(at_once(limiter.limit(&FREE).key(7)).is_err());
    assert_eq!(limiter.replace(&FREE, *FREE.quota()).unwrap(), Quota::none());
    assert_eq!(left(&limiter), 50);
    at_once(limiter.limit(&FREE).key(7).cost(50)).unwrap();
    // On a larger plan after a pause.
    limiter.replace(&FREE, Quota::none()).unwrap();
    assert!(at_once(limiter.limit(&FREE).key(7)).is_err());
    limiter.replace(&FREE, Quota::token_bucket(1_000, DAY)).unwrap();
    assert_eq!(left(&limiter), 900);
}

#[test]
fn work_that_was_granted_before_is_settled_and_reserved_as_before() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    let permit = at_once(limiter.limit(&FREE).key(7).cost(90)).unwrap();
    let refunded = at_once(limiter.limit(&FREE).key(7).cost(10)).unwrap();
    let reserved = at_once(limiter.limit(&FREE).key(7).cost(5).reserve()).unwrap();
    limiter.replace(&FREE, Quota::none()).unwrap();
    at_once(permit.settle(30)).unwrap();
    at_once(refunded.refund()).unwrap();
    assert!(reserved.at() > START);
    drop(reserved);
    assert!(at_once(limiter.limit(&FREE).key(7)).is_err(), "it is paused all the same");
    limiter.replace(&FREE, *FREE.quota()).unwrap();
    assert_eq!(left(&limiter), 70);
}

/// An operator pauses a limit and goes on to look after its keys.
#[test]
fn penalties_blocks_and_resets_count_by_the_own_numbers_of_a_limit_that_is_paused() {
    let limiter = limiter(&ManualClock::new(START));
    limiter.replace(&FREE, Quota::none()).unwrap();
    let owed = at_once(limiter.penalize(&FREE, 150).key(7)).unwrap();
    assert_eq!((owed.tokens().to_string().as_str(), owed.capacity()), ("-50", 100));
    at_once(limiter.block(&FREE, HOUR).key(8)).unwrap();
    let DebtorReport::Count { in_debt, blocked, .. } = at_once(limiter.debtors(&FREE)).unwrap()
    else {
        panic!("memory counts")
    };
    assert_eq!((in_debt, blocked), (1, 1));
    limiter.replace(&FREE, *FREE.quota()).unwrap();
    assert_eq!(at_once(limiter.peek(&FREE).key(7)).unwrap().tokens().to_string(), "-50");
    let blocked = at_once(limiter.peek(&FREE).key(8)).unwrap();
    assert_eq!(blocked.blocked_until(), Some(START + HOUR));
    limiter.replace(&FREE, Quota::none()).unwrap();
    at_once(limiter.reset(&FREE).key(7)).unwrap();
    limiter.replace(&FREE, *FREE.quota()).unwrap();
    assert_eq!(left(&limiter), 100);
}

#[test]
fn a_reset_of_a_paused_limit_finds_all_its_shards() {
    static HOT: Limit = Limit::new("hot", Quota::token_bucket(40, HOUR).shards(4));
    for pause in [Quota::none(), Quota::none().shards(4)] {
        let limiter = limiter(&ManualClock::new(START));
        at_once(limiter.penalize(&HOT, 30)).unwrap();
        limiter.replace(&HOT, pause).unwrap();
        at_once(limiter.reset(&HOT)).unwrap();
        limiter.replace(&HOT, *HOT.quota()).unwrap();
        assert_eq!(at_once(limiter.peek(&HOT)).unwrap().remaining(), 40);
    }
    // By a plan of that name, which says how many shards there are.
    let limiter = limiter(&ManualClock::new(START));
    at_once(limiter.penalize(&HOT, 30)).unwrap();
    at_once(limiter.reset(&SHARDED)).unwrap();
    assert_eq!(at_once(limiter.peek(&HOT)).unwrap().remaining(), 40);
}

/// A plan without numbers has none in which a penalty could be counted, and no silence about that.
#[test]
fn penalties_and_blocks_of_a_limit_that_is_made_with_nothing_are_refused() {
    let limiter = limiter(&ManualClock::new(START));
    at_once(limiter.limit(&FREE).key(7).cost(60)).unwrap();
    let said = |error: RateLimited| {
        is_refused_for_good(&error, &PAUSED);
        error.to_string()
    };
    assert_eq!(said(at_once(limiter.penalize(&PAUSED, 5).key(7)).unwrap_err()), SAID);
    assert_eq!(said(at_once(limiter.block(&PAUSED, HOUR).key(7)).unwrap_err()), SAID);
    assert_eq!(said(at_once(limiter.debtors(&PAUSED)).unwrap_err()), SAID);
    assert_eq!(left(&limiter), 40);
    at_once(limiter.reset(&PAUSED).key(7)).unwrap();
    assert_eq!(left(&limiter), 100);
}

#[test]
fn a_limiter_that_is_switched_off_lets_it_through() {
    let limiter = limiter(&ManualClock::new(START)).enabled(false);
    for limit in [&PAUSED, &SHARDED] {
        let permit = at_once(limiter.limit(limit).key(7).cost(3).and(&OTHER)).unwrap();
        assert!(!permit.is_decided());
        assert_eq!(permit.remaining(), 0);
        let left: Vec<_> = permit.snapshots().map(|one| one.tokens().to_string()).collect();
        assert_eq!(left, ["0", "5"]);
        at_once(permit.settle(7)).unwrap();
        assert!(at_once(limiter.limit(limit).key(7).reserve()).is_ok());
        assert!(at_once(limiter.penalize(limit, 5).key(7)).is_ok());
        assert!(at_once(limiter.block(limit, HOUR).key(7)).is_ok());
        assert!(at_once(limiter.debtors(limit)).is_ok());
    }
}

#[test]
fn a_limiter_that_is_switched_off_stays_off_in_another_store() {
    static ONE: Limit = Limit::new("one", Quota::token_bucket(1, HOUR));
    let limiter = RateLimiter::in_memory().enabled(false).with_backend(Memory::new());
    for _ in 0..3 {
        assert!(!at_once(limiter.limit(&ONE)).unwrap().is_decided());
    }
}

#[test]
fn observers_are_told_a_refusal_that_no_wait_helps() {
    #[derive(Default)]
    struct Seen(Mutex<Vec<(String, Outcome, u64, bool)>>);
    impl Observer for Seen {
        fn on_decision(&self, decision: &Decision<'_>) {
            let (limit, outcome) = (decision.limit().name().to_owned(), decision.outcome());
            assert_eq!(decision.wait(), None);
            self.0.lock().unwrap().push((limit, outcome, decision.cost(), decision.is_main()));
        }
    }
    let seen = Arc::new(Seen::default());
    let limiter = limiter(&ManualClock::new(START)).observe(Arc::clone(&seen));
    let told = || std::mem::take(&mut *seen.0.lock().unwrap());
    let refused = |limit: &str, cost| (limit.to_owned(), Outcome::Refused, cost, true);
    drop(at_once(limiter.limit(&PAUSED).cost(2)).unwrap_err());
    assert_eq!(told(), [refused("per-tenant", 2)]);
    drop(at_once(limiter.limit(&OTHER).and(&PAUSED)).unwrap_err());
    let other = ("other".to_owned(), Outcome::NotTaken, 1, false);
    assert_eq!(told(), [other, refused("per-tenant", 1)]);
    drop(at_once(limiter.limit(&SHARDED).reserve()).unwrap_err());
    assert_eq!(told(), [refused("hot", 1)]);
}

// The numbers.

#[test]
fn no_cost_fits_the_bucket_of_nothing() {
    let bucket = Bucket::new(&Quota::none()).unwrap();
    assert_eq!(Bucket::of_shard(SHARDED.quota()).unwrap(), bucket);
    for cost in [0, 1, 1 << 53, u64::MAX] {
        for terms in [Terms::AT_ONCE, Terms::reserving(bucket.floor())] {
            assert!(bucket.too_large(cost, terms) && bucket.too_large_for_pair(cost, terms));
        }
        let first = calculate(&Quota::none(), None, START, cost).unwrap();
        assert_eq!((first.verdict(), first.reserving()), (Verdict::Refused, Verdict::Refused));
        assert!(first.too_large() && first.too_large_to_reserve());
        let later = START + 10_000 * DAY;
        let next = calculate(&Quota::none(), Some(first.state()), later, cost).unwrap();
        assert_eq!((next.verdict(), next.too_large()), (Verdict::Refused, true));
    }
}

#[test]
fn nothing_has_one_text_whatever_the_kind_and_the_period() {
    for text in [
        "0 per day",
        "0/second",
        "0 per 90 minutes",
        "00 per week",
        "0_0 per day",
        "fixed window: 0 per hour",
        "token bucket: 0 per ms",
        "0 per day, shards 1",
    ] {
        let quota: Quota = text.parse().unwrap();
        assert_eq!((quota, quota.to_string().as_str()), (Quota::none(), "0 per day"), "{text}");
        assert!(quota.is_none());
    }
    let sharded: Quota = "0 per hour, shards 4".parse().unwrap();
    assert_eq!((sharded, sharded.to_string().as_str()), (*SHARDED.quota(), "0 per day, shards 4"));
    assert!(sharded.is_none() && !FREE.quota().is_none());
    assert_eq!((sharded.rate(), sharded.period(), sharded.get_capacity()), (0, DAY, 0));
    assert_eq!((sharded.get_initial(), sharded.get_max_reserved()), (0, None));
    // A capacity of nothing is something: all that waits gets its turn.
    assert!(!Quota::token_bucket(1, SECOND).capacity(0).is_none());
}

#[test]
fn nothing_has_no_settings_that_would_grant_something() {
    let start = Timestamp::UNIX_EPOCH;
    for quota in [
        Quota::none().capacity(5),
        Quota::none().capacity(0),
        Quota::none().max_reserved(5),
        Quota::none().initial(5),
        Quota::none().start(start),
    ] {
        let error = quota.validated().unwrap_err().to_string();
        assert_eq!(
            error,
            "a quota of 0 has no capacity, max_reserved, initial or start (drop them, or use a \
             rate above zero)"
        );
        assert!(Limit::try_new("a", quota).is_err());
    }
    assert!("0 per day, capacity 5".parse::<Quota>().is_err());
    assert!("fixed window: 0 per day, start @0".parse::<Quota>().is_err());
    assert!(Quota::none().shards(0).validated().is_err());
    assert!("0 per 0 seconds".parse::<Quota>().is_err());
    // A rate of zero in code is a mistake as before.
    let error = Quota::try_fixed_window(0, MINUTE).unwrap_err().to_string();
    assert!(error.ends_with("`Quota::none()` grants nothing)"), "{error}");
}

#[cfg(feature = "serde")]
#[test]
fn nothing_is_read_and_written_as_text_and_its_snapshot_has_no_time() {
    assert_eq!(
        serde_json::to_string(&PAUSED).unwrap(),
        r#"{"name":"per-tenant","quota":"0 per day"}"#
    );
    let read = serde_json::from_str::<Limit>(r#"{"name": "per-tenant", "quota": "0 per hour"}"#);
    assert_eq!(read.unwrap(), PAUSED);
    let limiter = limiter(&ManualClock::new(START));
    let seen = serde_json::to_value(at_once(limiter.peek(&PAUSED).cost(3)).unwrap()).unwrap();
    let null = serde_json::Value::Null;
    for (name, wanted) in [
        ("remaining", serde_json::json!(0)),
        ("capacity", serde_json::json!(0)),
        ("cost", serde_json::json!(3)),
        ("wait_ms", null.clone()),
        ("resets_at", null.clone()),
        ("window_end", null),
    ] {
        assert_eq!(seen[name], wanted, "{name}: {seen}");
    }
}
