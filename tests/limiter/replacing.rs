//! Limits whose numbers change while they are used.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use tollgate::algebra::{check_history, check_history_with_returns};
use tollgate::backend::{Adjustment, Answer, Applied, Backend, BucketId, Charge, Memory};
use tollgate::clock::ManualClock;
use tollgate::{
    DAY, HOUR, Limit, MINUTE, OnFailure, Permit, Quota, RateLimited, RateLimiter, Reservation,
    SECOND, Snapshot, Timestamp,
};
use tollgate_testing::cases::{seeds, times};
use tollgate_testing::dice::Dice;
use tollgate_testing::queue::Late;
use tollgate_testing::{START, admitted, at_once, limiter, remaining};

static FREE: Limit = Limit::new("per-user", Quota::token_bucket(3, MINUTE));
static PRO: Limit = Limit::new("per-user", Quota::token_bucket(100, MINUTE));

fn frozen() -> RateLimiter {
    limiter(&ManualClock::new(START))
}

#[track_caller]
fn replace(limiter: &RateLimiter, limit: &Limit, quota: Quota) -> Quota {
    limiter.replace(limit, quota).unwrap()
}

#[test]
fn what_a_key_has_used_stays_used() {
    let limiter = frozen();
    assert!(admitted(&limiter, &FREE, 1, 3));
    assert!(!admitted(&limiter, &FREE, 1, 1));
    assert_eq!(replace(&limiter, &FREE, Quota::token_bucket(100, MINUTE)), *FREE.quota());
    assert_eq!(remaining(&limiter, &FREE, 1), 97);
    assert_eq!(remaining(&limiter, &FREE, 2), 100);

    assert!(admitted(&limiter, &FREE, 2, 50));
    let before = replace(&limiter, &FREE, Quota::token_bucket(10, MINUTE));
    assert_eq!(before, Quota::token_bucket(100, MINUTE));
    let snapshot = at_once(limiter.peek(&FREE).key(2_u64)).unwrap();
    assert_eq!(snapshot.tokens().to_string(), "-40");
    // The bucket gains by the 100 a minute by which it was used, until 9 of 10 are used.
    assert_eq!(snapshot.wait(), Some(41 * (MINUTE / 100)));
}

/// Regression: 4,900 tokens of debt at 100 a day locked the customer out for 49 days.
#[test]
fn a_smaller_plan_waits_for_the_refill_of_the_larger_one() {
    let pro = Limit::new("requests", Quota::token_bucket(10_000, DAY));
    let free = Limit::new("requests", Quota::token_bucket(100, DAY));
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    assert!(admitted(&limiter, &pro, 1, 5_000));
    let wait = Duration::from_micros(42_344_640_000);
    let refused = at_once(limiter.limit(&free).key(1_u64)).unwrap_err();
    assert_eq!(refused.retry_after(), Some(wait));
    let [snapshot] = refused.snapshots() else { panic!("one limit has refused") };
    assert_eq!((snapshot.remaining(), snapshot.tokens().to_string().as_str()), (0, "-4900"));
    assert_eq!(snapshot.full_at(), START + DAY / 2);
    let peeked = at_once(limiter.peek(&free).key(1_u64)).unwrap();
    assert_eq!((peeked.wait(), peeked.full_at()), (Some(wait), START + DAY / 2));
    // A larger cost waits longer, by the same refill.
    let ten = at_once(limiter.peek(&free).key(1_u64).cost(10)).unwrap();
    assert_eq!(ten.wait(), Some(wait + DAY / 10_000 * 9));
    // A penalty is used like any other, and neither it nor a refund changes the refill.
    let penalized = at_once(limiter.penalize(&free, 10).key(1_u64)).unwrap();
    assert_eq!(penalized.full_at(), START + DAY / 10_000 * 5_010);
    assert_eq!(at_once(limiter.penalize(&pro, 0).key(1_u64)).unwrap().tokens().to_string(), "4990");
    clock.advance(wait + DAY / 10_000 * 10);
    let permit = at_once(limiter.limit(&free).key(1_u64)).unwrap();
    assert_eq!(permit.remaining(), 0);
    // From now on it gains by 100 a day.
    assert_eq!(permit.snapshot().full_at(), permit.at() + DAY);
    let next = at_once(limiter.limit(&free).key(1_u64)).unwrap_err();
    assert_eq!(next.retry_after(), Some(DAY / 100));
}

