//! Several limits at once: all of them or none, on time and within the bound.
//!
//! Time is a manual clock or tokio's paused one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::{Instant, advance};
use tollgate::algebra::{State, Terms, Verdict, charge, check_history};
use tollgate::backend::{BucketId, Memory};
use tollgate::clock::{Clock, ManualClock, TokioClock};
use tollgate::limiter::{LimitCall, Reservation, Snapshot};
use tollgate::{
    HOUR, Key, Limit, MINUTE, Observer, Quota, RateLimited, RateLimiter, SECOND, Timestamp,
};
use tollgate_testing::cases::{seeds, times};
use tollgate_testing::dice::Dice;
use tollgate_testing::queue::{Late, Turn, ms, paused, poll, settled, tokens};
use tollgate_testing::shared::Shared;
use tollgate_testing::{START, at_once, is_admitted, quotas, store};

/// A charge on one limit: its index, a key, and the cost.
type Ask = (usize, u64, u64);

/// A call for all of these charges, in their order.
fn all<'l>(limiter: &'l RateLimiter, limits: &'l [Limit], asks: &[Ask]) -> LimitCall<'l> {
    let ((limit, key, cost), rest) = asks.split_first().expect("one ask at least");
    let first = limiter.limit(&limits[*limit]).key(*key).cost(*cost);
    rest.iter()
        .fold(first, |call, &(limit, key, cost)| call.and(&limits[limit]).key(key).cost(cost))
}

/// Three limits, each with a quota of its own.
fn three_limits() -> impl Strategy<Value = Vec<Limit>> {
    let reserved = prop_oneof![Just(None), (0_u64..40).prop_map(Some)];
    prop::collection::vec((quotas(), reserved), 3).prop_filter_map("fit 2^53 units", |quotas| {
        let named = ["a", "b", "c"].into_iter().zip(quotas);
        let limit = |(name, (quota, reserved)): (&str, (Quota, Option<u64>))| {
            let quota = reserved.map_or(quota, |tokens| quota.max_reserved(tokens));
            Limit::try_new(name, quota).ok()
        };
        named.map(limit).collect()
    })
}

fn asks() -> impl Strategy<Value = Vec<Ask>> {
    let cost = prop_oneof![12 => 0_u64..=3, 6 => 0_u64..=30, 1 => Just(u64::MAX)];
    // Long lists are decided by sorting, not pair by pair.
    let (ask, long) = ((0_usize..3, 0_u64..2, cost), (0_usize..3, 0_u64..9, 0_u64..=2));
    prop_oneof![
        4 => prop::collection::vec(ask, 1..6),
        1 => prop::collection::vec(long, 9..30),
    ]
}

/// How far a step advances the clock.
#[derive(Clone, Copy, Debug)]
enum Pass {
    Nothing,
    /// Thousandths of the time in which the first limit gains a token.
    Part(u32),
    /// To the instant that the last refusal advertised.
    AsTold,
}

fn passes() -> impl Strategy<Value = Pass> {
    prop_oneof![
        3 => Just(Pass::Nothing),
        4 => (0_u32..4_000).prop_map(Pass::Part),
        2 => Just(Pass::AsTold),
    ]
}

fn pass(pass: Pass, now: Timestamp, limit: &Limit, told: Timestamp) -> Timestamp {
    let bucket = limit.bucket();
    let token = (bucket.token() / bucket.gain() * bucket.step()).max(1_000);
    match pass {
        Pass::Nothing => now,
        Pass::Part(thousandths) => {
            now + Duration::from_micros(token / 1_000 * u64::from(thousandths))
        }
        Pass::AsTold => told.max(now),
    }
}

/// The instant at which this bucket alone could grant what was taken from it.
fn own_instant(snapshot: &Snapshot) -> Timestamp {
    snapshot.at() + snapshot.wait().expect("it was granted")
}

/// The verdict of a request, its wait and its snapshots. What it took stays taken.
type Decided = (Verdict, Duration, Vec<Snapshot>);

/// The outcome of a call that takes at once, or reserves. `Err` is any error but a refusal.
fn decide(call: LimitCall<'_>, reserves: bool) -> Result<Decided, RateLimited> {
    let granted = match reserves {
        true => at_once(call.reserve()).map(|reservation| {
            let (wait, snapshots) = (reservation.wait(), reservation.snapshots().collect());
            drop(reservation.keep());
            let verdict = if wait.is_zero() { Verdict::Admitted } else { Verdict::Reserved };
            (verdict, wait, snapshots)
        }),
        false => at_once(call)
            .map(|permit| (Verdict::Admitted, Duration::ZERO, permit.snapshots().collect())),
    };
    granted.or_else(|error| match error.retry_after() {
        Some(wait) => Ok((Verdict::Refused, wait, error.snapshots().to_vec())),
        None => Err(error),
    })
}

/// The names of the limits that have refused.
fn refused_by(error: &RateLimited) -> Vec<&str> {
    error.snapshots().iter().map(|snapshot| snapshot.limit().name()).collect()
}

