//! A cluster of three nodes: what shares a slot, and what does not.

use std::sync::LazyLock;
use std::time::Duration;

use tollgate_testing::cases::seeds;
use tollgate_testing::redis::Cluster;

use super::{Dice, START, trace};
use crate::{HashTag, Redis};
use tollgate::algebra::check_history;
use tollgate::backend::Key;
use tollgate::clock::ManualClock;
use tollgate::limiter::{LimitCall, Reservation};
use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimiter, SECOND};

/// One cluster for all tests of this file. Each test has its own prefix.
static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| Cluster::start(3));

const TEN: Limit = Limit::new("ten", Quota::token_bucket(10, HOUR));
const FIVE: Limit = Limit::new("five", Quota::fixed_window(5, HOUR));
/// Shards of 10 tokens each, with a token every 6 minutes.
const SHARDS: Limit =
    Limit::new("shards", Quota::token_bucket(60, HOUR).max_reserved(30).shards(6));

async fn on(prefix: &str, tag: HashTag, clock: &ManualClock) -> Redis {
    connect(&CLUSTER, prefix, tag, clock).await
}

async fn connect(cluster: &Cluster, prefix: &str, tag: HashTag, clock: &ManualClock) -> Redis {
    let builder = Redis::cluster(cluster.urls()).prefix(prefix).hash_tag(tag);
    builder.clock(clock.clone()).deadline(Duration::from_secs(60)).connect().await.unwrap()
}

/// A limiter of this prefix, and its clock.
async fn limiter(prefix: &str, tag: HashTag) -> (RateLimiter, ManualClock) {
    let clock = ManualClock::new(START);
    (RateLimiter::new(on(prefix, tag, &clock).await).seed(7), clock)
}

/// Whether a call is admitted. Any failure but a refusal is a mistake of the test.
async fn is_admitted(call: LimitCall<'_>) -> bool {
    match call.await {
        Ok(_permit) => true,
        Err(error) => {
            assert!(error.is_refused(), "{error:?}");
            false
        }
    }
}

/// How many calls the nodes of a cluster have received.
fn calls(cluster: &Cluster) -> usize {
    let calls = |node: &super::Server| {
        let info = node.command(&["INFO", "commandstats"]);
        let calls =
            info.text().lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
    };
    cluster.nodes().iter().map(calls).sum()
}

#[tokio::test]
async fn limits_in_several_slots_cannot_be_charged_together_and_the_error_says_what_to_do() {
    let (limiter, _) = limiter("apart", HashTag::Bucket).await;
    let both = limiter.limit(&TEN).key("alice").and(&FIVE).key("alice");
    let error = both.await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(
        source.to_string(),
        "buckets of `ten`, `five` are in several slots of the cluster, and cannot be charged in one \
         step (connect with `HashTag::FirstPart` and begin their keys with the same part, or with \
         `HashTag::Fixed`)"
    );
    // Nothing was taken.
    let snapshot = limiter.peek(&TEN).key("alice").await.unwrap();
    assert!(snapshot.fits() && snapshot.remaining() == 10, "{snapshot:?}");
}

#[tokio::test]
async fn limits_of_one_tag_are_charged_all_or_nothing() {
    for (prefix, tag) in [("first", HashTag::FirstPart), ("fixed", HashTag::Fixed("all".into()))] {
        let (limiter, _) = limiter(prefix, tag).await;
        let user = Key::from(("acme", "alice"));
        let mut admitted = 0;
        for _ in 0..8 {
            let both = limiter.limit(&TEN).key("acme").and(&FIVE).key(user.clone());
            admitted += usize::from(is_admitted(both).await);
        }
        assert_eq!(admitted, 5);
        assert_eq!(limiter.peek(&TEN).key("acme").await.unwrap().remaining(), 5, "{prefix}");
    }
}

#[tokio::test]
async fn shards_in_several_slots_give_exactly_what_the_limit_has() {
    let (limiter, _) = limiter("spread", HashTag::Bucket).await;
    let mut admitted = 0;
    // Two shards are drawn at random, so that the last tokens take some tries.
    for _ in 0..400 {
        admitted += usize::from(is_admitted(limiter.limit(&SHARDS)).await);
    }
    assert_eq!(admitted, 60);
    let snapshot = limiter.peek(&SHARDS).await.unwrap();
    assert_eq!((snapshot.remaining(), snapshot.tokens().to_string()), (0, "0".to_owned()));
    let held: Vec<usize> = CLUSTER
        .nodes()
        .iter()
        .map(|node| node.command(&["KEYS", "spread:*"]).list().len())
        .collect();
    assert_eq!(held.iter().sum::<usize>(), 6);
    assert!(held.iter().filter(|held| **held > 0).count() > 1, "{held:?}");

    limiter.reset(&SHARDS).await.unwrap();
    assert_eq!(limiter.peek(&SHARDS).await.unwrap().remaining(), 60);
    let snapshot = limiter.penalize(&SHARDS, 66).await.unwrap();
    assert_eq!(snapshot.tokens().to_string(), "-6");
    let refused = limiter.limit(&SHARDS).await.unwrap_err();
    // Two shards are a token each in debt, and gain three together in nine minutes.
    assert_eq!(refused.retry_after(), Some(9 * MINUTE));
}

