//! Opening files, filling them, and losing them.

use std::fs;
use std::pin::pin;
use std::sync::{Condvar, Mutex};
use std::task::{Context, Waker};

use futures_util::future::join_all;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};

use super::TestDir;
use crate::{Durability, Embedded};
use tollgate::algebra::Verdict;
use tollgate::backend::{Backend, BackendError, BucketId, Charge};
use tollgate::clock::{ManualClock, Timestamp};
use tollgate::{DAY, HOUR, Key, Limit, Quota, RateLimiter, SECOND};
use tollgate_conformance::history::START;

static LOGIN: Limit = Limit::new("login", Quota::token_bucket(2, HOUR));

const BUCKETS: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("tollgate buckets");

#[track_caller]
fn expect_wrong(error: &BackendError, parts: &[&str]) {
    assert!(error.is_misconfigured() && !error.is_outage(), "{error:?}");
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn a_file_that_is_open_is_not_opened_again() {
    let dir = TestDir::new();
    let path = dir.file("limits.db");
    let store = Embedded::open(&path).unwrap();
    let clone = store.clone();
    let error = Embedded::open(&path).unwrap_err();
    expect_wrong(&error, &["limits.db", "is open in another process", "clone the store"]);
    drop(store);
    assert!(Embedded::open(&path).is_err(), "a clone has it open");
    drop(clone);
    // Dropping the last one has closed it.
    assert_eq!(Embedded::open(&path).unwrap().path(), path);
}

#[test]
fn files_of_others_are_refused_and_stay_as_they_are() {
    let dir = TestDir::new();
    let other = dir.file("other.db");
    {
        let database = Database::create(&other).unwrap();
        let transaction = database.begin_write().unwrap();
        let table: TableDefinition<'_, u64, u64> = TableDefinition::new("theirs");
        transaction.open_table(table).unwrap().insert(1, 2).unwrap();
        transaction.commit().unwrap();
    }
    let text = dir.file("notes.txt");
    fs::write(&text, "not a database\n".repeat(1_000)).unwrap();
    let short = dir.file("short");
    fs::write(&short, "x").unwrap();
    let cut = dir.file("cut.db");
    fs::write(&cut, &fs::read(&other).unwrap()[..100]).unwrap();
    for (path, what) in [
        (&other, "it is the database of another program"),
        (&text, "it is not a database"),
        (&short, "it is not a database"),
        (&cut, "cut.db"),
    ] {
        let before = fs::read(path).unwrap();
        let error = Embedded::open(path).unwrap_err();
        expect_wrong(&error, &[what, path.to_str().unwrap()]);
        if path != &other {
            assert_eq!(fs::read(path).unwrap(), before, "{path:?}");
        }
    }
    // Theirs is still whole.
    let database = Database::create(&other).unwrap();
    let table: TableDefinition<'_, u64, u64> = TableDefinition::new("theirs");
    let table = database.begin_read().unwrap().open_table(table).unwrap();
    assert_eq!(table.get(1).unwrap().unwrap().value(), 2);
}

#[test]
fn places_that_cannot_be_written_to_are_named() {
    let dir = TestDir::new();
    let error = Embedded::open(dir.file("missing/limits.db")).unwrap_err();
    expect_wrong(&error, &["missing/limits.db", "its directory does not exist"]);
    let error = Embedded::open(dir.path()).unwrap_err();
    expect_wrong(&error, &["cannot be a file", "name a file in a directory"]);
    fs::write(dir.file("file"), "").unwrap();
    let error = Embedded::open(dir.file("file/limits.db")).unwrap_err();
    expect_wrong(&error, &["cannot be a file"]);
    let error = Embedded::at(dir.file("limits.db")).deadline(SECOND - SECOND).open().unwrap_err();
    expect_wrong(&error, &["a deadline of 0 leaves no time to decide"]);
}

/// Even the superuser cannot create files there.
#[cfg(target_os = "linux")]
#[test]
fn a_read_only_directory_is_named() {
    let error = Embedded::open("/sys/kernel/limits.db").unwrap_err();
    expect_wrong(&error, &["/sys/kernel/limits.db", "cannot be written to", "choose another one"]);
}

/// Flips bytes all over a file: it is opened with its buckets, or not at all.
#[tokio::test]
async fn a_damaged_file_is_an_error_and_never_a_panic() {
    let dir = TestDir::new();
    let path = dir.file("limits.db");
    let open = || Embedded::at(&path).clock(ManualClock::new(START)).open();
    let limiter = RateLimiter::new(open().unwrap());
    for key in 0..200_u64 {
        limiter.limit(&LOGIN).key(key).cost(2).await.unwrap();
    }
    drop(limiter);
    let whole = fs::read(&path).unwrap();
    let (mut refused, mut opened) = (0, 0);
    // The header, and every page that holds anything.
    let used: Vec<_> = (0..whole.len()).filter(|&at| whole[at] != 0).collect();
    for at in used.iter().step_by(used.len().div_ceil(150)).chain(&used[..60]) {
        let mut damaged = whole.clone();
        damaged[*at] ^= 0x55;
        fs::write(&path, damaged).unwrap();
        match open() {
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().contains("  "), "{error}");
            }
            Ok(store) => {
                opened += 1;
                let limiter = RateLimiter::new(store);
                let first = limiter.limit(&LOGIN).key(0_u64).await;
                assert!(first.is_err(), "byte {at}: the bucket was full again");
            }
        }
    }
    assert!(refused > 20 && opened > 20, "{refused} and {opened}");
}

