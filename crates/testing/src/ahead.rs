//! Buckets whose times a wrong clock has written, years ahead of the one that decides.

use std::time::Duration;

use tollgate::quota::{Calendar, days};
use tollgate::{DAY, HOUR, Limit, Quota, RateLimited, RateLimiter, SECOND, Timestamp};

use crate::traffic::wait_until;

/// Whole steps of all limits here.
const YEARS: Duration = days(3_650);

/// All kinds of buckets. They gain nothing that counts while a test runs.
static LIMITS: [Limit; 7] = [
    Limit::new("bucket", Quota::token_bucket(10, HOUR)),
    Limit::new("coarse", Quota::token_bucket(4_999, days(30))),
    Limit::new("initial", Quota::token_bucket(10, HOUR).capacity(20).initial(5)),
    Limit::new("keyed", Quota::fixed_window(10, DAY)),
    Limit::new("first", Quota::fixed_window(10, DAY).from_first_use()),
    Limit::new("daily", Quota::fixed_window(10, DAY).start(Timestamp::UNIX_EPOCH)),
    Limit::new("saves", Quota::fixed_window(10, DAY).start(Timestamp::UNIX_EPOCH).capacity(30)),
];

static CALENDARS: [Limit; 2] = [
    Limit::new("midnight", Quota::calendar(10, Calendar::daily())),
    Limit::new("monthly", Quota::calendar(10, Calendar::monthly())),
];

/// The windows of these, and of calendars, begin at the same instants for all keys.
const TOLD_ALIKE: [&str; 2] = ["daily", "saves"];

static OTHER: Limit = Limit::new("other", Quota::token_bucket(1_000_000, DAY));
static QUICK: Limit = Limit::new("quick", Quota::token_bucket(2, SECOND).capacity(20));

/// Rows of a store, as a program sees them that knows its form.
#[expect(async_fn_in_trait, reason = "a test awaits them where it runs")]
pub trait Rows {
    /// Adds to the time of the row of this key, in microseconds. The row is kept as long as
    /// one would be that was written then.
    async fn move_ahead(&self, key: &str, micros: i64);

    /// The numbers of this row: value, time, gain, token, capacity and step.
    async fn numbers(&self, key: &str) -> [i64; 6];

    /// The time by the clock of the store.
    async fn now(&self) -> i64;
}

fn all() -> impl Iterator<Item = &'static Limit> {
    LIMITS.iter().chain(&CALENDARS)
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap()
}

/// When a call may come back, and how long that is from now.
async fn told(limiter: &RateLimiter, limit: &Limit, key: &str) -> (Timestamp, Duration) {
    let refused = limiter.limit(limit).key(key).await.unwrap_err();
    told_by(&refused)
}

#[track_caller]
fn told_by(refused: &RateLimited) -> (Timestamp, Duration) {
    let (wait, [snapshot]) = (refused.retry_after().unwrap(), refused.snapshots()) else {
        panic!("{refused:?}")
    };
    (snapshot.at() + wait, wait)
}

/// Takes all that a bucket holds.
async fn empty(limiter: &RateLimiter, limit: &Limit, key: &str) {
    let held = limiter.peek(limit).key(key).await.unwrap().remaining();
    drop(limiter.limit(limit).key(key).cost(held).await.unwrap());
}

