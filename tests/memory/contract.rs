//! The backend's contract, kept by the memory store: names, changed quotas, transactions, and
//! refunds.

use std::time::Duration;

use tollgate::algebra::{Bucket, Terms, Verdict};
use tollgate::backend::{Adjustment, Backend, BucketId, Charge, Memory};
use tollgate::clock::ManualClock;
use tollgate::{DAY, HOUR, Key, Limit, MINUTE, Quota, SECOND};
use tollgate_testing::{START, admitted, at_once, is_admitted, limiter, remaining, store};

static LOGIN: Limit = Limit::new("login", Quota::token_bucket(10, HOUR));
static BURST: Limit = Limit::new("burst", Quota::token_bucket(10, SECOND));

#[test]
fn limits_with_other_names_have_other_buckets() {
    let (_, limiter) = store(Memory::new(), &ManualClock::new(START));
    static OTHER: Limit = Limit::new("login2", Quota::token_bucket(10, HOUR));
    assert!(admitted(&limiter, &LOGIN, 7, 10));
    assert_eq!(remaining(&limiter, &OTHER, 7), 10);
    // The name ends where the key begins: "login" for "2…" is not "login2" for "…".
    assert!(is_admitted(limiter.limit(&LOGIN).key("2x").cost(10)));
    assert_eq!(at_once(limiter.peek(&OTHER).key("x")).unwrap().remaining(), 10);
}

fn plan(quota: &str) -> Limit {
    Limit::try_new("plan", quota.parse().unwrap()).unwrap()
}

/// A former version kept what was left instead of what was used: a client that had used 3 of 3 and
/// then paid for 100 was refused.
#[test]
fn a_larger_plan_grants_more_at_once() {
    let (_, limiter) = store(Memory::new(), &ManualClock::new(START));
    let (free, pro) = (plan("3 per minute"), plan("100 per minute"));
    assert!(admitted(&limiter, &free, 1, 3));
    assert!(!admitted(&limiter, &free, 1, 1));
    assert_eq!(remaining(&limiter, &pro, 1), 97);
    assert!(admitted(&limiter, &pro, 1, 1));
    assert_eq!(remaining(&limiter, &pro, 1), 96);
    // Back under the smaller plan, what was used beyond it is debt.
    assert_eq!(at_once(limiter.peek(&free).key(1_u64)).unwrap().tokens().to_string(), "-1");
}

/// In a former version, a client that had used up its day gained nothing by a larger plan before
/// the next day.
#[test]
fn a_larger_window_grants_more_at_once() {
    let (_, limiter) = store(Memory::new(), &ManualClock::new(START));
    let (small, large) = (plan("fixed window: 100 per day"), plan("fixed window: 1000 per day"));
    assert!(admitted(&limiter, &small, 1, 100));
    assert_eq!(remaining(&limiter, &large, 1), 900);
    assert!(admitted(&limiter, &large, 1, 900));
    assert!(!admitted(&limiter, &large, 1, 1));
}

/// In a former version, an idle client of the smaller plan got 3 or 100 of the larger one,
/// depending on whether the store had dropped its full bucket.
#[test]
fn an_idle_client_has_all_of_its_new_plan_whether_its_bucket_was_dropped_or_not() {
    for (drops, new, left) in [
        (false, "100 per minute", 100),
        (true, "100 per minute", 100),
        (false, "fixed window: 1000 per day", 1_000),
        (true, "fixed window: 1000 per day", 1_000),
        (false, "100 per minute, initial 5", 5),
        (true, "100 per minute, initial 5", 5),
        // Also if only the initial tokens change.
        (false, "3 per minute, initial 1", 1),
        (true, "3 per minute, initial 1", 1),
    ] {
        let clock = ManualClock::new(START);
        let (memory, limiter) = store(Memory::new(), &clock);
        let free = plan("3 per minute");
        assert!(admitted(&limiter, &free, 1, 3));
        clock.advance(HOUR);
        if drops {
            memory.purge();
        }
        assert_eq!(memory.is_empty(), drops);
        let new = plan(new);
        assert_eq!(remaining(&limiter, &new, 1), left, "dropped: {drops}");
        // The first request starts the refill, even if it is refused.
        assert!(at_once(limiter.limit(&new).key(1_u64).cost(left + 1)).is_err());
        clock.advance(MINUTE / 3);
        let gained = if left == 1 { 1 } else { 33 };
        let most = new.quota().get_capacity();
        assert_eq!(remaining(&limiter, &new, 1), most.min(left + gained), "dropped: {drops}");
    }
}