proptest! {
    /// P2: each bucket, counted at its own instants, is within its bound.
    #[test]
    fn no_window_of_any_bucket_holds_more_than_its_bound(
        limits in three_limits(),
        steps in prop::collection::vec((passes(), asks(), any::<bool>()), 1..40),
    ) {
        let clock = ManualClock::new(START);
        let (_, limiter) = store(Memory::new(), &clock);
        let mut ran: HashMap<(usize, u64), Vec<(Timestamp, u64)>> = HashMap::new();
        let (mut now, mut told) = (START, START);
        for (step, asks, reserves) in steps {
            now = pass(step, now, &limits[0], told);
            clock.set(now);
            let Ok((verdict, wait, snapshots)) = decide(all(&limiter, &limits, &asks), reserves)
            else { continue };
            if verdict == Verdict::Refused {
                told = now + wait;
                continue;
            }
            prop_assert_eq!(snapshots.len(), asks.len());
            for ((limit, key, cost), snapshot) in asks.into_iter().zip(&snapshots) {
                ran.entry((limit, key)).or_default().push((own_instant(snapshot), cost));
            }
        }
        for ((limit, _), ran) in ran {
            prop_assert_eq!(check_history(limits[limit].quota(), &ran).unwrap(), None);
        }
    }

    /// P3: a refused transaction is refused one tick before the advertised time, and admitted at
    /// it.
    #[test]
    fn the_wait_is_the_smallest_that_works_for_all(
        limits in three_limits(),
        steps in prop::collection::vec((passes(), asks()), 1..40),
    ) {
        let clock = ManualClock::new(START);
        let (_, limiter) = store(Memory::new(), &clock);
        let mut now = START;
        for (step, asks) in steps {
            now = pass(step, now, &limits[0], now);
            clock.set(now);
            let answer = at_once(all(&limiter, &limits, &asks));
            let Some(wait) = answer.err().and_then(|error| error.retry_after()) else { continue };
            prop_assert!(wait > Duration::ZERO);
            now = now + wait;
            clock.set(Timestamp::from_micros(now.as_micros() - 1));
            prop_assert!(!is_admitted(all(&limiter, &limits, &asks)));
            clock.set(now);
            prop_assert!(is_admitted(all(&limiter, &limits, &asks)));
        }
    }

    /// P4: all or nothing, as in a model that charges one bucket after another. The refusal names
    /// the limits that refused, each with its own wait.
    #[test]
    fn transactions_are_what_a_sequential_model_says(
        limits in three_limits(),
        steps in prop::collection::vec((passes(), asks(), any::<bool>()), 1..30),
    ) {
        let clock = ManualClock::new(START);
        let (memory, limiter) = store(Memory::new(), &clock);
        let mut model: HashMap<(usize, u64), State> = HashMap::new();
        let (mut now, mut told) = (START, START);
        for (step, asks, reserves) in steps {
            now = pass(step, now, &limits[0], told);
            clock.set(now);
            let stored = memory.len();
            let answer = decide(all(&limiter, &limits, &asks), reserves);

            let absent = |&(limit, key): &(usize, u64)| {
                let key = Key::from(key);
                let bucket = limits[limit].bucket();
                bucket.absent(now, BucketId::new(limits[limit].name(), &key).phase(bucket))
            };
            let terms = |limit: usize| match reserves {
                true => Terms::reserving(limits[limit].bucket().floor()),
                false => Terms::AT_ONCE,
            };
            let fits = |&(limit, key, _): &Ask| {
                let same = asks.iter().filter(|other| (other.0, other.1) == (limit, key));
                let sum = same.fold(0_u64, |sum, &(.., cost)| sum.saturating_add(cost));
                !limits[limit].bucket().too_large(sum, terms(limit))
            };
            if !asks.iter().all(fits) {
                prop_assert!(answer.is_err_and(|error| error.is_too_large()));
                prop_assert_eq!(memory.len(), stored);
                continue;
            }
            let mut after = model.clone();
            let mut charges = Vec::new();
            for &(limit, key, cost) in &asks {
                let bucket = limits[limit].bucket();
                let state = after.get(&(limit, key)).copied();
                let state = state.unwrap_or_else(|| absent(&(limit, key)));
                let charged = charge(bucket, state, bucket.units(cost).unwrap(), terms(limit), now);
                if cost > 0 {
                    after.insert((limit, key), charged.after());
                }
                charges.push((charged.verdict(), charged.wait()));
            }
            let any = |verdict| charges.iter().any(|&(of, _)| of == verdict);
            let refused = any(Verdict::Refused);
            let expected = match (refused, any(Verdict::Reserved)) {
                (true, _) => Verdict::Refused,
                (_, true) => Verdict::Reserved,
                _ => Verdict::Admitted,
            };
            let (verdict, wait, snapshots) = answer.unwrap();
            prop_assert_eq!(verdict, expected);
            prop_assert_eq!(wait, charges.iter().map(|&(_, wait)| wait).max().unwrap());

            let named: Vec<_> = asks.iter().zip(&charges)
                .filter(|(_, (verdict, _))| !refused || *verdict == Verdict::Refused)
                .collect();
            prop_assert_eq!(snapshots.len(), named.len());
            if refused {
                prop_assert_eq!(memory.len(), stored);
                told = now + wait;
            } else {
                model = after;
            }
            for (snapshot, (&(limit, key, cost), &(verdict, wait))) in snapshots.iter().zip(named) {
                prop_assert_eq!(snapshot.limit(), &limits[limit]);
                prop_assert_eq!(snapshot.fits(), verdict == Verdict::Admitted);
                prop_assert_eq!((snapshot.wait(), snapshot.cost()), (Some(wait), cost));
                let held = model.get(&(limit, key)).copied();
                let held = held.unwrap_or_else(|| absent(&(limit, key)));
                prop_assert_eq!(snapshot.state(), limits[limit].bucket().refresh(held, now));
            }
            for (limit, of) in limits.iter().enumerate() {
                for key in 0..2 {
                    let held = model.get(&(limit, key)).copied();
                    let held = held.unwrap_or_else(|| absent(&(limit, key)));
                    let seen = at_once(limiter.peek(of).key(key)).unwrap().state();
                    prop_assert_eq!(seen, of.bucket().refresh(held, now));
                }
            }
        }
    }

    /// An observed limiter makes a list of each call. One without an observer takes from a few known
    /// buckets in another way, and answers and settles alike.
    #[test]
    fn calls_with_a_list_and_without_one_end_alike(
        limits in three_limits(),
        shards in 1_u32..4,
        steps in prop::collection::vec((passes(), distinct_asks(), ends()), 1..30),
    ) {
        let split = |limit: &Limit| Limit::try_new(limit.name(), limit.quota().shards(shards));
        let limits: Vec<_> =
            limits.iter().map(|limit| split(limit).unwrap_or_else(|_| limit.clone())).collect();
        let clock = ManualClock::new(START);
        let limiters = [store(Memory::new(), &clock).1, store(Memory::new(), &clock).1];
        let [plain, observed] = limiters.map(|limiter| limiter.seed(7));
        let observed = observed.observe(Silent);
        let mut now = START;
        for (step, asks, end) in steps {
            now = pass(step, now, &limits[0], now);
            clock.set(now);
            let [answer, expected] =
                [&plain, &observed].map(|limiter| finish(all(limiter, &limits, &asks), &end));
            prop_assert_eq!(answer, expected);
            for limit in &limits {
                for key in 0..9_u64 {
                    let [seen, expected] = [&plain, &observed]
                        .map(|limiter| at_once(limiter.peek(limit).key(key)).unwrap().state());
                    prop_assert_eq!(seen, expected);
                }
            }
        }
    }
}

struct Silent;

impl Observer for Silent {}