#[test]
fn a_smaller_plan_queues_once_what_is_used_fits_in_it() {
    let pro = Limit::new("requests", Quota::token_bucket(10_000, DAY));
    let free = Limit::new("requests", Quota::token_bucket(100, DAY).max_reserved(50));
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    assert!(admitted(&limiter, &pro, 1, 5_000));
    let reserve = || at_once(limiter.limit(&free).key(1_u64).cost(2).reserve());
    assert_eq!(reserve().unwrap_err().retry_after(), Some(DAY / 10_000 * 4_902));
    clock.advance(DAY / 10_000 * 4_900 - Duration::from_micros(1));
    assert!(reserve().is_err());
    clock.advance(Duration::from_micros(1));
    // All of 100 are used now, so two more are there after two hundredths of a day.
    assert_eq!(reserve().unwrap().wait(), DAY / 50);
}

#[test]
fn shards_wait_for_the_refill_of_the_larger_plan() {
    let pro = Limit::new("requests", Quota::token_bucket(10_000, DAY).shards(2));
    let free = Limit::new("requests", Quota::token_bucket(100, DAY).shards(2));
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    for _ in 0..2 {
        assert!(admitted(&limiter, &pro, 1, 2_500));
    }
    let refused = at_once(limiter.limit(&free).key(1_u64).cost(60)).unwrap_err();
    let peeked = at_once(limiter.peek(&free).key(1_u64).cost(60)).unwrap();
    assert_eq!(peeked.wait(), refused.retry_after());
    let wait = refused.retry_after().unwrap();
    // Both have used 2,500 of 5,000, which come back at 5,000 a day each; 60 of 100 have to be
    // free.
    assert_eq!(wait, DAY / 10_000 * 4_960);
    clock.advance(wait - Duration::from_micros(1));
    assert!(!admitted(&limiter, &free, 1, 60));
    clock.advance(Duration::from_micros(1));
    assert!(admitted(&limiter, &free, 1, 60));
}

#[test]
fn its_own_numbers_undo_a_replacement() {
    let limiter = frozen();
    replace(&limiter, &FREE, Quota::token_bucket(7, HOUR));
    replace(&limiter, &FREE, Quota::token_bucket(8, HOUR));
    assert_eq!(limiter.quota(&FREE), Quota::token_bucket(8, HOUR));
    replace(&limiter, &FREE, *FREE.quota());
    assert_eq!(limiter.quota(&FREE), *FREE.quota());
    assert_eq!(remaining(&limiter, &FREE, 1), 3);
}

#[test]
fn other_plans_of_the_same_name_keep_their_numbers() {
    let limiter = frozen();
    replace(&limiter, &FREE, Quota::token_bucket(5, MINUTE));
    assert_eq!(remaining(&limiter, &FREE, 1), 5);
    assert_eq!(remaining(&limiter, &PRO, 1), 100);
    // Also where a plan got the numbers of another one, which are then replaced.
    replace(&limiter, &FREE, *PRO.quota());
    replace(&limiter, &PRO, Quota::token_bucket(1_000, MINUTE));
    assert_eq!([remaining(&limiter, &FREE, 1), remaining(&limiter, &PRO, 1)], [100, 1_000]);
}

/// The limit that says its capacity was another one: `replace` answered `Ok`, and changed nothing.
#[test]
fn a_limit_is_replaced_by_whichever_spelling_of_its_numbers() {
    static SPELLED: Limit =
        Limit::new("per-user", Quota::token_bucket(3, MINUTE).capacity(3).initial(3));
    for (named, asked) in [(&SPELLED, &FREE), (&FREE, &SPELLED)] {
        let limiter = frozen();
        replace(&limiter, named, Quota::token_bucket(100, MINUTE));
        assert_eq!(remaining(&limiter, asked, 1), 100);
        // Its own numbers in the other spelling undo it.
        replace(&limiter, named, *asked.quota());
        assert_eq!(remaining(&limiter, asked, 1), 3);
    }
}