/// An empty bucket of a time years ahead gains from the first call on, whatever that call is.
pub async fn a_bucket_of_a_time_years_ahead_gains_from_now_on<R: Rows>(
    limiter: &RateLimiter,
    rows: &R,
) {
    for limit in all() {
        let name = limit.name();
        for first_call in 0..5 {
            let key = format!("{name}-{first_call}");
            empty(limiter, limit, &key).await;
            rows.move_ahead(&key, micros(YEARS)).await;
            match first_call {
                0 => drop(told(limiter, limit, &key).await),
                1 => assert_eq!(limiter.peek(limit).key(&*key).await.unwrap().remaining(), 0),
                2 => {
                    let both = limiter.limit(limit).key(&*key).and(&OTHER).key(&*key).await;
                    assert!(both.unwrap_err().is_refused(), "{key}");
                }
                3 => drop(limiter.penalize(limit, 1).key(&*key).await.unwrap()),
                _ => {
                    // One statement, or one script, for both.
                    let healthy = format!("healthy-{key}");
                    let calls = [&key, &healthy].map(|key| limiter.limit(limit).key(&**key));
                    let [frozen, healthy] = calls;
                    let (frozen, healthy) =
                        tokio::join!(frozen.into_future(), healthy.into_future());
                    assert!(frozen.unwrap_err().is_refused(), "{key}");
                    drop(healthy.unwrap());
                }
            }
            let [_, ts, ..] = rows.numbers(&key).await;
            assert!(ts <= rows.now().await, "{key}: {ts}");
            let (until, wait) = told(limiter, limit, &key).await;
            let (most, deeper) = (limit.quota().period(), limit.quota().period() / 10);
            assert!(
                wait <= most + if first_call == 3 { deeper } else { Duration::ZERO },
                "{key}: {wait:?}"
            );
            // It gains while it is not asked.
            assert_eq!(told(limiter, limit, &key).await.0, until, "{key}");
            if TOLD_ALIKE.contains(&name) || CALENDARS.contains(limit) {
                let twin = format!("twin-{key}");
                empty(limiter, limit, &twin).await;
                if first_call == 3 {
                    drop(limiter.penalize(limit, 1).key(&*twin).await.unwrap());
                }
                assert_eq!(told(limiter, limit, &twin).await.0, until, "{key}");
            }
        }
    }
    empty(limiter, &QUICK, "q").await;
    rows.move_ahead("q", micros(YEARS)).await;
    wait_until("it has gained", async || limiter.limit(&QUICK).key("q").await.is_ok()).await;
}

/// What a bucket holds, and how much it is used, does not change.
pub async fn what_was_used_stays_used(limiter: &RateLimiter, rows: &impl Rows) {
    for limit in all() {
        let key = format!("used-{}", limit.name());
        drop(limiter.limit(limit).key(&*key).cost(3).await.unwrap());
        let held = limiter.peek(limit).key(&*key).await.unwrap().remaining();
        rows.move_ahead(&key, micros(YEARS)).await;
        assert_eq!(limiter.peek(limit).key(&*key).await.unwrap().remaining(), held, "{key}");
        assert_eq!(limiter.limit(limit).key(&*key).await.unwrap().remaining(), held - 1, "{key}");
    }
}

/// Blocks and debts keep their word, however far ahead they are, and so does a time that a server
/// can have left whose clock is an hour ahead at most.
pub async fn blocks_debts_and_times_a_little_ahead_stay(limiter: &RateLimiter, rows: &impl Rows) {
    for limit in all() {
        let name = limit.name();
        let [blocked, owing, near] =
            ["blocked", "owing", "near"].map(|kind| format!("{kind}-{name}"));
        drop(limiter.block(limit, YEARS).key(&*blocked).await.unwrap());
        let held = limiter.peek(limit).key(&*owing).await.unwrap().remaining();
        drop(limiter.penalize(limit, held + 1).key(&*owing).await.unwrap());
        rows.move_ahead(&owing, micros(YEARS)).await;
        empty(limiter, limit, &near).await;
        let [_, ts, .., step] = rows.numbers(&near).await;
        // As far ahead as it may be, less a minute and a part of a step.
        let ahead = rows.now().await + micros(HOUR) - micros(Duration::from_mins(1)) - ts;
        rows.move_ahead(&near, ahead - ahead % step.abs()).await;
        for key in [&blocked, &owing, &near] {
            let before = rows.numbers(key).await;
            let (until, wait) = told(limiter, limit, key).await;
            assert_eq!(told(limiter, limit, key).await.0, until, "{key}");
            assert!(key == &near || wait > days(3_600), "{key}: {wait:?}");
            drop(limiter.peek(limit).key(&**key).await.unwrap());
            assert_eq!(rows.numbers(key).await, before, "{key}");
        }
    }
}