/// Up to ten charges, few of which are on one bucket.
fn distinct_asks() -> impl Strategy<Value = Vec<Ask>> {
    prop::collection::vec((0_usize..3, 0_u64..9, 0_u64..=2), 1..=10)
}

/// What becomes of a permit.
#[derive(Clone, Copy, Debug)]
enum End {
    Dropped,
    Settled(u64),
    Refunded,
    SettledLater(u64),
    NoLongerInFlight,
}

fn ends() -> impl Strategy<Value = End> {
    prop_oneof![
        3 => Just(End::Dropped),
        2 => (0_u64..=3).prop_map(End::Settled),
        1 => Just(End::Refunded),
        1 => (0_u64..=3).prop_map(End::SettledLater),
        1 => Just(End::NoLongerInFlight),
    ]
}

/// All that a call says, also at its end.
fn finish(call: LimitCall<'_>, end: &End) -> String {
    let permit = match at_once(call) {
        Ok(permit) => permit,
        Err(error) => return format!("{error:?}"),
    };
    let granted = format!("{permit:?}");
    let settled = match *end {
        End::Dropped => return granted,
        End::Settled(actual) => at_once(permit.settle(actual)),
        End::Refunded => at_once(permit.refund()),
        End::SettledLater(actual) => at_once(permit.into_owned().settle(actual)),
        End::NoLongerInFlight => {
            drop(permit.in_flight());
            return granted;
        }
    };
    format!("{granted}, {settled:?}")
}

// What refusals say.

static REQUESTS: Limit = Limit::new("requests", Quota::token_bucket(10, SECOND));
static TENANT: Limit = Limit::new("tenant", Quota::token_bucket(20, HOUR));
static TOKENS: Limit = Limit::new("tokens", Quota::token_bucket(100, SECOND));

#[test]
fn the_refusal_names_every_limit_that_refused_and_only_those() {
    let (memory, limiter) = store(Memory::new(), &ManualClock::new(START));
    let ask = |requests, tenant, tokens| {
        let call = limiter.limit(&REQUESTS).cost(requests).and(&TENANT).key("acme");
        at_once(call.cost(tenant).and(&TOKENS).cost(tokens))
    };
    assert!(ask(8, 10, 50).is_ok());
    let stored = memory.len();
    let refused = ask(4, 10, 80).unwrap_err();
    let named: Vec<_> = refused
        .snapshots()
        .iter()
        .map(|one| (one.limit().name(), one.cost(), one.remaining(), one.wait().unwrap()))
        .collect();
    assert_eq!(named, [("requests", 4, 2, ms(200)), ("tokens", 80, 50, ms(300))]);
    assert!(refused.is_refused() && !refused.snapshots().iter().any(Snapshot::fits));
    assert_eq!((refused.limit(), refused.retry_after()), (&REQUESTS, Some(ms(300))));
    assert_eq!(refused.to_string(), "refused by limit `requests`, `tokens` (retry after 300ms)");
    assert_eq!(memory.len(), stored);
    // The refused call took nothing, so the next one finds all that is left.
    assert!(ask(2, 10, 50).is_ok());
    let refused = ask(0, 1, 0).unwrap_err();
    assert_eq!((refused.limit(), refused.snapshots().len()), (&TENANT, 1));
    assert_eq!(refused.retry_after(), Some(HOUR / 20));
}

/// A limit that would have reserved is not named in the refusal, but its wait counts.
#[test]
fn a_limit_that_would_have_reserved_has_not_refused_but_lengthens_the_wait() {
    let clock = ManualClock::new(START);
    let (_, limiter) = store(Memory::new(), &clock);
    static FIRM: Limit = Limit::new("firm", Quota::token_bucket(10, SECOND).max_reserved(0));
    let both = || at_once(limiter.limit(&FIRM).cost(10).and(&TENANT).cost(20).reserve());
    let first = both().unwrap();
    assert_eq!(first.wait(), Duration::ZERO);
    drop(first.keep());
    let refused = both().unwrap_err();
    assert_eq!(refused.snapshots().len(), 1);
    let by = &refused.snapshots()[0];
    assert_eq!((by.limit(), by.wait()), (&FIRM, Some(SECOND)));
    assert_eq!(refused.retry_after(), Some(HOUR));
    clock.advance(SECOND);
    assert_eq!(both().unwrap().wait(), HOUR - SECOND);
}

#[test]
fn a_bucket_that_is_named_twice_pays_twice() {
    let (_, limiter) = store(Memory::new(), &ManualClock::new(START));
    let twice = |first, second| {
        let call = limiter.limit(&REQUESTS).key("a").cost(first);
        at_once(call.and(&TOKENS).and(&REQUESTS).key("a").cost(second))
    };
    let permit = twice(3, 4).unwrap();
    let left: Vec<_> = permit.snapshots().map(|snapshot| snapshot.remaining()).collect();
    assert_eq!(left, [3, 99, 3], "each snapshot shows what its bucket holds in the end");
    assert_eq!(permit.remaining(), 3);
    // Either charge fits alone, and both do not: the first takes the tokens that the second lacks.
    let refused = twice(2, 3).unwrap_err();
    assert_eq!(refused.snapshots().len(), 1);
    assert_eq!(refused.retry_after(), Some(ms(200)));
    assert_eq!(at_once(permit.refund()).unwrap().remaining(), 10);
    assert_eq!(at_once(limiter.peek(&TOKENS)).unwrap().remaining(), 100);

    let error = twice(5, 6).unwrap_err();
    assert!(error.is_too_large());
    assert!(error.to_string().starts_with("cost of 11 can never fit limit `requests`"), "{error}");
    assert!(twice(u64::MAX, u64::MAX).unwrap_err().is_too_large());
    // Another key is another bucket.
    let call = limiter.limit(&REQUESTS).key("a").cost(5).and(&REQUESTS).key("b").cost(6);
    assert!(is_admitted(call));
}

#[test]
fn limits_of_one_name_in_other_shards_are_other_buckets() {
    // A shard of the second limit has exactly the quota of the first.
    let whole = Limit::new("hot", Quota::token_bucket(5, MINUTE));
    let halves = Limit::new("hot", Quota::token_bucket(10, MINUTE).shards(2));
    assert_eq!(whole.bucket(), halves.bucket());
    for [first, second] in [[&whole, &halves], [&halves, &whole]] {
        let (_, limiter) = store(Memory::new(), &ManualClock::new(START));
        let permit = at_once(limiter.limit(first).and(second)).unwrap();
        assert!(permit.snapshots().all(|snapshot| snapshot.cost() == 1), "{permit:?}");
        at_once(permit.refund()).unwrap();
        assert_eq!(at_once(limiter.peek(&halves)).unwrap().remaining(), 10);
    }
}