#[test]
fn all_handles_of_a_limiter_have_the_new_numbers_and_no_other_limiter() {
    let (limiter, other) = (frozen(), frozen());
    let before = [limiter.clone(), limiter.clone().on_failure(OnFailure::Admit)];
    replace(&limiter, &FREE, Quota::token_bucket(5, MINUTE));
    let elsewhere = limiter.with_backend(Memory::new());
    for handle in before.iter().chain([&limiter.clone(), &elsewhere]) {
        assert_eq!(remaining(handle, &FREE, 1), 5);
        assert_eq!(handle.quota(&FREE), Quota::token_bucket(5, MINUTE));
    }
    assert_eq!(remaining(&other, &FREE, 1), 3);
    // A limiter that is switched off shows a full limit, of the numbers in force.
    assert_eq!(remaining(&limiter.enabled(false), &FREE, 1), 5);
}

#[test]
fn a_call_has_the_numbers_of_when_it_asks() {
    let limiter = frozen();
    let made = limiter.limit(&FREE).key(1_u64).cost(4);
    replace(&limiter, &FREE, Quota::token_bucket(10, MINUTE));
    assert!(at_once(made).is_ok());
    let reserves = limiter.limit(&FREE).key(1_u64).cost(5).reserve_within(Duration::ZERO);
    replace(&limiter, &FREE, Quota::token_bucket(6, MINUTE));
    assert!(at_once(reserves).unwrap_err().is_refused());
}

/// The shards that were drawn among those of before are not asked.
#[tokio::test(start_paused = true)]
async fn a_call_that_starts_again_draws_among_the_shards_in_force() {
    static HOT: Limit = Limit::new("hot", Quota::token_bucket(1_000, HOUR).shards(64));
    let (store, limiter, _) = Late::new();
    let held = store.close();
    let mut call = limiter.limit(&HOT);
    let polled = Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
    replace(&limiter, &HOT, Quota::token_bucket(1_000, HOUR));
    held.let_go();
    store.open();
    call.cost(2).await.unwrap();
    let left = limiter.peek(&HOT).await.unwrap().remaining();
    // The first call has taken its token from a shard, which may have been the one that stays.
    assert!(left == 998 || left == 997, "{left}");
}

#[test]
fn limits_that_say_different_things_about_outages_go_on_to_say_so() {
    static OPEN: Limit =
        Limit::new("per-user", Quota::token_bucket(3, MINUTE)).on_failure(OnFailure::Admit);
    let limiter = frozen();
    replace(&limiter, &OPEN, Quota::token_bucket(9, MINUTE));
    let snapshot = |limit| at_once(limiter.peek(limit)).unwrap();
    let (open, free) = (snapshot(&OPEN), snapshot(&FREE));
    assert_eq!((open.capacity(), open.limit().get_on_failure()), (9, Some(OnFailure::Admit)));
    assert_eq!((free.capacity(), free.limit().get_on_failure()), (3, None));
}

#[test]
fn numbers_that_cannot_be_kept_change_nothing_and_the_error_says_why() {
    let limiter = frozen();
    replace(&limiter, &FREE, Quota::token_bucket(5, MINUTE));
    let huge = Quota::token_bucket(1, DAY).capacity(10_000_000_000);
    let error = limiter.replace(&FREE, huge).unwrap_err();
    assert_eq!(
        error.to_string(),
        "limit \"per-user\" keeps its quota, and cannot take 1 per day, capacity 10000000000"
    );
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, Limit::try_new("x", huge).map_err(source).unwrap_err());
    assert_eq!(limiter.quota(&FREE), Quota::token_bucket(5, MINUTE));
}

fn source(error: impl std::error::Error) -> String {
    error.source().unwrap().to_string()
}

#[test]
fn a_shard_more_or_less_is_a_change_as_any_other() {
    let limiter = frozen();
    replace(&limiter, &PRO, Quota::token_bucket(100, MINUTE).shards(4));
    // Two shards are looked at by each request: a hundred requests find the last token.
    let taken = (0..200).filter(|_| admitted(&limiter, &PRO, 1, 1)).count();
    assert_eq!((taken, remaining(&limiter, &PRO, 1)), (100, 0));
    replace(&limiter, &PRO, Quota::token_bucket(100, MINUTE));
    // One bucket of the four remains, and it has used a quarter.
    assert_eq!(remaining(&limiter, &PRO, 1), 75);
}