#[test]
fn a_new_quota_keeps_what_was_used() {
    let clock = ManualClock::new(START);
    let (_, limiter) = store(Memory::new(), &clock);
    let (small, large) = (plan("10 per hour"), plan("1000 per minute"));
    assert!(admitted(&limiter, &small, 1, 7));
    assert_eq!(remaining(&limiter, &large, 1), 993);
    assert!(admitted(&limiter, &large, 1, 993));
    assert!(!at_once(limiter.peek(&small).key(1_u64)).unwrap().fits());
    // The bucket has refilled by the quota of its last charge, and a full bucket is full under any
    // quota.
    clock.advance(MINUTE);
    assert!(admitted(&limiter, &small, 1, 10));
    let window = plan("fixed window: 8 per day");
    let tokens = || at_once(limiter.peek(&window).key(1_u64)).unwrap().tokens().to_string();
    assert_eq!(tokens(), "-2");
    clock.advance(HOUR / 2);
    assert_eq!(tokens(), "3");
    assert!(admitted(&limiter, &window, 1, 1));
    let refused = at_once(limiter.limit(&window).key(1_u64).cost(8)).unwrap_err();
    clock.advance(refused.retry_after().expect("only 2 are left"));
    assert_eq!(tokens(), "8");
}

const TICK: Duration = Duration::from_micros(1);

/// In a former version, the bucket refilled by the daily plan until the day was over, and every
/// refusal advertised nine minutes again.
#[test]
fn a_client_that_changed_its_plan_is_admitted_at_the_advertised_time() {
    let clock = ManualClock::new(START);
    let (_, limiter) = store(Memory::new(), &clock);
    let (daily, steady) = (plan("fixed window: 100 per day"), plan("10 per minute"));
    assert!(admitted(&limiter, &daily, 1, 100));
    let told = || {
        let refused = at_once(limiter.limit(&steady).key(1_u64)).unwrap_err();
        refused.retry_after().unwrap()
    };
    // The client has used 100 of 10.
    assert_eq!(told(), MINUTE * 9 + SECOND * 6);
    clock.advance(MINUTE * 9 + SECOND * 6 - TICK);
    assert_eq!(told(), TICK);
    clock.advance(TICK);
    assert!(admitted(&limiter, &steady, 1, 1));
    assert_eq!(remaining(&limiter, &steady, 1), 0);
}

/// The same for a call on several limits, of which only this one is short.
#[test]
fn several_limits_are_admitted_at_the_advertised_time() {
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new(), &clock);
    let (daily, steady) = (plan("fixed window: 100 per day"), plan("10 per minute"));
    assert!(admitted(&limiter, &daily, 1, 100));
    let both = || at_once(limiter.limit(&steady).key(1_u64).and(&LOGIN).key(1_u64));
    let wait = both().unwrap_err().retry_after().unwrap();
    assert_eq!((wait, memory.len()), (MINUTE * 9 + SECOND * 6, 1));
    clock.advance(wait - TICK);
    assert!(both().is_err());
    clock.advance(TICK);
    assert!(both().is_ok());
}