#[test]
fn what_one_limit_can_never_grant_takes_nothing_from_the_others() {
    let (memory, limiter) = store(Memory::new(), &ManualClock::new(START));
    let call = limiter.limit(&REQUESTS).and(&TENANT).cost(21).and(&TOKENS);
    let error = at_once(call).unwrap_err();
    assert!(error.is_too_large());
    assert_eq!(error.limit(), &TENANT);
    assert!(memory.is_empty());
}

#[test]
fn a_cost_of_zero_is_refused_only_during_debt() {
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new(), &clock);
    let ask = || at_once(limiter.limit(&REQUESTS).cost(0).and(&TOKENS).cost(1));
    assert!(ask().is_ok());
    assert_eq!(memory.len(), 1, "a bucket that pays nothing is not stored");
    drop(reserved(limiter.limit(&REQUESTS).cost(12)).keep());
    let refused = ask().unwrap_err();
    assert_eq!((refused.limit(), refused.retry_after()), (&REQUESTS, Some(ms(200))));
    clock.advance(ms(200));
    assert!(ask().is_ok());
}

#[test]
fn a_dozen_limits_are_one_transaction() {
    let (memory, limiter) = store(Memory::new(), &ManualClock::new(START));
    let limits: Vec<_> = (1..=12)
        .map(|nth| Limit::try_new(format!("limit-{nth}"), Quota::token_bucket(nth, HOUR)).unwrap())
        .collect();
    let each: Vec<Ask> = (0..12).map(|nth| (nth, 7, 1)).collect();
    let permit = at_once(all(&limiter, &limits, &each)).unwrap();
    assert_eq!(
        permit.snapshots().map(|snapshot| snapshot.remaining()).collect::<Vec<_>>(),
        Vec::from_iter(0..12)
    );
    assert_eq!((permit.remaining(), memory.len()), (0, 12));
    // `limit-4` has three tokens left: it alone refuses a cost of four.
    let dear: Vec<Ask> = (3..12).map(|nth| (nth, 7, 4)).collect();
    let refused = at_once(all(&limiter, &limits, &dear)).unwrap_err();
    assert_eq!(refused_by(&refused), ["limit-4"]);
    assert_eq!(refused.retry_after(), Some(HOUR / 4));
    at_once(permit.into_owned().refund()).unwrap();
    for limit in &limits {
        let left = at_once(limiter.peek(limit).key(7_u64)).unwrap().remaining();
        assert_eq!(left, limit.quota().rate());
    }
}

/// A former version compared all pairs of them: 8,000 limits in one call took more than a second.
#[test]
fn thousands_of_limits_are_one_transaction() {
    const LIMITS: usize = 8_000;
    let quota = |rate: u64| Quota::token_bucket(rate, HOUR).max_reserved(10);
    let limits: Vec<_> = (0..LIMITS)
        .map(|nth| Limit::try_new(format!("limit-{nth}"), quota(2 + nth as u64 % 50)).unwrap())
        .collect();
    let (memory, limiter) = store(Memory::new(), &ManualClock::new(START));
    // The last one is named a second time.
    let asks: Vec<_> = (0..LIMITS).chain([LIMITS - 1]).map(|nth| (nth, 1, 1)).collect();
    let left = |nth: usize| at_once(limiter.peek(&limits[nth]).key(1_u64)).unwrap().tokens();
    let permit = at_once(all(&limiter, &limits, &asks)).unwrap();
    assert_eq!((memory.len(), permit.snapshots().count()), (LIMITS, LIMITS + 1));
    assert_eq!(["1", "2", "3"], [0, 1, 2].map(|nth| left(nth).to_string().leak() as &str));
    assert_eq!(left(LIMITS - 1).to_string(), "49");
    at_once(permit.refund()).unwrap();
    assert_eq!(left(LIMITS - 1).to_string(), "51");

    // Twice as much as most limits hold: the request waits for all of them, and leaves all their
    // queues.
    let twice = asks.iter().chain(&asks).map(|&(nth, key, cost)| (nth, key, 3 * cost));
    let twice: Vec<_> = twice.collect();
    let refused = at_once(all(&limiter, &limits, &twice)).unwrap_err();
    assert!(refused.is_too_large(), "{refused}");
    let waits = at_once(all(&limiter, &limits, &twice).reserve()).unwrap();
    assert_eq!(left(0).to_string(), "-4");
    assert_eq!(left(LIMITS - 1).to_string(), "39");
    drop(waits);
    for nth in [0, 1, LIMITS / 2, LIMITS - 1] {
        assert_eq!(left(nth).to_string(), (2 + nth % 50).to_string());
    }
}

#[test]
fn without_a_key_all_clients_share_a_bucket_and_without_a_cost_a_call_takes_one_token() {
    let (_, limiter) = store(Memory::new(), &ManualClock::new(START));
    let call = limiter.limit(&REQUESTS).and(&TENANT).key("acme").cost(3).and(&TOKENS);
    let permit = at_once(call).unwrap();
    let left: Vec<_> = permit.snapshots().map(|snapshot| snapshot.remaining()).collect();
    assert_eq!(left, [9, 17, 99]);
    assert_eq!(permit.snapshot().limit(), &REQUESTS);
    assert_eq!(at_once(limiter.peek(&REQUESTS)).unwrap().remaining(), 9);
    assert_eq!(at_once(limiter.peek(&TENANT)).unwrap().remaining(), 20);
    assert_eq!(at_once(limiter.peek(&TENANT).key("acme")).unwrap().remaining(), 17);
}

// Settling.