/// What a call did, for comparison.
fn told(answer: Result<Snapshot, RateLimited>) -> String {
    match answer {
        Ok(snapshot) => {
            format!("{} {:?} {:?}", snapshot.limit().quota(), snapshot.state(), snapshot.wait())
        }
        Err(error) => format!("{error} {:?}", error.snapshots()),
    }
}

fn draw_quota(dice: &mut Dice) -> Quota {
    let (rate, capacity) = (1 + dice.below(9), dice.below(20));
    let period = [SECOND, MINUTE / 8, HOUR][dice.nth(&[0; 3])];
    let quota = match dice.below(2) {
        0 => Quota::token_bucket(rate, period),
        _ => Quota::fixed_window(rate, period),
    };
    let quota = quota.capacity(capacity).max_reserved(dice.below(30));
    if dice.below(4) == 0 { quota.shards(2) } else { quota }
}

/// Two limiters on stores of their own: in one, the limits are replaced; in the other, each call
/// names a limit that was made with the numbers in force. Random calls of all kinds are answered
/// alike, to the bit.
#[test]
fn replaced_numbers_decide_as_a_limit_that_was_made_with_them() {
    for seed in seeds(400) {
        let dice = &mut Dice(seed);
        let clock = ManualClock::new(START);
        let of: [Limit; 3] =
            ["a", "b", "c"].map(|name| Limit::try_new(name, draw_quota(dice)).unwrap());
        let mut current = of.clone();
        let (replaced, direct) = (limiter(&clock).seed(seed), limiter(&clock).seed(seed));
        let mut permits = Vec::<(Permit<'static>, Permit<'static>)>::new();
        let mut reserved = Vec::<(Reservation, Reservation)>::new();
        for step in 0..60 {
            clock.advance(dice.time(Duration::from_secs(3)));
            let (nth, other) = (dice.nth(&of), dice.nth(&of));
            let (key, cost) = (dice.below(2), dice.below(6));
            // The name is shown without the numbers that the limit was made with.
            let both = |answer: [Result<Snapshot, RateLimited>; 2]| {
                let [one, two] = answer.map(told);
                assert_eq!(one, two, "seed {seed}, step {step}");
            };
            match dice.below(9) {
                0 => {
                    let quota = draw_quota(dice);
                    replace(&replaced, &of[nth], quota);
                    current[nth] = Limit::try_new(of[nth].name(), quota).unwrap();
                }
                1 | 2 => {
                    let [one, two] = [(&replaced, &of[nth]), (&direct, &current[nth])]
                        .map(|(by, limit)| at_once(by.limit(limit).key(key).cost(cost)));
                    let pair = |one: &Result<Permit<'_>, RateLimited>| match one {
                        Ok(permit) => Ok(permit.snapshot()),
                        Err(error) => Err(error.clone()),
                    };
                    both([pair(&one), pair(&two)]);
                    if let (Ok(one), Ok(two)) = (one, two) {
                        permits.push((one.into_owned(), two.into_owned()));
                    }
                }
                3 => {
                    let answers = [(&replaced, &of), (&direct, &current)].map(|(by, limits)| {
                        let call = by.limit(&limits[nth]).key(key).cost(cost);
                        at_once(call.and(&limits[other]).key(key + 1).cost(1))
                    });
                    both(answers.map(|answer| answer.map(|permit| permit.snapshot())));
                }
                4 => {
                    let [one, two] = [(&replaced, &of[nth]), (&direct, &current[nth])]
                        .map(|(by, limit)| at_once(by.limit(limit).key(key).cost(cost).reserve()));
                    match (one, two) {
                        (Ok(one), Ok(two)) => {
                            assert_eq!(one.at(), two.at(), "seed {seed}, step {step}");
                            reserved.push((one, two));
                        }
                        (one, two) => both([one, two].map(|one| one.map(|one| one.snapshot()))),
                    }
                }
                5 => both(
                    [(&replaced, &of[nth]), (&direct, &current[nth])]
                        .map(|(by, limit)| at_once(by.penalize(limit, cost).key(key))),
                ),
                6 => both([(&replaced, &of[nth]), (&direct, &current[nth])].map(|(by, limit)| {
                    let time = Duration::from_secs(cost);
                    match cost {
                        0 => at_once(by.reset(limit).key(key)).unwrap(),
                        _ => drop(at_once(by.block(limit, time).key(key)).unwrap()),
                    }
                    at_once(by.peek(limit).key(key).cost(2))
                })),
                7 => {
                    if let Some((one, two)) = permits.pop() {
                        both([at_once(one.settle(cost)), at_once(two.settle(cost))]);
                    }
                }
                _ => drop(reserved.pop()),
            }
            both(
                [(&replaced, &of[other]), (&direct, &current[other])]
                    .map(|(by, limit)| at_once(by.peek(limit).key(key))),
            );
        }
    }
}