#[tokio::test]
async fn the_second_shard_is_asked_only_if_the_first_refuses() {
    // A cluster of its own, because other tests send calls to the shared one.
    let (cluster, clock) = (Cluster::start(3), ManualClock::new(START));
    let limiter = RateLimiter::new(connect(&cluster, "trips", HashTag::Bucket, &clock).await);
    let one = Limit::new("trips", Quota::token_bucket(2, HOUR).shards(2));
    let trips = async |cost: u64| {
        let before = calls(&cluster);
        let admitted = is_admitted(limiter.limit(&one).cost(cost)).await;
        (admitted, calls(&cluster) - before)
    };
    assert_eq!(trips(1).await, (true, 1));
    // It takes two calls if the shard without tokens is drawn first.
    let (admitted, asked) = trips(1).await;
    assert!(admitted && (1..=2).contains(&asked), "{asked}");
    assert_eq!(trips(1).await, (false, 2));
    // Half an hour later each shard has half a token. Together that is one, taken from both.
    clock.advance(HOUR / 2);
    assert_eq!(trips(1).await, (true, 4));
    assert_eq!(limiter.peek(&one).await.unwrap().tokens().to_string(), "0");
}

#[tokio::test]
async fn two_shards_pay_or_owe_what_one_shard_does_not_hold() {
    let (limiter, clock) = limiter("two", HashTag::Bucket).await;
    let pair = Limit::new("pair", Quota::token_bucket(20, HOUR).max_reserved(20).shards(2));
    assert!(is_admitted(limiter.limit(&pair).cost(15)).await);
    assert_eq!(limiter.peek(&pair).await.unwrap().remaining(), 5);
    let refused = limiter.limit(&pair).cost(15).await.unwrap_err();
    // Ten tokens are missing, and come in half an hour.
    assert_eq!(refused.retry_after(), Some(HOUR / 2));
    clock.advance(HOUR / 2);
    assert!(is_admitted(limiter.limit(&pair).cost(15)).await);

    // Both may owe ten.
    let reservation = limiter.limit(&pair).cost(12).reserve().await.unwrap();
    assert_eq!(reservation.at(), clock_now(&clock) + HOUR * 12 / 20);
    let permit = reservation.keep();
    assert_eq!(limiter.peek(&pair).await.unwrap().tokens().to_string(), "-12");
    permit.refund().await.unwrap();
    assert_eq!(limiter.peek(&pair).await.unwrap().tokens().to_string(), "0");
    let error = limiter.limit(&pair).cost(21).await.unwrap_err();
    assert!(error.is_too_large());
}

fn clock_now(clock: &ManualClock) -> tollgate::Timestamp {
    tollgate::clock::Clock::now(clock)
}

/// All shards of a history are in one slot, because shards in several slots are decided by other
/// rules.
#[tokio::test]
async fn memory_and_a_cluster_answer_random_calls_alike() {
    let clock = ManualClock::new(START);
    let (mut played, mut wanted) = (0, 0);
    for seed in seeds(10).map(|seed| 10_000 + seed) {
        clock.set(START);
        let redis = on(&format!("t{seed}"), HashTag::Fixed("t".to_owned()), &clock).await;
        played += trace::play(&redis, &clock, seed, 170).await;
        wanted += 170;
    }
    assert!(played >= wanted, "{played}");
}

/// Many calls at once, with the time of the servers, on shards in different slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_in_different_slots_keep_the_bound_of_the_whole_limit() {
    let quota = Quota::token_bucket(60, SECOND).capacity(40).max_reserved(20).shards(4);
    let limit = Limit::try_new("storm", quota).unwrap();
    let redis = Redis::cluster(CLUSTER.urls()).prefix("storm").deadline(Duration::from_secs(60));
    let limiter = RateLimiter::new(redis.connect().await.unwrap());
    let tasks: Vec<_> = (0..16_u64)
        .map(|seed| {
            let (limiter, limit) = (limiter.clone(), limit.clone());
            tokio::spawn(async move {
                let mut dice = Dice(seed);
                let mut runs = Vec::new();
                for _ in 0..60 {
                    let cost = 1 + dice.below(12);
                    let call = limiter.limit(&limit).cost(cost);
                    let permit = if dice.one_in(2) {
                        call.reserve().await.map(Reservation::keep)
                    } else {
                        call.await
                    };
                    match permit {
                        Ok(permit) => runs.push((permit.at(), cost)),
                        Err(error) => assert!(error.is_refused(), "{error:?}"),
                    }
                }
                runs
            })
        })
        .collect();
    let mut runs = Vec::new();
    for task in tasks {
        runs.extend(task.await.unwrap());
    }
    // Shards that pay together have bounds of their own: what each may exceed by is one cost.
    let bound = quota.capacity(40 + 4 * 12);
    let taken: u64 = runs.iter().map(|(_, cost)| cost).sum();
    assert!(taken >= 40, "at least what the shards hold at first: {taken}");
    assert_eq!(check_history(&bound, &runs).unwrap(), None);
}