/// A peek reports the wait by the quota of its limit. The bucket goes on refilling by its own
/// quota.
#[test]
fn a_peek_does_not_change_the_quota_of_a_bucket() {
    let clock = ManualClock::new(START);
    let (_, limiter) = store(Memory::new(), &clock);
    let (daily, steady) = (plan("fixed window: 100 per day"), plan("10 per minute"));
    assert!(admitted(&limiter, &daily, 1, 100));
    let peek = |limit| at_once(limiter.peek(limit).key(1_u64)).unwrap();
    let day = peek(&daily).state();
    assert_eq!(peek(&steady).tokens().to_string(), "-90");
    clock.advance(MINUTE * 10);
    assert_eq!((peek(&steady).tokens().to_string(), peek(&daily).state()), ("-90".to_owned(), day));
    // A refusal does change it, even at a cost of zero.
    assert!(!admitted(&limiter, &steady, 1, 0));
    clock.advance(MINUTE);
    assert_eq!(peek(&steady).tokens().to_string(), "-80");
}

/// Refusals under one plan and then the other, as two servers give them during a deployment.
#[test]
fn refusals_under_two_quotas_in_turn_grant_nothing() {
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new(), &clock);
    let (daily, steady) = (plan("fixed window: 100 per day"), plan("10 per minute"));
    assert!(admitted(&limiter, &daily, 1, 100));
    let tokens = |limit| at_once(limiter.peek(limit).key(1_u64)).unwrap().tokens().to_string();
    for _ in 0..1_000 {
        assert!(!admitted(&limiter, &steady, 1, 1) && !admitted(&limiter, &daily, 1, 1));
    }
    assert_eq!((tokens(&daily), tokens(&steady)), ("0".to_owned(), "-90".to_owned()));
    assert_eq!(memory.len(), 1);
    // The bucket counts in the steady plan, which is faster, and gains 50 tokens in these 5 minutes.
    for _ in 0..5 {
        assert!(!admitted(&limiter, &steady, 1, 10));
        clock.advance(MINUTE / 2);
        let _ = admitted(&limiter, &daily, 1, 100);
        clock.advance(MINUTE / 2);
    }
    assert_eq!((tokens(&daily), tokens(&steady)), ("50".to_owned(), "-40".to_owned()));
}

#[test]
fn a_refused_list_stores_a_bucket_under_the_fastest_of_its_quotas() {
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new(), &clock);
    let plans = ["fixed window: 100 per day", "10 per minute", "20 per hour"].map(plan);
    let key = Key::from(1_u64);
    for (order, fastest) in [([1, 2], 0), ([2, 1], 1), ([0, 2], 1), ([2, 0], 0)] {
        at_once(limiter.reset(&plans[0]).key(&key)).unwrap();
        assert!(admitted(&limiter, &plans[0], 1, 100));
        let takes = order.map(|nth| {
            let bucket = plans[nth].bucket();
            Charge::take(BucketId::new("plan", &key), bucket, bucket.units(1).unwrap())
        });
        let applied = at_once(memory.apply(&takes).wait()).unwrap();
        assert_eq!(applied.verdict(), Verdict::Refused);
        let plan = &plans[order[fastest]];
        let state = applied.readings()[fastest].state();
        clock.advance(MINUTE);
        let now = at_once(limiter.peek(plan).key(&key)).unwrap();
        assert_eq!(now.state(), plan.bucket().refresh(state, now.at()), "{order:?}");
    }
}

#[test]
fn debt_counts_as_used_under_a_new_quota() {
    let clock = ManualClock::new(START);
    let (_, limiter) = store(Memory::new(), &clock);
    let (small, large) = (plan("10 per minute"), plan("100 per hour"));
    let _ = at_once(limiter.penalize(&small, 25).key(1_u64)).unwrap();
    let tokens = |plan| at_once(limiter.peek(plan).key(1_u64)).unwrap().tokens().to_string();
    assert_eq!((tokens(&small), tokens(&large)), ("-15".to_owned(), "75".to_owned()));
    let _ = at_once(limiter.penalize(&large, 100).key(1_u64)).unwrap();
    assert_eq!((tokens(&small), tokens(&large)), ("-115".to_owned(), "-25".to_owned()));
}