// Under load.

const THREADS: u64 = 8;

/// What ran for a key, and what came back.
#[derive(Default)]
struct KeyHistory {
    ran: Vec<(Timestamp, u64)>,
    returned: Vec<(Timestamp, u64)>,
}

/// Eight threads take tokens, and give some back if `settles`. One decision in forty is preceded by
/// a change of the quota, 1,000 in all in CI. Returns the histories of the keys.
fn replace_under_load(limit: &Limit, quotas: [Quota; 2], settles: bool) -> Vec<KeyHistory> {
    const KEYS: usize = 16;
    let most = times(5_000, 1_250);
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    let histories: [Mutex<KeyHistory>; KEYS] = Default::default();
    let (calls, changes, of_first) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let together = Barrier::new(8);
    let work = |thread| {
        let dice = &mut Dice(thread);
        together.wait();
        for _ in 0..most {
            clock.advance(dice.time(Duration::from_micros(400)));
            if calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(40) {
                let change = changes.fetch_add(1, Ordering::Relaxed);
                replace(&limiter, limit, quotas[usize::from(change.is_multiple_of(2))]);
            }
            let (key, cost) = (dice.nth(&[(); KEYS]), 1 + dice.below(4));
            let answer = at_once(limiter.limit(limit).key(key).cost(cost));
            let decided_by = match &answer {
                Ok(permit) => *permit.snapshot().limit().quota(),
                Err(error) => *error.limit().quota(),
            };
            of_first.fetch_add(u64::from(decided_by == quotas[0]), Ordering::Relaxed);
            let Ok(permit) = answer else { continue };
            histories[key].lock().unwrap().ran.push((permit.at(), cost));
            if settles && dice.below(3) == 0 {
                let back = dice.below(cost + 1);
                let settled = at_once(permit.settle(cost - back)).unwrap();
                histories[key].lock().unwrap().returned.push((settled.at(), back));
            }
        }
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let work = &work;
            scope.spawn(move || work(thread));
        }
    });
    assert_eq!(changes.into_inner(), THREADS * most / 40);
    let histories: Vec<_> =
        histories.into_iter().map(|history| history.into_inner().unwrap()).collect();
    let (of_first, ran) =
        (of_first.into_inner(), histories.iter().map(|one| one.ran.len() as u64).sum::<u64>());
    let of_second = THREADS * most - of_first;
    assert!(of_first > most && of_second > most, "both decided: {of_first}, {of_second}");
    assert!(most / 10 < ran, "enough was admitted: {ran}");
    histories
}

/// The quota of a limit changes to and fro, in CI 1,000 times, while eight threads take tokens: no key ever
/// gets more than the larger of the two quotas allows.
#[test]
fn no_key_gets_more_than_the_larger_quota_allows_under_load() {
    let bucket = |rate, capacity| Quota::token_bucket(rate, SECOND).capacity(capacity);
    let window = |rate, capacity| Quota::fixed_window(rate, SECOND / 10).capacity(capacity);
    for [small, large] in [
        [bucket(20, 5), bucket(200, 50)],
        [bucket(50, 10), bucket(70, 10)],
        [bucket(50, 1), bucket(50, 40)],
        [window(2, 4), window(9, 12)],
        [window(3, 6), window(3, 30)],
    ] {
        for (of, settles) in [(small, false), (large, true)] {
            let limit = Limit::new("changed", of);
            for KeyHistory { ran, returned } in replace_under_load(&limit, [small, large], settles)
            {
                let violation = check_history_with_returns(&large, &ran, &returned).unwrap();
                assert_eq!(violation, None, "{small} and {large}");
            }
        }
    }
}