/// A later version of this crate may have written it.
#[tokio::test]
async fn a_value_that_is_no_bucket_is_an_error_and_stays() {
    let dir = TestDir::new();
    let path = dir.file("limits.db");
    drop(Embedded::open(&path).unwrap());
    let foreign = [2; 49];
    {
        let database = Database::create(&path).unwrap();
        let transaction = database.begin_write().unwrap();
        let mut table = transaction.open_table(BUCKETS).unwrap();
        table.insert("login:s%01a", foreign.as_slice()).unwrap();
        drop(table);
        transaction.commit().unwrap();
    }
    let store = Embedded::open(&path).unwrap();
    let key = Key::from("a");
    let id = BucketId::new(LOGIN.name(), &key);
    let take = store.apply(&[Charge::take(id, LOGIN.bucket(), 1)]).wait().await.unwrap_err();
    let reset = store.reset(&[id]).wait().await.unwrap_err();
    for error in [take, reset] {
        assert!(!error.is_outage());
        let text = error.to_string();
        assert!(text.contains("the value of `login:s%01a` is not a bucket"), "{text}");
    }
    // Other buckets are decided, and the sweep of their commits leaves it alone.
    let limiter = RateLimiter::new(store);
    limiter.limit(&LOGIN).key("b").await.unwrap();
    drop(limiter);
    let stored = stored(&path);
    assert_eq!(stored["login:s%01a"], foreign);
    assert_eq!(stored.len(), 2);
}

fn stored(path: &std::path::Path) -> std::collections::HashMap<String, Vec<u8>> {
    let database = Database::create(path).unwrap();
    let table = database.begin_read().unwrap().open_table(BUCKETS).unwrap();
    let all = table.iter().unwrap().map(Result::unwrap);
    all.map(|(name, value)| (name.value().to_owned(), value.value().to_owned())).collect()
}

/// A client that makes up keys.
async fn flood<K: Into<Key>>(limiter: &RateLimiter, limit: &Limit, keys: impl Iterator<Item = K>) {
    let keys: Vec<Key> = keys.map(Into::into).collect();
    // Together, since each decision is a trip to another thread.
    for lot in keys.chunks(500) {
        let calls = lot.iter().map(|key| limiter.limit(limit).key(key.clone()).into_future());
        for answer in join_all(calls).await {
            answer.unwrap();
        }
    }
}