#[test]
fn only_limits_with_an_explicit_cost_are_settled() {
    let (_, limiter) = store(Memory::new(), &ManualClock::new(START));
    let left = || [&REQUESTS, &TENANT, &TOKENS].map(|limit| at_once(limiter.peek(limit)).unwrap());
    let tokens = || left().map(|snapshot| snapshot.tokens().to_string());
    let take = |limiter: &'static RateLimiter| {
        let call = limiter.limit(&REQUESTS).and(&TENANT).cost(5).and(&TOKENS).cost(40);
        at_once(call).unwrap()
    };
    let kept: &'static RateLimiter = Box::leak(Box::new(limiter.clone()));
    let snapshot = at_once(take(kept).settle(3)).unwrap();
    assert_eq!(
        (snapshot.limit(), snapshot.remaining()),
        (&TENANT, 17),
        "the first limit with an explicit cost"
    );
    assert_eq!(tokens(), ["9", "17", "97"]);
    at_once(take(kept).into_owned().settle(50)).unwrap();
    assert_eq!(tokens(), ["8", "-33", "47"]);

    // Without an explicit cost, all limits are settled.
    let (_, limiter) = store(Memory::new(), &ManualClock::new(START));
    let left =
        || [&REQUESTS, &TENANT].map(|limit| at_once(limiter.peek(limit)).unwrap().remaining());
    let take = || at_once(limiter.limit(&REQUESTS).and(&TENANT)).unwrap();
    assert_eq!(at_once(take().settle(4)).unwrap().limit(), &REQUESTS);
    assert_eq!(left(), [6, 16]);
    assert_eq!(at_once(take().settle(0)).unwrap().remaining(), 6);
    assert_eq!(left(), [6, 16]);
}

#[test]
fn a_refund_gives_all_back_to_all() {
    let (_, limiter) = store(Memory::new(), &ManualClock::new(START));
    let left = || {
        [&REQUESTS, &TENANT, &TOKENS].map(|limit| at_once(limiter.peek(limit)).unwrap().remaining())
    };
    for owned in [false, true] {
        let call = limiter.limit(&REQUESTS).and(&TENANT).cost(5).and(&TOKENS).cost(40);
        let permit = at_once(call).unwrap();
        assert_eq!(left(), [9, 15, 60]);
        let refund = if owned { permit.into_owned().refund() } else { permit.refund() };
        // The refund is complete although its future is dropped.
        drop(refund);
        assert_eq!(left(), [10, 20, 100]);
    }
}

// Reserving.

/// One a second, one every two seconds, and one every three: nothing is saved up.
static SECONDS: Limit = Limit::new("seconds", Quota::token_bucket(1, SECOND).capacity(0));
static TWOS: Limit = Limit::new("twos", Quota::token_bucket(30, MINUTE).capacity(0));
static THREES: Limit = Limit::new("threes", Quota::token_bucket(20, MINUTE).capacity(0));

#[track_caller]
fn reserved(call: LimitCall<'_>) -> Reservation {
    let reservation = at_once(call.reserve()).unwrap();
    assert!(reservation.wait() > Duration::ZERO, "the tokens were there: {reservation:?}");
    reservation
}

/// A reservation in the queue.
#[track_caller]
fn waiter(call: LimitCall<'_>) -> Turn {
    let mut waiter = Box::pin(reserved(call).ready());
    assert!(poll(&mut waiter).is_none(), "its instant has not come");
    waiter
}

fn owed(limiter: &RateLimiter) -> [f64; 3] {
    [&SECONDS, &TWOS, &THREES].map(|limit| -tokens(limiter, limit))
}

