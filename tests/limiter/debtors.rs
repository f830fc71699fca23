//! The list of debtors: in memory, and through wrappers.

use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BucketId, Charge, DebtorReport, Memory,
};
use tollgate::clock::ManualClock;
use tollgate::limiter::DebtorsCall;
use tollgate::{DAY, HOUR, Limit, Quota, RateLimiter, Snapshot, Timestamp};
use tollgate_testing::{START, at_once, debtors, limiter, store};

static LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));
static ALIKE: Limit = Limit::new("log-out", Quota::token_bucket(5, HOUR));
static API: Limit = Limit::new("api", Quota::fixed_window(100, DAY));

#[track_caller]
fn count(report: DebtorReport<Snapshot>) -> (u64, u64) {
    let DebtorReport::Count { in_debt, blocked, .. } = report else { panic!("{report:?}") };
    (in_debt, blocked)
}

#[test]
fn memory_counts_by_numbers_what_it_cannot_name() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    for nth in 0..10_u64 {
        at_once(limiter.limit(&LOGIN).key(nth)).unwrap();
        at_once(limiter.penalize(&LOGIN, 10).key(("debt", nth))).unwrap();
    }
    at_once(limiter.block(&LOGIN, DAY).key("mallory")).unwrap();
    at_once(limiter.block(&ALIKE, DAY).key("mallory")).unwrap();
    at_once(limiter.block(&API, DAY * 3).key("mallory")).unwrap();
    let found = |call: DebtorsCall<'_>| count(at_once(call).unwrap());
    // Limits with the same numbers count together.
    assert_eq!(found(limiter.debtors(&LOGIN)), (10, 2));
    let whole = at_once(limiter.debtors(&LOGIN)).unwrap();
    assert!(matches!(whole, DebtorReport::Count { at: START, next: None, .. }), "{whole:?}");
    assert_eq!(found(limiter.debtors(&LOGIN).only_blocked()), (0, 2));
    assert_eq!(found(limiter.debtors(&LOGIN).only_in_debt()), (10, 0));
    assert_eq!(count(at_once(limiter.debtors(&API)).unwrap()), (0, 1));
    clock.advance(HOUR);
    assert_eq!(found(limiter.debtors(&LOGIN)).0, 0, "they have gained what they owed");
    at_once(limiter.reset(&LOGIN).key("mallory")).unwrap();
    assert_eq!(found(limiter.debtors(&LOGIN)).1, 1);
}

/// A count ends after some 65,000 places, and goes on where it ended.
#[test]
fn a_count_of_a_large_store_comes_in_parts() {
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new(), &clock);
    for key in 0..150_000_u64 {
        at_once(limiter.limit(&LOGIN).key(key)).unwrap();
        if key % 1_000 == 0 {
            at_once(limiter.penalize(&LOGIN, 10).key(key)).unwrap();
        }
    }
    assert_eq!(memory.len(), 150_000);
    let (mut found, mut parts, mut cursor) = (0, 0, None);
    loop {
        let part = at_once(limiter.debtors(&LOGIN).after(cursor)).unwrap();
        let DebtorReport::Count { in_debt, next, .. } = part else { panic!("{part:?}") };
        (found, parts) = (found + in_debt, parts + 1);
        cursor = next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(found, 150);
    assert!((3..10).contains(&parts), "{parts}");
    for wrong in ["", "x", "-1", "1024", "0.0"] {
        let error = at_once(limiter.debtors(&LOGIN).after(wrong.to_owned())).unwrap_err();
        assert!(error.is_unavailable() && !error.is_outage(), "{wrong}");
    }
}

/// Slower numbers take a bucket over with the first request that they admit, so the bucket of a client
/// that is refused stays counted in those before them.
#[test]
fn memory_counts_by_the_numbers_in_force_what_is_kept_in_earlier_ones() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    let found = || count(at_once(limiter.debtors(&LOGIN)).unwrap());
    at_once(limiter.penalize(&LOGIN, 9).key("eve")).unwrap();
    at_once(limiter.limit(&LOGIN).key("alice").cost(5)).unwrap();
    at_once(limiter.limit(&LOGIN).key("bob")).unwrap();
    at_once(limiter.block(&LOGIN, DAY).key("mallory")).unwrap();
    at_once(limiter.block(&API, DAY).key("mallory")).unwrap();
    assert_eq!(found(), (1, 1));
    limiter.replace(&LOGIN, Quota::token_bucket(3, HOUR)).unwrap();
    assert_eq!(found(), (2, 1), "alice has used 5 of 3");
    for key in ["eve", "alice", "mallory"] {
        assert!(at_once(limiter.limit(&LOGIN).key(key)).is_err());
        assert_eq!(found(), (2, 1), "{key} was refused");
    }
    limiter.replace(&LOGIN, Quota::token_bucket(100, HOUR)).unwrap();
    assert_eq!(found(), (0, 1));
    limiter.replace(&LOGIN, *LOGIN.quota()).unwrap();
    assert_eq!(found(), (1, 1));
    clock.advance(DAY * 2);
    assert_eq!(found(), (0, 0));
}