#[tokio::test]
async fn full_buckets_leave_the_file() {
    let dir = TestDir::new();
    let path = dir.file("limits.db");
    let clock = ManualClock::new(START);
    let store =
        Embedded::at(&path).clock(clock.clone()).durability(Durability::Fast).deadline(HOUR);
    let store = store.open().unwrap();
    let limiter = RateLimiter::new(store.clone());
    flood(&limiter, &LOGIN, 0..1_000).await;
    store.flush().await.unwrap();
    clock.advance(HOUR);
    // Each commit looks at some twenty.
    for key in 0..100 {
        limiter.limit(&LOGIN).key(5_000 + key).await.unwrap();
        store.flush().await.unwrap();
    }
    drop((limiter, store));
    assert_eq!(stored(&path).len(), 100);
}

#[tokio::test]
async fn a_flood_of_keys_keeps_the_file_within_its_bound_and_evicts_no_debtor() {
    let dir = TestDir::new();
    let path = dir.file("limits.db");
    let clock = ManualClock::new(START);
    let open = || {
        let builder = Embedded::at(&path).clock(clock.clone()).durability(Durability::Fast);
        builder.deadline(HOUR).max_keys(500).open().unwrap()
    };
    let store = open();
    let limiter = RateLimiter::new(store.clone());
    for debtor in ["alice", "bob", "carol"] {
        limiter.limit(&LOGIN).key(debtor).cost(2).await.unwrap();
    }
    limiter.block(&LOGIN, DAY).key("mallory").await.unwrap();
    let mut largest = 0;
    for lot in 0..200 {
        flood(&limiter, &LOGIN, lot * 100..(lot + 1) * 100).await;
        store.flush().await.unwrap();
        largest = largest.max(fs::metadata(&path).unwrap().len());
    }
    for debtor in ["alice", "bob", "carol", "mallory"] {
        let refused = limiter.limit(&LOGIN).key(debtor).await.unwrap_err();
        assert!(refused.is_refused(), "{debtor}");
    }
    drop((limiter, store));
    let count = stored(&path).len();
    assert!((400..=600).contains(&count), "{count}");
    // 20,000 keys would take 2 MB and more.
    assert!(largest < 2 << 20, "{largest} bytes");
    drop(open());
}

#[tokio::test]
async fn a_file_that_is_too_large_for_its_buckets_is_compacted_when_it_is_opened() {
    let dir = TestDir::new();
    let path = dir.file("limits.db");
    let clock = ManualClock::new(START);
    let open = || {
        let builder = Embedded::at(&path).clock(clock.clone()).durability(Durability::Fast);
        builder.deadline(HOUR).open().unwrap()
    };
    let long = "x".repeat(150);
    let mut before = 0;
    // The file gives free pages at its end back by itself, more or less of them by chance.
    while before < 5 << 20 {
        let store = open();
        let limiter = RateLimiter::new(store.clone());
        flood(&limiter, &LOGIN, (0..40_000_u64).map(|key| (key, &*long))).await;
        // How many decisions share a commit depends on the machine, and so does what a sweep leaves.
        // In the end, that is a thousand buckets.
        for keys in [10_000; 4].into_iter().chain([1_000; 6]) {
            store.flush().await.unwrap();
            clock.advance(DAY);
            flood(&limiter, &LOGIN, 0..keys).await;
        }
        drop((limiter, store));
        before = fs::metadata(&path).unwrap().len();
    }
    drop(open());
    let after = fs::metadata(&path).unwrap().len();
    assert!(after < before / 2, "{before} and {after} bytes");
}