/// A call on two limits, in either order.
fn pair<'l>(limiter: &'l RateLimiter, [seconds, twos]: [u64; 2], turned: bool) -> LimitCall<'l> {
    match turned {
        false => limiter.limit(&SECONDS).cost(seconds).and(&TWOS).cost(twos),
        true => limiter.limit(&TWOS).cost(twos).and(&SECONDS).cost(seconds),
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_is_the_longest_and_every_bucket_tells_its_own() {
    let limiter = paused();
    let start = Instant::now();
    let call = limiter.limit(&TOKENS).cost(7).and(&THREES).and(&SECONDS).cost(2);
    let reservation = reserved(call);
    assert_eq!(reservation.wait(), 3 * SECOND);
    let snapshots: Vec<_> = reservation.snapshots().collect();
    let told: Vec<_> =
        snapshots.iter().map(|one| (one.limit().name(), one.fits(), one.wait().unwrap())).collect();
    assert_eq!(
        told,
        [
            ("tokens", true, Duration::ZERO),
            ("threes", false, 3 * SECOND),
            ("seconds", false, 2 * SECOND),
        ]
    );
    assert_eq!(reservation.snapshot().limit(), &TOKENS);
    let at = reservation.at();
    let permit = reservation.ready().await;
    assert_eq!((start.elapsed(), permit.at()), (3 * SECOND, at));
    assert_eq!(permit.snapshots().count(), 3);
    assert_eq!(permit.remaining(), 0);
}

#[tokio::test(start_paused = true)]
async fn all_hold_the_reservation_or_none_does() {
    static FEW: Limit =
        Limit::new("few", Quota::token_bucket(1, SECOND).capacity(0).max_reserved(2));
    let limiter = paused();
    let all = |few| limiter.limit(&SECONDS).and(&FEW).cost(few).and(&TWOS);
    let first = reserved(all(2));
    assert_eq!((owed(&limiter), tokens(&limiter, &FEW)), ([1.0, 1.0, 0.0], -2.0));
    for call in [all(1).reserve(), all(1).reserve_within(HOUR)] {
        let refused = at_once(call).unwrap_err();
        assert_eq!(refused_by(&refused), ["few"]);
        assert_eq!(
            refused.retry_after(),
            Some(4 * SECOND),
            "the second of two turns of two seconds"
        );
    }
    assert!(at_once(all(3).reserve()).unwrap_err().is_too_large());
    assert_eq!((owed(&limiter), tokens(&limiter, &FEW)), ([1.0, 1.0, 0.0], -2.0));
    // `reserve_within` compares the longest of the waits.
    advance(SECOND).await;
    let refused = at_once(all(1).reserve_within(2 * SECOND)).unwrap_err();
    assert_eq!(refused_by(&refused), ["twos"]);
    let second = at_once(all(1).reserve_within(3 * SECOND)).unwrap();
    assert_eq!(second.wait(), 3 * SECOND);
    drop((second, first));
}

#[tokio::test(start_paused = true)]
async fn dropping_gives_back_to_all_exactly() {
    static SAVED: Limit = Limit::new("saved", Quota::token_bucket(3, HOUR).capacity(50));
    static HOT: Limit = Limit::new("hot", Quota::token_bucket(10, SECOND).capacity(0).shards(5));
    let limiter = paused();
    drop(reserved(limiter.limit(&SECONDS).cost(2).and(&HOT).cost(3)).keep());
    advance(ms(300)).await;
    let all = |limiter: &RateLimiter| {
        [&SECONDS, &TWOS, &SAVED, &HOT].map(|limit| at_once(limiter.peek(limit)).unwrap().state())
    };
    let before = all(&limiter);
    for polled in [false, true] {
        let call = limiter.limit(&TWOS).and(&SECONDS).cost(3).and(&SAVED).cost(20);
        let reservation = reserved(call.and(&HOT).cost(4).and(&SECONDS).cost(2));
        assert_eq!(reservation.wait(), ms(6_700), "2, 3 and 2 of a second each, 300 ms ago");
        assert_ne!(all(&limiter), before);
        match polled {
            true => drop(reservation.ready()),
            false => drop(reservation),
        }
        assert_eq!(all(&limiter), before);
    }
    // If a handler returns early with the error of another limit, its reservation is given up as
    // well.
    let leave = || {
        let _both = at_once(pair(&limiter, [1, 1], false).and(&SAVED).cost(5).reserve())?;
        at_once(limiter.limit(&SECONDS).reserve_within(SECOND)).map(drop)
    };
    assert_eq!(leave().unwrap_err().to_string(), "refused by limit `seconds` (retry after 3.7s)");
    assert_eq!(all(&limiter), before);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_is_undone_in_no_bucket_if_one_was_charged_since() {
    let limiter = Shared::new().limiter();
    let both = reserved(pair(&limiter, [1, 1], false));
    let other = reserved(limiter.limit(&TWOS).and(&THREES));
    drop(both);
    assert_eq!(owed(&limiter), [1.0, 2.0, 1.0]);
    drop(other);
    assert_eq!(owed(&limiter)[1..], [1.0, 0.0]);
}

#[tokio::test(start_paused = true)]
async fn a_slot_goes_to_a_waiter_on_the_same_buckets_in_whatever_order_they_are_named() {
    let limiter = Shared::new().limiter();
    let start = Instant::now();
    let first = waiter(pair(&limiter, [1, 1], false));
    // All these take a token of either or both limits, but none of them from the same two buckets.
    let mut others = [
        waiter(limiter.limit(&SECONDS)),
        waiter(limiter.limit(&TWOS)),
        waiter(pair(&limiter, [1, 1], false).and(&THREES)),
        waiter(limiter.limit(&SECONDS).key("a").and(&TWOS)),
        waiter(limiter.limit(&SECONDS).and(&TWOS).key("a")),
    ];
    let same = waiter(pair(&limiter, [1, 1], true));
    let promised = [2, 4, 6, 8, 4].map(|seconds| seconds * SECOND);
    drop(first);
    assert_eq!(owed(&limiter), [4.0, 4.0, 1.0], "the last slot is undone");
    let permit = same.await;
    assert_eq!(start.elapsed(), 2 * SECOND, "it has the slot of the first");
    assert_eq!(
        permit.snapshots().map(|one| one.limit().name().to_owned()).collect::<Vec<_>>(),
        ["twos", "seconds"]
    );
    let mut runs = [Duration::ZERO; 5];
    for _ in 0..10 {
        for (runs, waiter) in runs.iter_mut().zip(&mut others) {
            if runs.is_zero() && poll(waiter).is_some() {
                *runs = start.elapsed();
            }
        }
        advance(SECOND).await;
    }
    assert_eq!(runs, promised, "the others run as if the first had not left");
}

#[tokio::test(start_paused = true)]
async fn a_slot_goes_to_a_waiter_that_fits_into_it_in_every_bucket() {
    let limiter = Shared::new().limiter();
    let start = Instant::now();
    let first = waiter(pair(&limiter, [3, 3], false));
    let mut much_of_one = waiter(pair(&limiter, [4, 1], false));
    let mut much_of_the_other = waiter(pair(&limiter, [1, 4], true));
    let mut small = waiter(pair(&limiter, [3, 2], true));
    let mut smaller = waiter(pair(&limiter, [1, 1], false));
    assert_eq!(owed(&limiter), [12.0, 11.0, 0.0]);
    drop(first);
    // No other costs the same, so the slot is on offer until its instant at 6 s. Then the small waiter
    // gets it, and its own slot at 20 s goes to the smaller one.
    assert_eq!(owed(&limiter), [12.0, 11.0, 0.0]);
    for (at, waiter) in
        [(6, &mut small), (8, &mut much_of_one), (16, &mut much_of_the_other), (20, &mut smaller)]
    {
        advance(at * SECOND - start.elapsed() - ms(1)).await;
        assert!(poll(waiter).is_none(), "{at}");
        advance(ms(1)).await;
        assert!(poll(waiter).is_some(), "{at}");
    }
}

/// A bucket at a cost of zero still delays a request while it is in debt.
#[tokio::test(start_paused = true)]
async fn a_slot_goes_to_no_waiter_that_has_to_wait_for_the_debt_of_another_bucket() {
    let limiter = paused();
    let start = Instant::now();
    drop(reserved(limiter.limit(&SECONDS).cost(10)).keep());
    let first = waiter(limiter.limit(&TWOS).cost(2));
    let out_of_debt = limiter.limit(&SECONDS).cost(0).and(&TWOS).cost(1);
    let second = waiter(out_of_debt);
    drop(first);
    let _permit = second.await;
    assert_eq!(start.elapsed(), SECOND * 10);
}

/// Requests with the same instant are ordered by the queue, whatever the order in which they name
/// the limits.
#[tokio::test(start_paused = true)]
async fn work_of_one_instant_runs_in_order_however_the_limits_are_named() {
    let clock = TokioClock::new();
    let window = |rate| Quota::fixed_window(rate, SECOND).capacity(0).start(clock.now());
    let (wide, narrow) = (Limit::new("wide", window(100)), Limit::new("narrow", window(10)));
    let limiter = RateLimiter::new(Memory::new().clock(clock));
    let first = waiter(limiter.limit(&narrow).cost(3).and(&wide));
    let second = waiter(limiter.limit(&wide).and(&narrow).cost(3));
    let ran = Arc::new(Mutex::new(Vec::new()));
    let tasks = [(1, first), (2, second)].map(|(number, waiter)| {
        let ran = Arc::clone(&ran);
        tokio::spawn(async move {
            let _permit = waiter.await;
            ran.lock().unwrap().push(number);
        })
    });
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*ran.lock().unwrap(), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn reserved_work_is_settled_with_all_its_limits() {
    let limiter = paused();
    let call = limiter.limit(&REQUESTS).and(&SECONDS).cost(2).and(&TWOS).cost(1);
    let permit = reserved(call).ready().await;
    assert_eq!(at_once(permit.settle(5)).unwrap().tokens().to_string(), "-3");
    assert_eq!(owed(&limiter), [3.0, 4.0, 0.0]);
    assert_eq!(at_once(limiter.peek(&REQUESTS)).unwrap().remaining(), 10);
    let kept = reserved(pair(&limiter, [1, 1], false)).keep();
    at_once(kept.refund()).unwrap();
    assert_eq!(owed(&limiter), [3.0, 4.0, 0.0]);
}

#[tokio::test(start_paused = true)]
async fn jitter_makes_the_longest_wait_longer_and_is_the_same_for_the_same_seed() {
    let waits = || {
        let limiter = paused().seed(3);
        let wait = |nth: u32| {
            let call = pair(&limiter, [1, 1], nth.is_multiple_of(2)).jitter(ms(500));
            let wait =
                reserved(call).keep().at().since(at_once(limiter.peek(&TOKENS)).unwrap().at());
            let late = wait.checked_sub(nth * 2 * SECOND).expect("never earlier");
            assert!(late <= ms(500));
            late
        };
        (1..50).map(wait).collect::<Vec<_>>()
    };
    assert_eq!(waits(), waits());
    assert!(waits().iter().any(|late| *late > ms(250)));
    let limiter = paused();
    assert!(is_admitted(pair(&limiter, [0, 0], false)));
    let exact = pair(&limiter, [1, 1], false).jitter(HOUR).reserve_within(2 * SECOND);
    assert_eq!(at_once(exact).unwrap().wait(), 2 * SECOND);
}

/// P2 with slots that are given up and reassigned: work that runs in the slot of another request
/// counts, in each bucket, at the instant of that slot.
#[tokio::test(start_paused = true)]
async fn each_bucket_stays_within_its_bound_when_slots_are_reassigned() {
    for seed in seeds(40) {
        let mut dice = Dice(seed);
        let mut quota = || {
            let (rate, period) = (1 + dice.below(7), u32::try_from(1 + dice.below(20)).unwrap());
            Quota::token_bucket(rate, period * ms(1)).capacity(dice.below(8))
        };
        let limits = ["a", "b"].map(|name| Limit::try_new(name, quota()).unwrap());
        let clock = Shared::new();
        let limiter = clock.limiter();
        let mut ran = [vec![], vec![]];
        // The slots by their promised instants. A slot that was undone may be reserved again.
        let mut slots: HashMap<Timestamp, [Timestamp; 2]> = HashMap::new();
        let mut waiting: Vec<([u64; 2], Turn)> = Vec::new();
        let serve = |waiting: &mut Vec<([u64; 2], Turn)>,
                     slots: &HashMap<Timestamp, [Timestamp; 2]>,
                     ran: &mut [Vec<(Timestamp, u64)>; 2]| {
            waiting.retain_mut(|(costs, waiter)| {
                let Some(permit) = poll(waiter) else { return true };
                assert!(permit.at() <= clock.now(), "early, seed {seed}");
                for ((ran, at), cost) in ran.iter_mut().zip(slots[&permit.at()]).zip(&*costs) {
                    ran.push((at, *cost));
                }
                false
            });
        };
        for _ in 0..60 {
            let pause = [0, 0, 1, 2, 5, 30][usize::try_from(dice.below(6)).unwrap()];
            advance(ms(pause)).await;
            serve(&mut waiting, &slots, &mut ran);
            if dice.below(3) == 0 && !waiting.is_empty() {
                let nth = dice.below(waiting.len() as u64);
                drop(waiting.remove(usize::try_from(nth).unwrap()));
                continue;
            }
            let costs = [1 + dice.below(5), 1 + dice.below(5)];
            let mut asks = [(0, 0, costs[0]), (1, 0, costs[1])];
            let turned = dice.below(2) == 1;
            if turned {
                asks.reverse();
            }
            // Now and then a call takes from only one of them.
            let asked = if dice.below(5) == 0 { &asks[..1] } else { &asks[..] };
            let call = all(&limiter, &limits, asked);
            if asked.len() == 1 {
                if let Ok(permit) = at_once(call) {
                    let (limit, _, cost) = asked[0];
                    ran[limit].push((permit.at(), cost));
                }
                continue;
            }
            let reservation = at_once(call.reserve()).unwrap();
            let own: Vec<_> = reservation.snapshots().map(|one| own_instant(&one)).collect();
            let own = if turned { [own[1], own[0]] } else { [own[0], own[1]] };
            if reservation.wait().is_zero() && dice.below(4) > 0 {
                drop(reservation.keep());
                for ((ran, at), cost) in ran.iter_mut().zip(own).zip(costs) {
                    ran.push((at, cost));
                }
            } else if !reservation.wait().is_zero() {
                slots.insert(reservation.at(), own);
                waiting.push((costs, Box::pin(reservation.ready())));
                serve(&mut waiting, &slots, &mut ran);
            }
        }
        while !waiting.is_empty() {
            advance(SECOND).await;
            serve(&mut waiting, &slots, &mut ran);
        }
        for (limit, ran) in limits.iter().zip(ran) {
            let violation = check_history(limit.quota(), &ran).unwrap();
            assert_eq!(violation, None, "seed {seed}, {}: {ran:?}", limit.quota());
        }
    }
}

// A store that answers later.

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_later_decides_the_same() {
    let (late, limiter, memory) = Late::new();
    let both = || limiter.limit(&REQUESTS).cost(4).and(&TENANT).key("acme").cost(9);
    let permit = both().await.unwrap();
    assert_eq!(
        permit.snapshots().map(|snapshot| snapshot.remaining()).collect::<Vec<_>>(),
        [6, 11]
    );
    let snapshot = permit.settle(2).await.unwrap();
    assert_eq!((snapshot.limit(), snapshot.remaining()), (&REQUESTS, 8));
    drop(both().await.unwrap());
    let refused = both().cost(10).await.unwrap_err();
    assert_eq!(refused_by(&refused), ["tenant"]);

    // A refund is completed although its future is dropped.
    let permit = memory.limit(&REQUESTS).cost(4).and(&TOKENS).cost(60);
    drop(at_once(permit).unwrap());
    let call = limiter.limit(&TOKENS).cost(40).and(&TENANT).key("b");
    let permit = call.await.unwrap();
    let held = late.close();
    drop(permit.refund());
    settled().await;
    assert_eq!(tokens(&memory, &TOKENS), 0.0);
    held.let_go();
    settled().await;
    assert_eq!(tokens(&memory, &TOKENS), 40.0);
    assert_eq!(at_once(memory.peek(&TENANT).key("b")).unwrap().remaining(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_is_dropped_before_its_answer_is_given_up_in_all_buckets() {
    let (late, limiter, memory) = Late::new();
    let held = late.close();
    let mut call = Box::pin(pair(&limiter, [2, 1], true).and(&SECONDS).reserve());
    assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(owed(&memory), [3.0, 1.0, 0.0]);
    drop(call);
    late.open();
    held.let_go();
    settled().await;
    assert_eq!(owed(&memory), [0.0, 0.0, 0.0]);

    // A reservation that is dropped after its answer is given up, too.
    let first = pair(&limiter, [1, 1], false).reserve().await.unwrap();
    let second = pair(&limiter, [2, 2], true).reserve().await.unwrap();
    assert_eq!([first.wait(), second.wait()], [2 * SECOND, 6 * SECOND]);
    drop(first);
    settled().await;
    assert_eq!(owed(&memory), [3.0, 3.0, 0.0]);
    drop(second);
    settled().await;
    assert_eq!(owed(&memory), [0.0, 0.0, 0.0]);
}

// Many threads.

/// Runs `work(thread)` in eight threads at the same time, and adds up what they return.
fn hammer(work: impl Fn(u64) -> u64 + Sync) -> u64 {
    let (together, total) = (Barrier::new(8), AtomicU64::new(0));
    thread::scope(|scope| {
        for thread in 0..8 {
            let (together, total, work) = (&together, &total, &work);
            scope.spawn(move || {
                together.wait();
                total.fetch_add(work(thread), Ordering::Relaxed);
            });
        }
    });
    total.into_inner()
}

/// If the buckets were charged one by one, the first would have lost more than was admitted. If
/// they were locked in the order of naming, this would deadlock.
#[test]
fn exactly_what_fits_into_all_is_admitted_whatever_the_order_of_naming() {
    static A: Limit = Limit::new("a", Quota::token_bucket(1_000, HOUR));
    static B: Limit = Limit::new("b", Quota::fixed_window(1_350, HOUR));
    static C: Limit = Limit::new("c", Quota::token_bucket(5_000, HOUR).shards(5));
    for _ in 0..times(5, 2) {
        let (_, limiter) = store(Memory::new(), &ManualClock::new(START));
        let admitted = hammer(|thread| {
            let mut admitted = 0;
            for round in 0..500 {
                let call = match (thread + round) % 3 {
                    0 => limiter.limit(&A).and(&B).cost(3).and(&C),
                    1 => limiter.limit(&B).cost(3).and(&C).and(&A),
                    _ => limiter.limit(&C).and(&A).and(&B).cost(3),
                };
                admitted += u64::from(is_admitted(call));
            }
            admitted
        });
        assert_eq!(admitted, 450);
        let left =
            [&A, &B, &C].map(|limit| at_once(limiter.peek(limit)).unwrap().tokens().to_string());
        assert_eq!(left, ["550", "0", "4550"]);
    }
}

/// Each call names two of sixteen limits, in any order and with a cost for each. Each limit loses
/// exactly what was admitted, to the token.
#[test]
fn each_limit_has_lost_exactly_what_was_admitted() {
    let limits: Vec<_> = (0..16)
        .map(|nth| {
            let quota = Quota::token_bucket(300 + nth, HOUR).shards(1 + u32::from(nth % 4 == 3));
            Limit::try_new(format!("limit-{nth}"), quota).unwrap()
        })
        .collect();
    let (_, limiter) = store(Memory::new(), &ManualClock::new(START));
    let taken: Vec<_> = limits.iter().map(|_| AtomicU64::new(0)).collect();
    hammer(|thread| {
        for round in 0..3_000_u64 {
            let (a, b) = ((round * 7 + thread) % 16, (round * round + 3 * thread) % 16);
            let asks = [(a, round % 3), (b, (round + thread) % 4)]
                .map(|(limit, cost)| (usize::try_from(limit).unwrap(), 0, cost));
            if is_admitted(all(&limiter, &limits, &asks)) {
                for (limit, _, cost) in asks {
                    taken[limit].fetch_add(cost, Ordering::Relaxed);
                }
            }
        }
        0
    });
    let mut drained = 0;
    for (limit, taken) in limits.iter().zip(taken) {
        let left = at_once(limiter.peek(limit).key(0_u64)).unwrap();
        let taken = taken.into_inner();
        assert_eq!(left.tokens().to_string(), (limit.quota().rate() - taken).to_string());
        drained += u64::from(left.remaining() < 4);
    }
    assert!(drained > 12, "nearly everything is used up");
}

/// Two limits that are only ever charged together hold the same whenever a thread looks at both.
#[test]
fn no_thread_sees_half_of_a_transaction() {
    let quota = Quota::token_bucket(1_000_000, HOUR);
    let limits = ["left", "right"].map(|name| Limit::try_new(name, quota).unwrap());
    let (_, limiter) = store(Memory::new(), &ManualClock::new(START));
    let done = AtomicBool::new(false);
    hammer(|thread| {
        if thread < 4 {
            for round in 0..2_000 {
                let (first, second) = if round % 2 == 0 { (0, 1) } else { (1, 0) };
                let asks = [(first, 0, 1 + thread), (second, 0, 1 + thread)];
                let permit = at_once(all(&limiter, &limits, &asks)).unwrap();
                if round % 3 == 0 {
                    at_once(permit.refund()).unwrap();
                }
            }
            done.store(true, Ordering::Relaxed);
        } else {
            let mut looks = 0;
            while looks < 500 || !done.load(Ordering::Relaxed) {
                let looked = all(&limiter, &limits, &[(0, 0, 0), (1, 0, 0)]);
                let (_, _, snapshots) = decide(looked, false).unwrap();
                assert_eq!(snapshots[0].state(), snapshots[1].state());
                looks += 1;
            }
        }
        0
    });
}