/// A former version took a bucket that was full under a small quota for a full one under a large
/// quota: a client that could switch between two plans had no limit.
#[test]
fn switching_between_quotas_grants_nothing() {
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
    assert!(taken <= 2_001, "{taken} in 1,000 s, where both quotas grant 1 a second");
}

/// In a former version, a value too large for the new quota became the deepest debt, and a debt
/// deeper than the new `max_reserved` was forgiven.
#[test]
fn a_new_quota_neither_turns_tokens_into_debt_nor_forgives_debt() {
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new(), &clock);
    let (many, two) = (plan("fixed window: 10_000_000_000 per day"), plan("2 per day"));
    assert!(admitted(&limiter, &many, 1, 1));
    assert!(admitted(&limiter, &two, 1, 1));
    assert!(!admitted(&limiter, &two, 1, 1));

    let (deep, shallow) = (plan("1 per second"), plan("1 per second, max_reserved 5"));
    let key = Key::from(2_u64);
    let bucket = deep.bucket();
    let charge = Charge::take(BucketId::new("plan", &key), bucket, bucket.units(101).unwrap());
    let charge = charge.terms(Terms::reserving(bucket.floor()));
    assert_eq!(at_once(memory.apply(&[charge]).wait()).unwrap().verdict(), Verdict::Reserved);
    let tokens = |plan| at_once(limiter.peek(plan).key(&key)).unwrap().tokens().to_string();
    assert_eq!(tokens(&shallow), "-100");
    assert_eq!(tokens(&plan("1 per second, capacity 101")), "0");
}

/// In a former version, the distance between now and a start in the far past overflowed, and every
/// peek began a new window.
#[test]
fn windows_stay_where_they_are_however_far_their_start() {
    for start in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX] {
        let quota = format!("fixed window: 10 per hour, start @{start}");
        let limit = Limit::try_new("far", quota.parse().unwrap()).unwrap();
        let clock = ManualClock::new(START);
        let (_, limiter) = store(Memory::new(), &clock);
        let first = at_once(limiter.peek(&limit)).unwrap().window_start().unwrap();
        let from_start = i128::from(first.as_micros()) - i128::from(start);
        assert_eq!(from_start.rem_euclid(3_600_000_000), 0);
        clock.set(first + (HOUR - Duration::from_micros(1)));
        assert_eq!(at_once(limiter.peek(&limit)).unwrap().window_start(), Some(first));
        clock.set(first + HOUR);
        assert_eq!(at_once(limiter.peek(&limit)).unwrap().window_start(), Some(first + HOUR));
    }
}

/// In a former version, the second charge on a bucket was decided as if the first were not there,
/// so the wait was too short for both.
#[test]
fn a_bucket_that_is_named_twice_waits_for_both_charges() {
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new(), &clock);
    assert!(admitted(&limiter, &BURST, 1, 10));
    let key = Key::from(1_u64);
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
fn a_refund_fills_no_further_than_the_capacity() {
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new(), &clock);
    assert!(admitted(&limiter, &LOGIN, 1, 10));
    let key = Key::from(1_u64);
    let refund = |limit: &Limit, tokens: u64| {
        let id = BucketId::new(limit.name(), &key);
        let units = limit.bucket().units(tokens).unwrap();
        let refund = Adjustment::refund(id, limit.bucket(), units);
        let state = at_once(memory.adjust(&[refund]).wait()).unwrap().readings()[0].state();
        let seen = at_once(limiter.peek(limit).key(1_u64)).unwrap();
        assert_eq!(seen.state(), state, "what is reported is what is stored");
        seen.remaining()
    };
    assert_eq!(refund(&LOGIN, 4), 4);
    assert_eq!(refund(&LOGIN, 1_000), 10);
    // A negative refund takes tokens, for work that cost more than it had paid.
    let more = Adjustment::refund(BucketId::new("login", &key), LOGIN.bucket(), -1);
    let refunded = at_once(memory.adjust(&[more]).wait()).unwrap();
    assert_eq!(refunded.verdict(), Verdict::Admitted);
    assert_eq!(refunded.readings()[0].state().value, LOGIN.bucket().capacity() - 1);
    // An unused bucket has nothing to get back.
    static NEW: Limit = Limit::new("new", Quota::token_bucket(10, HOUR).initial(3));
    assert_eq!(refund(&NEW, 5), 3);
}