/// A caller that leaves before its call is decided takes nothing; one that leaves later has taken
/// all, on both limits.
#[tokio::test]
async fn a_call_that_is_dropped_takes_all_or_nothing() {
    static SECOND_LIMIT: Limit = Limit::new("second", Quota::token_bucket(2, HOUR));
    let dir = TestDir::new();
    let store = Embedded::at(dir.file("limits.db")).deadline(HOUR).clock(ManualClock::new(START));
    let limiter = RateLimiter::new(store.open().unwrap());
    for key in 0..40_u64 {
        {
            let call = limiter.limit(&LOGIN).key(key).cost(2);
            let call = call.and(&SECOND_LIMIT).key(key).cost(2);
            let mut call = pin!(call.into_future());
            let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
            if key % 2 == 0 {
                // The decider may or may not be done when the call is dropped.
                limiter.peek(&LOGIN).key(key).await.unwrap();
            }
        }
        let mut left = Vec::new();
        for limit in [&LOGIN, &SECOND_LIMIT] {
            left.push(limiter.peek(limit).key(key).await.unwrap().remaining());
        }
        assert!(left == [0, 0] || left == [2, 2], "{left:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_fails_at_its_deadline() {
    let dir = TestDir::new();
    let store = Embedded::at(dir.file("limits.db")).clock(StuckClock);
    let stuck = store.open().unwrap();
    let key = Key::from("a");
    let charge = Charge::take(BucketId::new("x", &key), LOGIN.bucket(), 1);
    StuckClock::hold(true);
    let error = stuck.apply(&[charge]).wait().await.unwrap_err();
    assert!(error.is_timeout() && error.is_outage());
    assert_eq!(error.to_string(), "embedded backend could not decide within 1000 ms");
    // Asked for and left before the decider comes to it: it takes nothing.
    drop(stuck.apply(&[charge]));
    StuckClock::hold(false);
    let look = Charge::look(BucketId::new("x", &key), LOGIN.bucket(), LOGIN.bucket().capacity());
    tokio::time::resume();
    let looked = stuck.apply(&[look]).wait().await.unwrap();
    let first_took = looked.verdict() == Verdict::Refused;
    // The first call may have been taken by the decider before its deadline.
    let most = LOGIN.bucket().capacity();
    let held = looked.readings()[0].state().value;
    assert_eq!(held, most - i64::from(first_took));
}

/// A clock that does not answer while a test holds it.
#[derive(Debug)]
struct StuckClock;

static IS_HELD: Mutex<bool> = Mutex::new(false);
static RELEASE: Condvar = Condvar::new();

impl StuckClock {
    fn hold(is_held: bool) {
        *IS_HELD.lock().unwrap() = is_held;
        RELEASE.notify_all();
    }
}

impl tollgate::clock::Clock for StuckClock {
    fn now(&self) -> tollgate::Timestamp {
        drop(RELEASE.wait_while(IS_HELD.lock().unwrap(), |is_held| *is_held).unwrap());
        START
    }
}

/// On a machine that booted with an old clock, a client with a limit of 10 a second got no token until
/// the clock had caught up.
#[tokio::test]
async fn buckets_gain_although_the_machine_starts_with_an_earlier_clock() {
    let dir = TestDir::new();
    let limit = Limit::new("calls", Quota::token_bucket(10, SECOND));
    let open = |now| {
        let clock = ManualClock::new(now);
        let store = Embedded::at(dir.file("limits.db")).clock(clock.clone()).deadline(HOUR);
        (RateLimiter::new(store.open().unwrap()), clock)
    };
    let an_hour_ago = Timestamp::from_micros(START.as_micros() - 3_600_000_000);
    let (limiter, _) = open(START);
    limiter.limit(&limit).cost(10).await.unwrap();
    drop(limiter);
    for now in [an_hour_ago, Timestamp::UNIX_EPOCH, an_hour_ago] {
        let (limiter, clock) = open(now);
        let refused = limiter.limit(&limit).await.unwrap_err();
        assert_eq!(refused.retry_after(), Some(SECOND / 10));
        clock.advance(SECOND / 2);
        limiter.limit(&limit).cost(5).await.unwrap();
    }
}