/// A checker that could not fail would show nothing: a limiter that forgets what was used at each
/// change exceeds the bound at once.
#[test]
fn the_check_finds_a_refill_at_each_change() {
    let quota = Quota::token_bucket(20, SECOND).capacity(5);
    let limit = Limit::new("changed", quota);
    let (clock, mut ran) = (ManualClock::new(START), Vec::new());
    let limiter = limiter(&clock);
    for round in 0..10 {
        clock.advance(Duration::from_millis(10));
        if round % 5 == 0 {
            at_once(limiter.reset(&limit)).unwrap();
        }
        while let Ok(permit) = at_once(limiter.limit(&limit)) {
            ran.push((permit.at(), 1));
        }
    }
    assert!(check_history(&quota, &ran).unwrap().is_some());
}

/// A memory store that answers after the first poll.
#[derive(Debug)]
struct Later(Memory);

impl Backend for Later {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        let answer = self.0.apply(charges);
        Answer::pending(async {
            tokio::task::yield_now().await;
            answer.wait().await
        })
    }
    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        self.0.adjust(adjustments)
    }
    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.0.reset(ids)
    }
}

/// It looked its numbers up by those that it had found before, which may be those of another plan.
#[tokio::test]
async fn a_call_that_starts_again_takes_the_numbers_in_force_for_its_own_limit() {
    let per_minute = |rate| Quota::try_token_bucket(rate, MINUTE).unwrap();
    for free_first in [true, false] {
        // What the plan `FREE` becomes is what `PRO` was.
        let limiter = || {
            let memory = Memory::new().clock(ManualClock::new(START));
            let limiter = RateLimiter::new(Later(memory));
            let both = [(&FREE, *PRO.quota()), (&PRO, per_minute(5_000))];
            for nth in if free_first { [0, 1] } else { [1, 0] } {
                replace(&limiter, both[nth].0, both[nth].1);
            }
            limiter
        };
        type Change = fn(&RateLimiter);
        let changes: [(Change, u64); 3] = [
            (|_| {}, 100),
            (|limiter| drop(limiter.replace(&FREE, Quota::token_bucket(7, MINUTE))), 7),
            // Back to its own.
            (|limiter| drop(limiter.replace(&FREE, *FREE.quota())), 3),
        ];
        for (change, rate) in changes {
            let limiter = limiter();
            let begun = || {
                let mut call = limiter.limit(&FREE);
                let mut cx = Context::from_waker(Waker::noop());
                assert!(Pin::new(&mut call).poll(&mut cx).is_pending());
                call
            };
            let (call, reserving, several) = (begun(), begun(), begun());
            change(&limiter);
            let permit = call.key("alice").await.unwrap();
            assert_eq!(permit.snapshot().limit().quota(), &per_minute(rate), "{free_first}");
            let reserved = reserving.key("bob").reserve().await.unwrap();
            assert_eq!(reserved.snapshot().limit().quota(), &per_minute(rate), "{free_first}");
            let permit = several.key("carol").and(&PRO).key("dave").await.unwrap();
            let rates: Vec<_> =
                permit.snapshots().map(|snapshot| snapshot.limit().quota().rate()).collect();
            assert_eq!(rates, [rate, 5_000], "{free_first}");
        }
    }
}

/// What a program copies of an answer is a limit like any other, named by its name and numbers.
#[test]
fn a_copy_of_the_numbers_in_force_is_the_plan_that_has_these_numbers() {
    let limiter = frozen();
    replace(&limiter, &FREE, *PRO.quota());
    replace(&limiter, &PRO, Quota::token_bucket(5_000, MINUTE));
    let copy = at_once(limiter.peek(&FREE)).unwrap().limit().clone();
    assert_eq!(at_once(limiter.peek(&copy)).unwrap().remaining(), 5_000);
    assert_eq!(at_once(limiter.peek(&FREE)).unwrap().remaining(), 100);
}