fn keeping_keys(clock: &ManualClock) -> RateLimiter {
    RateLimiter::new(Memory::new().keep_keys().clock(clock.clone()))
}

#[tokio::test]
async fn memory_that_keeps_keys_lists_each_debtor_once() {
    debtors::each_is_found_once(&keeping_keys(&ManualClock::new(START))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_that_keeps_keys_lists_debtors_while_other_keys_come_and_go() {
    debtors::all_are_found_beside_a_hammer(&keeping_keys(&ManualClock::new(START))).await;
}

/// Each way into debt: a bucket is named whoever has stored it.
#[test]
fn memory_that_keeps_keys_names_a_debtor_whatever_made_it_one() {
    static HOT: Limit = Limit::new("hot", Quota::token_bucket(8, HOUR).shards(2));
    let clock = ManualClock::new(START);
    let limiter = keeping_keys(&clock);
    let listed = |limit: &Limit| {
        let debtors = at_once(limiter.debtors(limit)).unwrap().into_debtors().unwrap();
        let keys = debtors.iter().map(|debtor| debtor.key_text());
        keys.collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    drop(at_once(limiter.limit(&LOGIN).key("settled").now().unwrap().settle(9)));
    let kept = at_once(limiter.limit(&LOGIN).key("waits").cost(5).reserve()).unwrap();
    let waits = at_once(limiter.limit(&LOGIN).key("waits").reserve()).unwrap();
    at_once(limiter.penalize(&HOT, 30).key("sharded")).unwrap();
    at_once(limiter.block(&LOGIN, HOUR).key("blocked")).unwrap();
    // Short by other numbers only.
    at_once(limiter.limit(&LOGIN).key("larger plan").cost(5)).unwrap();
    at_once(limiter.limit(&LOGIN).key("list").cost(5).and(&API).key("list")).unwrap();
    at_once(limiter.limit(&LOGIN).key("little")).unwrap();
    assert_eq!(listed(&LOGIN), ["blocked", "settled", "waits"]);
    assert_eq!(listed(&HOT), ["sharded"]);
    assert!(listed(&ALIKE).is_empty() && listed(&API).is_empty(), "by name, not by numbers");
    limiter.replace(&LOGIN, Quota::token_bucket(3, HOUR)).unwrap();
    assert_eq!(listed(&LOGIN), ["blocked", "larger%20plan", "list", "settled", "waits"]);
    limiter.replace(&LOGIN, *LOGIN.quota()).unwrap();
    drop((kept, waits));
    at_once(limiter.reset(&LOGIN).key("blocked")).unwrap();
    assert_eq!(listed(&LOGIN), ["settled"]);
    clock.advance(DAY);
    assert!(listed(&LOGIN).is_empty() && listed(&HOT).is_empty());
    for wrong in ["", "x", "-1.a", "0", "0.id=7"] {
        let error = at_once(limiter.debtors(&LOGIN).after(wrong.to_owned())).unwrap_err();
        assert!(error.is_unavailable() && !error.is_outage(), "{wrong}");
    }
}

/// A store of another crate that does not know lists.
#[derive(Debug)]
struct Plain(Memory);

impl Backend for Plain {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        self.0.apply(charges)
    }
    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        self.0.adjust(adjustments)
    }
    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.0.reset(ids)
    }
}

#[test]
fn a_store_that_cannot_list_says_so() {
    let limiter = RateLimiter::new(Plain(Memory::new()));
    at_once(limiter.block(&LOGIN, DAY).key("mallory")).unwrap();
    let report = at_once(limiter.debtors(&LOGIN)).unwrap();
    assert!(matches!(report, DebtorReport::Unsupported), "{report:?}");
    // One that is switched off keeps nothing, and knows that.
    let off = limiter.enabled(false);
    at_once(off.block(&LOGIN, DAY).key("mallory")).unwrap();
    let report = at_once(off.debtors(&LOGIN)).unwrap();
    let DebtorReport::Page { debtors, next, .. } = report else { panic!("{report:?}") };
    assert_eq!((debtors.len(), next), (0, None));
}

#[test]
fn a_snapshot_tells_how_long_its_bucket_is_blocked() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    let blocked = at_once(limiter.block(&LOGIN, HOUR).key("mallory")).unwrap();
    assert_eq!(blocked.blocked_until(), Some(START + HOUR));
    let owing = at_once(limiter.penalize(&LOGIN, 9).key("eve")).unwrap();
    assert_eq!((owing.blocked_until(), owing.tokens().to_string().as_str()), (None, "-4"));
    // A window gains at its start only: a day after the one in which the block ends began.
    let window = at_once(limiter.block(&API, DAY * 3).key("mallory")).unwrap();
    let until = window.blocked_until().unwrap();
    assert!(until > START + DAY * 3 && until <= START + DAY * 4, "{until}");
    clock.set(Timestamp::from_micros(until.as_micros() - 1));
    assert!(at_once(limiter.limit(&API).key("mallory")).is_err());
    clock.set(until);
    let open = at_once(limiter.peek(&API).key("mallory")).unwrap();
    assert_eq!((open.blocked_until(), open.remaining()), (None, 99));
}
