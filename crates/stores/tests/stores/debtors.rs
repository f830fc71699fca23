//! The list of debtors in a file, and of a leased limit.

use std::collections::BTreeMap;
use std::time::Duration;
use std::{env, fs, process};

use tollgate::backend::{Debtor, DebtorReport, Memory};
use tollgate::clock::{Clock, ManualClock, SystemClock};
use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimiter, Snapshot};
use tollgate_embedded::{Durability, Embedded};
use tollgate_leasing::Leasing;
use tollgate_testing::cases::seeds;
use tollgate_testing::debtors::{all_are_found_beside_a_hammer, each_is_found_once};
use tollgate_testing::dice::Dice;
use tollgate_testing::{START, at_once};

static LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));

#[track_caller]
fn count(report: DebtorReport<Snapshot>) -> [u64; 2] {
    let DebtorReport::Count { in_debt, blocked, .. } = report else { panic!("{report:?}") };
    [in_debt, blocked]
}

#[test]
fn a_list_of_a_leased_limit_is_that_of_the_store() {
    static HOT: Limit = Limit::new("hot", Quota::token_bucket(6_000, MINUTE).max_reserved(0));
    let clock = ManualClock::new(START);
    let store = Memory::new().clock(clock.clone());
    let limiter = RateLimiter::new(Leasing::new(store).clock(clock).lease(&HOT));
    at_once(limiter.block(&HOT, HOUR).key("mallory")).unwrap();
    at_once(limiter.penalize(&HOT, 9_000).key("eve")).unwrap();
    at_once(limiter.block(&LOGIN, HOUR).key("mallory")).unwrap();
    assert_eq!(count(at_once(limiter.debtors(&HOT)).unwrap()), [1, 1]);
    assert_eq!(count(at_once(limiter.debtors(&LOGIN)).unwrap()), [0, 1]);
}

fn open(name: &str) -> RateLimiter {
    open_by(name, SystemClock::new())
}

fn open_by(name: &str, clock: impl Clock) -> RateLimiter {
    let path = env::temp_dir().join(format!("tollgate-list-{}-{name}.db", process::id()));
    let store = Embedded::at(&path).durability(Durability::Fast).clock(clock);
    let store = store.deadline(Duration::from_secs(60)).open().unwrap();
    // The store keeps the open file.
    fs::remove_file(&path).unwrap();
    RateLimiter::new(store)
}

#[tokio::test]
async fn each_debtor_of_many_keys_is_found_once() {
    each_is_found_once(&open("once")).await;
}

/// Whether a bucket is in debt is told by the numbers in force, whether it was used since or not.
#[tokio::test]
async fn debtors_are_listed_by_the_numbers_in_force() {
    let limiter = open_by("replaced", ManualClock::new(START));
    limiter.limit(&LOGIN).key("alice").cost(5).await.unwrap();
    let list = async || limiter.debtors(&LOGIN).await.unwrap().into_debtors().unwrap();
    assert_eq!(list().await.len(), 0);
    limiter.replace(&LOGIN, Quota::token_bucket(3, HOUR)).unwrap();
    let debtors = list().await;
    let [alice] = &*debtors else { panic!("{debtors:?}") };
    assert_eq!(alice.key_text(), "alice");
    assert_eq!((alice.snapshot().capacity(), alice.tokens().to_string().as_str()), (3, "-2"));
    limiter.replace(&LOGIN, *LOGIN.quota()).unwrap();
    assert_eq!(list().await.len(), 0);
}

/// Random calls, and numbers that change between them.
#[tokio::test]
async fn memory_counts_what_another_store_lists() {
    let quotas = [1, 5, 20, 300].map(|rate| Quota::token_bucket(rate, HOUR));
    let window = |rate| Quota::fixed_window(rate, HOUR).start(START);
    let quotas = [quotas.as_slice(), &[window(4), window(50)]].concat();
    let (mut debtors, mut counts) = (0, 0);
    for seed in seeds(8) {
        let (mut dice, clock) = (Dice(seed), ManualClock::new(START));
        let listing = open_by(&format!("counted-{seed}"), clock.clone());
        let counting = RateLimiter::new(Memory::new().clock(clock.clone()));
        let naming = RateLimiter::new(Memory::new().keep_keys().clock(clock.clone()));
        for _ in 0..150 {
            let key = dice.below(12);
            let (tokens, quota) = (1 + dice.below(30), quotas[dice.nth(&quotas)]);
            let minutes = u32::try_from(dice.below(90)).unwrap();
            let step = dice.below(8);
            for limiter in [&listing, &counting, &naming] {
                match step {
                    0 => drop(limiter.replace(&LOGIN, quota).unwrap()),
                    1 => drop(limiter.block(&LOGIN, MINUTE * minutes).key(key).await),
                    2 => drop(limiter.penalize(&LOGIN, tokens).key(key).await),
                    _ => drop(limiter.limit(&LOGIN).key(key).cost(tokens % 4).await),
                }
            }
            if step > 5 {
                clock.advance(MINUTE * minutes / 2);
            }
            let report = listing.debtors(&LOGIN).await.unwrap();
            assert!(matches!(report, DebtorReport::Page { next: None, .. }), "{report:?}");
            let page = report.into_debtors().unwrap();
            let named = naming.debtors(&LOGIN).await.unwrap().into_debtors().unwrap();
            let shown = |page: &[Debtor<Snapshot>]| {
                let shown = page.iter().map(|one| (one.key_text(), one.state()));
                shown.collect::<BTreeMap<_, _>>()
            };
            assert_eq!(shown(&named), shown(&page), "{seed}");
            let listed = |blocked| page.iter().filter(|one| one.is_blocked() == blocked).count();
            let listed = [false, true].map(listed);
            let counted = count(counting.debtors(&LOGIN).await.unwrap());
            assert_eq!(counted.map(|number| usize::try_from(number).unwrap()), listed, "{seed}");
            (debtors, counts) = (debtors + listed.iter().sum::<usize>(), counts + 1);
        }
    }
    assert!(debtors > counts, "{debtors} in {counts}");
}

#[tokio::test]
async fn debtors_are_found_while_other_keys_come_and_go() {
    all_are_found_beside_a_hammer(&open("hammer")).await;
}
