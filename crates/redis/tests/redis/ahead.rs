//! Buckets that a server with a wrong clock has written, on one whose clock is right.

use std::time::Duration;

use tollgate::{DAY, HOUR, Limit, Quota, RateLimiter};
use tollgate_redis::{ColdStart, Redis};
use tollgate_testing::ahead::{self, Rows};
use tollgate_testing::redis::Server;

fn limiter(server: &Server, cold_start: ColdStart) -> RateLimiter {
    let redis = Redis::at(server.url()).deadline(Duration::from_secs(10)).cold_start(cold_start);
    RateLimiter::new(redis.connect_lazily().unwrap())
}

/// The name of the bucket of this key, which is that of one limit.
fn name(server: &Server, key: &str) -> String {
    let found = server.command(&["KEYS", &format!("tollgate:*:{key}")]);
    let [name] = found.list() else { panic!("{key}: {found:?}") };
    name.text().to_owned()
}

/// The keys of a server.
struct Keys(Server);

impl Rows for Keys {
    async fn move_ahead(&self, key: &str, micros: i64) {
        let name = name(&self.0, key);
        let mut value = self.0.command(&["GET", &name]).bytes().to_vec();
        let time: &mut [u8; 8] = (&mut value[8..16]).try_into().unwrap();
        *time = (f64::from_le_bytes(*time) + micros as f64).to_le_bytes();
        let left = self.0.command(&["PTTL", &name]).int() + micros / 1_000;
        let left = left.to_string();
        let words = [b"SET", name.as_bytes(), &value, b"PX", left.as_bytes()];
        self.0.command(&words).ok();
    }

    async fn numbers(&self, key: &str) -> [i64; 6] {
        let value = self.0.command(&["GET", &name(&self.0, key)]).bytes().to_vec();
        let (numbers, []) = value.as_chunks::<8>() else { panic!("{value:?}") };
        let numbers: Vec<_> = numbers.iter().map(|one| f64::from_le_bytes(*one) as i64).collect();
        numbers.try_into().unwrap()
    }

    async fn now(&self) -> i64 {
        let time = self.0.command(&["TIME"]);
        let [seconds, micros] = time.list() else { panic!("{time:?}") };
        seconds.int() * 1_000_000 + micros.int()
    }
}

#[tokio::test]
async fn a_bucket_of_a_time_years_ahead_gains_from_now_on() {
    for cold_start in [ColdStart::Full, ColdStart::Empty] {
        let keys = Keys(Server::start());
        if cold_start == ColdStart::Empty {
            // Long ago, so that all buckets have filled since.
            keys.0.command(&["SET", "tollgate:#init", "0"]).ok();
        }
        let limiter = limiter(&keys.0, cold_start);
        ahead::a_bucket_of_a_time_years_ahead_gains_from_now_on(&limiter, &keys).await;
        // None of them stays until the year that the wrong clock has said.
        let names = keys.0.command(&["KEYS", "tollgate:*:*"]);
        for name in names.list() {
            let left = keys.0.command(&["PTTL", name.text()]).int();
            assert!(left < 1_000 * 60 * 60 * 24 * 70, "{name:?}: {left}");
        }
    }
}

#[tokio::test]
async fn what_was_used_stays_used() {
    let keys = Keys(Server::start());
    ahead::what_was_used_stays_used(&limiter(&keys.0, ColdStart::Full), &keys).await;
}

#[tokio::test]
async fn blocks_debts_and_times_a_little_ahead_stay() {
    let keys = Keys(Server::start());
    ahead::blocks_debts_and_times_a_little_ahead_stay(&limiter(&keys.0, ColdStart::Full), &keys)
        .await;
}

/// A loss that a server has noted by a wrong clock leaves buckets empty as of now, and not for
/// years.
#[tokio::test]
async fn a_loss_in_years_to_come_is_one_of_now() {
    static HOURLY: Limit = Limit::new("hourly", Quota::token_bucket(10, HOUR));
    let keys = Keys(Server::start());
    let limiter = limiter(&keys.0, ColdStart::Empty);
    drop(limiter.peek(&HOURLY).await.unwrap());
    let in_years = keys.now().await + 3_650 * i64::try_from(DAY.as_micros()).unwrap();
    keys.0.command(&["SET", "tollgate:#init", &in_years.to_string()]).ok();
    let before = keys.now().await;
    let refused = limiter.limit(&HOURLY).await.unwrap_err();
    assert!(refused.retry_after().unwrap() <= HOUR / 10, "{refused:?}");
    let now_noted = keys.0.command(&["GET", "tollgate:#init"]).int();
    assert!((before..=keys.now().await).contains(&now_noted), "{now_noted}");
}
