//! Quotas that change, on a real server: what clients are told, and what a refusal stores.

use std::time::Duration;

use super::one::SingleBucket;
use super::{START, Server, on};
use tollgate::algebra::{Bucket, Verdict};
use tollgate::backend::{Adjustment, Backend, BucketId, Charge, Key};
use tollgate::clock::ManualClock;
use tollgate::{DAY, HOUR, Limit, MINUTE, Quota, RateLimiter, SECOND};

const TICK: Duration = Duration::from_micros(1);

/// Regression: until the day was over, the bucket gained by the quota of the day, and the client
/// was told nine minutes at each attempt.
#[tokio::test]
async fn a_client_that_changed_its_plan_is_admitted_at_the_advertised_time() {
    static DAILY: Limit = Limit::new("plan", Quota::fixed_window(100, DAY));
    static STEADY: Limit = Limit::new("plan", Quota::token_bucket(10, MINUTE));
    let server = Server::start();
    let clock = ManualClock::new(START);
    let limiter = RateLimiter::new(on(&server, &clock).connect().await.unwrap());
    limiter.limit(&DAILY).key("alice").cost(100).await.unwrap();
    let told = async || {
        let refused = limiter.limit(&STEADY).key("alice").await.unwrap_err();
        refused.retry_after().unwrap()
    };
    assert_eq!(told().await, MINUTE * 9 + SECOND * 6);
    clock.advance(MINUTE * 9 + SECOND * 6 - TICK);
    assert_eq!(told().await, TICK);
    clock.advance(TICK);
    assert_eq!(limiter.limit(&STEADY).key("alice").await.unwrap().remaining(), 0);
}

/// The charge comes alone, as one of two shards, in a list, and with others in one batch.
#[tokio::test]
async fn a_refusal_stores_buckets_of_another_quota_converted_and_nothing_else() {
    let server = Server::start();
    let (clock, mut client) = (ManualClock::new(START), server.client());
    let old = Bucket::new(&Quota::fixed_window(10, DAY)).unwrap();
    let one = SingleBucket::connect(on(&server, &clock), &Quota::token_bucket(10, HOUR)).await;
    let (new, bob) = (&one.bucket, Key::from("bob"));
    let (id, absent) = (one.id(), BucketId::new("one", &bob));
    let [none, one_token, all] = [0, 1, 10].map(|tokens| new.units(tokens).unwrap());
    let take = Charge::take(id, new, one_token);
    let (full, empty) = (Charge::take(absent, new, all + 1), Charge::take(id, new, none));
    let look = Charge::look(id, new, one_token);
    for (what, charges, converts) in [
        ("alone", vec![take], true),
        ("in debt, for nothing", vec![empty], true),
        ("of two shards", vec![take.second_shard(1)], false),
        (
            "of two shards, both short",
            vec![Charge::take(id, new, all * 2 + 1).second_shard(1)],
            true,
        ),
        ("a look", vec![look], false),
        ("a list", vec![empty, full], true),
        ("a list of looks", vec![look, full], false),
    ] {
        one.redis.reset(&[id, id.shard(1), absent]).wait().await.unwrap();
        // 11 of 10 tokens are used.
        one.redis.adjust(&[Adjustment::refund(id, &old, -11)]).wait().await.unwrap();
        let before = client.call(&[b"GET", SingleBucket::NAME]).unwrap();
        let applied = one.redis.apply(&charges).wait().await.unwrap();
        let refused = applied.verdict() == Verdict::Refused;
        assert_eq!(refused, what != "of two shards", "{what}");
        let after = client.call(&[b"GET", SingleBucket::NAME]).unwrap();
        assert_eq!(after != before, converts, "{what}");
        assert_eq!(
            client.call(&[b"EXISTS".as_slice(), b"tollgate:one:bob"]).unwrap().int(),
            0,
            "{what}"
        );
        if converts {
            // The refusal is stored once.
            let _ = one.redis.apply(&charges).wait().await.unwrap();
            assert_eq!(client.call(&[b"GET", SingleBucket::NAME]).unwrap(), after, "{what}");
        }
    }
}
