//! Keys in debt among many others, and the list of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::future::join_all;
use tollgate::backend::DebtorReport;
use tollgate::{DAY, Limit, Quota, RateLimiter};

use crate::cases::times;

/// Of these keys, one in seven is in debt, one in eleven is blocked, and the others have used some.
fn keys() -> std::ops::Range<u32> {
    0..u32::try_from(times(10_000, 2_500)).unwrap()
}

static DAILY: Limit = Limit::new("daily", Quota::token_bucket(10, DAY));
static ALIKE: Limit = Limit::new("daily-too", Quota::token_bucket(10, DAY));

fn is_blocked(key: u32) -> bool {
    key.is_multiple_of(11)
}

fn is_debtor(key: u32) -> bool {
    is_blocked(key) || key.is_multiple_of(7)
}

fn name(key: u32) -> String {
    format!("user {key}")
}

/// Uses all keys.
async fn fill(limiter: &RateLimiter) {
    let keys: Vec<_> = keys().collect();
    for keys in keys.chunks(250) {
        let calls = keys.iter().map(|&key| async move {
            match key {
                key if is_blocked(key) => {
                    drop(limiter.block(&DAILY, DAY * 9).key(name(key)).await.unwrap());
                }
                key if is_debtor(key) => {
                    drop(limiter.penalize(&DAILY, 50).key(name(key)).await.unwrap());
                }
                key => drop(limiter.limit(&DAILY).key(name(key)).await.unwrap()),
            }
        });
        join_all(calls).await;
    }
    for key in 0..100 {
        limiter.penalize(&ALIKE, 50).key(name(key)).await.unwrap();
    }
}

/// How often each key is listed from the first page to the last, and how many pages there are: of
/// the keys that are blocked, of those that are not, or of both.
pub async fn list(
    limiter: &RateLimiter,
    limit: &Limit,
    blocked: Option<bool>,
    max: usize,
) -> (BTreeMap<String, usize>, usize) {
    let (mut found, mut pages, mut cursor) = (BTreeMap::new(), 0, None);
    loop {
        let call = limiter.debtors(limit).max(max).after(cursor);
        let report = match blocked {
            None => call.await.unwrap(),
            Some(true) => call.only_blocked().await.unwrap(),
            Some(false) => call.only_in_debt().await.unwrap(),
        };
        let DebtorReport::Page { at, debtors, next } = report else { panic!("{report:?}") };
        pages += 1;
        assert!(debtors.len() <= max);
        for debtor in debtors {
            assert!(debtor.snapshot().at() == at && debtor.snapshot().remaining() == 0);
            assert!(blocked.is_none_or(|blocked| debtor.is_blocked() == blocked), "{debtor:?}");
            *found.entry(debtor.key_text()).or_insert(0) += 1;
        }
        cursor = next;
        if cursor.is_none() {
            return (found, pages);
        }
    }
}

/// The text forms of the keys that are due.
fn due(blocked: Option<bool>) -> Vec<String> {
    let is_due =
        |key: &u32| is_debtor(*key) && blocked.is_none_or(|blocked| is_blocked(*key) == blocked);
    let mut due: Vec<_> =
        keys().filter(is_due).map(|key| tollgate::Key::from(name(key)).to_text()).collect();
    due.sort_unstable();
    due
}

/// Pages of all sizes find each debtor of these keys exactly once.
pub async fn each_is_found_once(limiter: &RateLimiter) {
    fill(limiter).await;
    let lists =
        [(None, 100), (None, 7), (None, usize::MAX), (Some(true), 100), (Some(false), 1_000)];
    for (blocked, max) in lists {
        let (found, pages) = list(limiter, &DAILY, blocked, max).await;
        let due = due(blocked);
        assert!(pages >= due.len() / max, "{pages} pages of {max}");
        let twice: Vec<_> = found.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "{blocked:?}, {max}: {twice:?}");
        let found: Vec<_> = found.into_keys().collect();
        assert!(found == due, "{blocked:?}, {max}: {} of {}", found.len(), due.len());
    }
}

/// While eight tasks take from many other keys, and make some of them debtors, each list has the
/// keys that are in debt all the while; and no decision fails.
pub async fn all_are_found_beside_a_hammer(limiter: &RateLimiter) {
    fill(limiter).await;
    let (over, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let hammers: Vec<_> = (0..8_u64)
        .map(|nth| {
            let (limiter, over, made) = (limiter.clone(), Arc::clone(&over), Arc::clone(&made));
            tokio::spawn(async move {
                let mut calls = 0;
                while !over.load(Ordering::Relaxed) {
                    let key = ("hammer", nth, calls);
                    match calls % 3 {
                        0 => drop(limiter.limit(&DAILY).key(key).await.unwrap()),
                        1 => drop(limiter.penalize(&DAILY, 30).key(key).await.unwrap()),
                        _ => limiter.reset(&DAILY).key(("hammer", nth, calls - 1)).await.unwrap(),
                    }
                    calls += 1;
                    made.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let mut lists = 0;
    while lists < 3 || made.load(Ordering::Relaxed) < 1_000 {
        let (found, _) = list(limiter, &DAILY, None, 100).await;
        let missing: Vec<_> =
            due(None).into_iter().filter(|key| !found.contains_key(key)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        lists += 1;
    }
    over.store(true, Ordering::Relaxed);
    for hammer in hammers {
        hammer.await.unwrap();
    }
}