#[test]
fn a_negative_charge_gives_nothing() {
    let (memory, limiter) = store(Memory::new(), &ManualClock::new(START));
    assert!(admitted(&limiter, &LOGIN, 1, 4));
    let key = Key::from(1_u64);
    let charge = Charge::take(BucketId::new("login", &key), LOGIN.bucket(), i64::MIN);
    assert_eq!(at_once(memory.apply(&[charge]).wait()).unwrap().verdict(), Verdict::Admitted);
    assert_eq!(remaining(&limiter, &LOGIN, 1), 6);
}

#[test]
fn a_call_charges_when_it_is_polled_and_not_before() {
    let (_, limiter) = store(Memory::new(), &ManualClock::new(START));
    drop(limiter.limit(&LOGIN).key(1_u64));
    drop(limiter.limit(&LOGIN).key(1_u64).cost(12).reserve());
    assert_eq!(remaining(&limiter, &LOGIN, 1), 10);
    let seen = at_once(limiter.peek(&LOGIN).key(1_u64).cost(4)).unwrap();
    assert!(seen.fits());
    assert_eq!((seen.cost(), seen.remaining()), (4, 10), "a peek takes nothing");
    let seen = at_once(limiter.peek(&LOGIN).key(1_u64).cost(11)).unwrap();
    assert_eq!((seen.fits(), seen.wait(), seen.remaining()), (false, None, 10));
}

#[test]
fn a_quota_that_replaces_another_is_not_misread() {
    let (_, limiter) = store(Memory::new(), &ManualClock::new(START));
    for quota in ["10 per hour", "20 per minute", "30 per second", "40 per day"] {
        assert!(is_admitted(limiter.limit(&plan(quota)).key("alice")));
    }
    let last = plan("40 per day");
    assert_eq!(at_once(limiter.peek(&last).key("alice")).unwrap().remaining(), 36);
}

#[test]
fn a_first_request_that_costs_nothing_starts_the_refill_too() {
    static SLOW_START: Limit =
        Limit::new("slow-start", Quota::token_bucket(1, MINUTE).capacity(10).initial(2));
    let clock = ManualClock::new(START);
    let (_, limiter) = store(Memory::new(), &clock);
    assert!(is_admitted(limiter.limit(&SLOW_START).cost(0)));
    clock.advance(MINUTE);
    assert_eq!(at_once(limiter.peek(&SLOW_START)).unwrap().remaining(), 3);
}

#[test]
fn a_refused_transaction_starts_the_refill_as_well() {
    static SLOW_START: Limit =
        Limit::new("slow-start", Quota::token_bucket(1, MINUTE).capacity(10).initial(2));
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new(), &clock);
    let (key, bucket) = (Key::GLOBAL, SLOW_START.bucket());
    let five =
        Charge::take(BucketId::new(SLOW_START.name(), &key), bucket, bucket.units(5).unwrap());
    let login = Charge::take(
        BucketId::new("login", &key),
        LOGIN.bucket(),
        LOGIN.bucket().units(1).unwrap(),
    );
    assert_eq!(at_once(memory.apply(&[five, login]).wait()).unwrap().verdict(), Verdict::Refused);
    assert_eq!(
        memory.len(),
        1,
        "one has started to refill; the other is full, which is the same as absent"
    );
    clock.advance(MINUTE);
    assert_eq!(at_once(limiter.peek(&SLOW_START)).unwrap().remaining(), 3);
}

#[test]
fn a_bucket_that_is_named_twice_under_two_quotas_is_not_misread() {
    let (memory, limiter) = store(Memory::new(), &ManualClock::new(START));
    let (hour, second) = (plan("10 per hour"), plan("20 per second"));
    let key = Key::GLOBAL;
    let take = |limit: &Limit, tokens| limit.bucket().units(tokens).unwrap();
    let id = BucketId::new("plan", &key);
    let charges = [
        Charge::take(id, hour.bucket(), take(&hour, 7)),
        Charge::take(id, second.bucket(), take(&second, 2)),
    ];
    let applied = at_once(memory.apply(&charges).wait()).unwrap();
    assert_eq!(applied.verdict(), Verdict::Admitted);
    let tokens = |limit: &Limit, nth: usize| {
        limit.bucket().tokens(applied.readings()[nth].state().value).whole()
    };
    assert_eq!((tokens(&hour, 0), tokens(&second, 1)), (1, 11));
    assert_eq!(at_once(limiter.peek(&second)).unwrap().remaining(), 11);
    let charges = [
        Charge::take(id, second.bucket(), take(&second, 1)),
        Charge::take(id, hour.bucket(), take(&hour, 1)),
    ];
    assert_eq!(at_once(memory.apply(&charges).wait()).unwrap().verdict(), Verdict::Refused);
}

#[test]
fn the_phase_of_windows_is_the_documented_hash() {
    let hour = Bucket::new(&Quota::fixed_window(1, HOUR)).unwrap();
    let day = Bucket::new(&Quota::fixed_window(1, DAY)).unwrap();
    let phase =
        |limit, key: Key, bucket: &Bucket| BucketId::new(limit, &key).phase(bucket).as_micros();
    assert_eq!(phase("exports", Key::from("alice"), &hour), 108_605_502);
    assert_eq!(phase("exports", Key::from("bob"), &hour), 2_507_302_033);
    assert_eq!(phase("uploads", Key::from("alice"), &hour), 1_820_359_155);
    assert_eq!(phase("exports", Key::GLOBAL, &day), 33_599_760_166);
    let key = Key::from("alice");
    let id = BucketId::new("exports", &key);
    assert_eq!(id.shard(3).phase(&hour), id.phase(&hour), "all shards of a limit have one phase");
    // The store uses this phase.
    let limit = Limit::new("exports", Quota::fixed_window(1, HOUR));
    let start = at_once(limiter(&ManualClock::new(START)).peek(&limit).key("alice"))
        .unwrap()
        .window_start()
        .unwrap();
    assert_eq!(start.as_micros() % 3_600_000_000, 108_605_502);
}

#[test]
fn shards_are_buckets_of_their_own() {
    let (memory, _) = store(Memory::new(), &ManualClock::new(START));
    let (key, bucket) = (Key::from("alice"), LOGIN.bucket());
    let all = |shard| {
        let id = BucketId::new("login", &key).shard(shard);
        at_once(memory.apply(&[Charge::take(id, bucket, bucket.capacity())]).wait())
            .unwrap()
            .verdict()
    };
    assert_eq!(
        [all(0), all(1), all(0), all(1)],
        [Verdict::Admitted, Verdict::Admitted, Verdict::Refused, Verdict::Refused]
    );
    assert_eq!(memory.len(), 2);
}

#[test]
fn the_bytes_of_a_key_are_the_documented_ones() {
    let of = |text: &str| Key::from(text).as_bytes().to_vec();
    assert_eq!(of("ab"), b"s\x02ab");
    assert_eq!(of(&"x".repeat(254))[..3], *b"s\xfex");
    assert_eq!(of(&"x".repeat(255))[..11], *b"s\xff\0\0\0\0\0\0\0\xffx");
    // An integer is the same key whatever its type, and a literal needs no suffix.
    assert_eq!(Key::from(7), Key::from(7_u64));
    assert_eq!(Key::from(7_i64), Key::from(7_u32));
    assert_ne!(Key::from(-7), Key::from(7));
    assert_eq!(Key::from((-7, i64::MIN)).to_string(), "-7|-9223372036854775808");
    for len in [254, 255, 256] {
        let text = "x".repeat(len);
        assert_eq!(Key::from((text.as_str(), 7_u64)).to_string(), format!("{text}|7"));
    }
}
